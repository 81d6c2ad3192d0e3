// The policy editor: problems at their lines while somebody types, and a request to try it with.

import { button, make, say } from "./dom.js";
import { data } from "./session.js";
import { badge, check, dialog, field, level } from "./ui.js";

const PAUSE = 300;
const EXAMPLE = `inbound:
  - name: no deletions
    expressions:
      - req.method == "DELETE"
    actions:
      - type: deny
        config:
          status_code: 403
`;

// ── YAML ─────────────────────────────────────────────────────────────────────────────────────

const PLAIN = /^[A-Za-z_][\w./-]*$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n)$/i;

const scalar = (value) => (typeof value === "string" && PLAIN.test(value) && !WORDS.test(value) ? value : JSON.stringify(value));
const isFlat = (value) => value === null || typeof value !== "object" || !Object.keys(value).length;

/** A document as people write it. */
export function yaml(value, depth = 0) {
  const indent = "  ".repeat(depth);
  if (Array.isArray(value)) {
    return value.map((it) => (isFlat(it) ? `${indent}- ${scalar(it)}\n` : `${indent}- ${yaml(it, depth + 1).trimStart()}`)).join("");
  }
  return Object.entries(value).filter(([, it]) => it != null).map(([key, it]) => (isFlat(it) ? `${indent}${scalar(key)}: ${scalar(it)}\n` : `${indent}${scalar(key)}:\n${yaml(it, depth + 1)}`)).join("");
}

// ── The editor ───────────────────────────────────────────────────────────────────────────────

class PolicyEditor {
  constructor(document, protocol) {
    this.protocol = protocol;
    this.numbers = make("div", { class: "numbers", "aria-hidden": "true" });
    this.area = make("textarea", {
      class: "mono", spellcheck: "false", wrap: "off", rows: "18", "aria-label": "Policy, in YAML or JSON", "aria-describedby": "policy-state",
      input: () => this.typed(), scroll: () => this.follow(), keydown: (event) => this.key(event),
    });
    this.area.value = document;
    this.state = make("p", { id: "policy-state", class: "hint", role: "status" });
    this.problems = make("ol", { class: "problems" });
    this.element = make("div", {}, make("div", { class: "editor" }, this.numbers, this.area), this.state, this.problems,
      make("p", { class: "hint" }, "Tab leaves the editor; Ctrl+Space indents by two spaces."));
    this.wrong = new Set();
    this.number();
  }

  typed() {
    this.number();
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.check(), PAUSE);
  }

  key(event) {
    if (event.key !== " " || !event.ctrlKey) return;
    event.preventDefault();
    this.area.setRangeText("  ", this.area.selectionStart, this.area.selectionEnd, "end");
    this.typed();
  }

  number() {
    const count = this.area.value.split("\n").length;
    this.numbers.replaceChildren(...Array.from({ length: count }, (_, at) => make("span", { class: this.wrong.has(at + 1) ? "bad" : "" }, String(at + 1))));
    this.follow();
  }

  follow() {
    this.numbers.style.translate = `0 ${-this.area.scrollTop}px`;
  }

  /** Asks the service what is wrong, and what becomes of a request where there is one. */
  async check(traffic = null) {
    clearTimeout(this.waiting);
    const text = this.area.value;
    let checked;
    try {
      checked = await data("policy", { document: text, protocol: this.protocol, traffic });
    } catch (error) {
      say(this.state, error.message);
      return null;
    }
    if (text !== this.area.value) return null;
    this.wrong = new Set(checked.problems.map(({ line }) => line));
    this.number();
    say(this.state, checked.problems.length ? `${checked.problems.length} ${checked.problems.length === 1 ? "problem" : "problems"}` : "✓ Nothing is wrong with it.");
    this.state.className = checked.problems.length ? "problem" : "good";
    this.problems.replaceChildren(...checked.problems.map((problem) => make("li", {},
      button(problem.line ? `Line ${problem.line}` : "Document", () => this.go(problem), { class: "small" }),
      make("span", {}, make("code", {}, problem.place), ` ${problem.message}`))));
    if (checked.problems.length) this.area.setAttribute("aria-invalid", "true");
    else this.area.removeAttribute("aria-invalid");
    return checked;
  }

  /** Selects the line of a problem. */
  go({ line }) {
    const before = this.area.value.split("\n").slice(0, (line ?? 1) - 1).join("\n").length + (line > 1 ? 1 : 0);
    const end = this.area.value.indexOf("\n", before);
    this.area.focus();
    this.area.setSelectionRange(before, end < 0 ? this.area.value.length : end);
    this.area.scrollTop = Math.max(0, ((line ?? 1) - 5) * (this.area.scrollHeight / this.area.value.split("\n").length));
  }
}

// ── Try it ───────────────────────────────────────────────────────────────────────────────────

const OUTCOMES = { continue: ["goes on to the upstream", "good"], respond: ["is answered by the policy", "warn"], close: ["is closed", "bad"], forward: ["goes to another endpoint", "moved"] };

const pairs = (text) => {
  const headers = {};
  for (const [index, line] of text.split("\n").entries()) {
    const at = line.indexOf(":");
    if (!line.trim()) continue;
    if (at < 1) throw new Error(`Headers, line ${index + 1}: ${JSON.stringify(line.trim())} is no header: write name: value`);
    (headers[line.slice(0, at).trim()] ??= []).push(line.slice(at + 1).trim());
  }
  return headers;
};

function tryForm(editor) {
  const isHttp = editor.protocol !== "tcp";
  const input = (value) => make("input", { type: "text", spellcheck: "false", autocomplete: "off", value, class: "mono" });
  const [method, url, source] = [input("GET"), input(["https:", "", "example.com", ""].join("/")), input("192.0.2.1")];
  const area = () => make("textarea", { rows: 2, spellcheck: "false", class: "mono" });
  const [headers, body] = [area(), area()];
  const result = make("div", { class: "result", role: "status" });
  const run = async (event) => {
    event.preventDefault();
    // The form of a dialog around it is not meant.
    event.stopPropagation();
    let sent;
    try {
      sent = pairs(headers.value);
    } catch (error) {
      headers.setAttribute("aria-invalid", "true");
      result.replaceChildren(make("p", { class: "problem" }, error.message));
      return;
    }
    headers.removeAttribute("aria-invalid");
    const request = { method: method.value, url: url.value, headers: sent, body: body.value };
    const connection = source.value ? { client_ip: source.value } : {};
    const checked = await editor.check(isHttp ? { connection, request } : { connection });
    if (!checked) return;
    result.replaceChildren(checked.problems.length ? make("p", { class: "problem" }, "First make the policy right.")
      : checked.report ? report(checked.report) : make("p", { class: "problem" }, checked.traffic_problem ?? "Nothing came of it."));
  };
  return make("form", { class: "try", submit: run, "aria-label": "Try a request" }, make("h2", {}, "Try it"),
    make("p", { class: "hint" }, "What decides here is what decides at an edge. Nothing is sent anywhere."),
    isHttp ? make("div", { class: "fields" }, field("Method", method), field("URL", url)) : null,
    field("Address of the visitor", source),
    isHttp ? make("details", {}, make("summary", {}, "Headers and body"), field("Headers", headers, "name: value, one on each line"), field("Body", body)) : null,
    make("button", {}, "Try it"), result);
}

/** What became of a request, and which rule decided. */
function report({ outcome, decision, rules, request, response, logs }) {
  const [words, kind] = OUTCOMES[outcome];
  const rule = (it) => make("li", {}, badge(it.matched ? "matched" : it.error ? "failed" : "no match", it.matched ? "accent" : it.error ? "bad" : ""),
    ` ${it.phase} ${it.index + 1}${it.name ? `: ${it.name}` : ""}`, it.error ? make("p", { class: "problem" }, it.error) : null,
    it.actions.length ? make("ul", { class: "plain" }, it.actions.map((action) => make("li", {}, make("code", {}, action.type), action.ended ? " decides" : "",
      action.error ? make("span", { class: "problem" }, ` ${action.error}`) : null))) : null);
  return make("div", {},
    make("p", { class: "outcome" }, badge(words, kind), decision
      ? make("span", {}, " by ", make("code", {}, decision.action), " of ", make("b", {}, decision.name || `rule ${decision.rule + 1}`), ` in ${decision.phase}`)
      : make("span", { class: "hint" }, " No rule decided.")),
    response ? make("p", {}, "The visitor gets ", badge(String(response.status), level(response.status)), response.body ? make("pre", {}, response.body) : null) : null,
    request ? make("details", {}, make("summary", {}, "The request as the upstream sees it"),
      make("pre", {}, [`${request.method} ${request.url}`, ...request.headers.map(([name, value]) => `${name}: ${value}`), "", request.body].join("\n"))) : null,
    make("h3", {}, "Rules"), rules.length ? make("ol", { class: "plain rules" }, rules.map(rule)) : make("p", { class: "hint" }, "No rule was looked at."),
    logs.length ? make("div", {}, make("h3", {}, "Logs"), make("pre", {}, logs.map((it) => JSON.stringify(it)).join("\n"))) : null);
}

/** The page on which policies are tried that belong to nothing yet. */
export function policyView() {
  const editor = new PolicyEditor(EXAMPLE, "https");
  editor.check();
  const select = make("select", { change: () => swap() }, make("option", { value: "https" }, "a route of an HTTPS edge"), make("option", { value: "tcp" }, "a TCP or TLS edge"));
  const place = make("div", { class: "editor-panes" });
  const swap = () => {
    editor.protocol = select.value;
    place.replaceChildren(editor.element, tryForm(editor));
    editor.check();
  };
  swap();
  return make("div", { class: "view" }, make("div", { class: "view-head" }, make("div", {}, make("h1", {}, "Try a policy"),
    make("p", { class: "hint" }, "Write a traffic policy and see what it would do, before any traffic meets it.")),
  make("div", { class: "tools" }, field("For", select))), place);
}

/**
 * The editor of the traffic policy of an edge or a route. `module` is which of its two forms: `policy`, whose rules the
 * service keeps by phase, or `traffic_policy`, which is kept as the text that was written.
 */
export function openPolicy(module, title, stored, protocol, save) {
  const isText = module === "traffic_policy";
  const { enabled, value, ...phases } = stored ?? {};
  const text = isText ? value : stored && (yaml(phases) || "inbound: []\n");
  const editor = new PolicyEditor(text ?? EXAMPLE, protocol);
  let isApplied = enabled !== false;
  const box = dialog(title, make("div", {},
    make("p", { class: "hint" }, isText ? "It is kept as it is written here, with comments." : "The service keeps the rules, not the text: comments are lost, and phases are called inbound and outbound."),
    check("The policy is applied", (yes) => { isApplied = yes; }, { checked: isApplied }),
    make("div", { class: "editor-panes" }, editor.element, tryForm(editor))), [["Save", async () => {
    const checked = await editor.check();
    if (!checked?.document) throw new Error(checked ? "The policy has problems: nothing was saved." : "The policy could not be checked.");
    // A document may say as well that it is not applied.
    const { enabled: isMeant, ...rules } = checked.document;
    await save(isText ? { enabled: isApplied, value: editor.area.value } : { ...rules, enabled: isApplied && isMeant !== false });
  }, "strong"]], { className: "large" });
  editor.check();
  editor.area.focus();
  return box;
}
