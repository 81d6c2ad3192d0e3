// The page of mocks, to which the agent responds itself, and of holds, which make requests wait.

import { button, byId, make, say, time } from "./dom.js";
import { editHold, editMock } from "./forms.js";
import { HeldList, showHeld } from "./held.js";
import { Live } from "./live.js";
import { followOutage, showState } from "./outage.js";
import { ask } from "./server.js";
import { badge, confirm, empty, level, notice } from "./ui.js";

/** A filter that holds for no request: this page follows the rules alone. */
const NO_REQUEST = "status:1";
/** How often the rules are asked for at most, in milliseconds: each hit changes them. */
const PAUSE = 250;

const held = new HeldList(refresh);
const mocks = ruleTable({
  what: "mock", title: "Mocks", add: "New mock", columns: ["Response"], edit: editMock, cells: (mock) => [response(mock)],
  hint: "A request that matches gets its response from the agent, and the local service does not see it. The first mock that matches responds.",
  none: ["No mock yet", "Respond to a webhook before its receiver is written, or with the errors that a service seldom has. “Respond with this” in the details of a request makes a mock of its response."],
});
const holds = ruleTable({
  what: "hold", title: "Holds", add: "New hold", columns: ["Goes on after"], edit: editHold, cells: (hold) => [`${hold.max_wait / 1000} s`],
  hint: "A request that matches waits until you let it go, change it or refuse it. It goes on by itself when its time is over.",
  none: ["No hold yet", "Stop a request on its way to the local service, to look at it or to change it before it arrives."],
});
let revision = null;
let timer = null;
let reading = false;

function setUp() {
  byId("rules").replaceChildren(held.element, mocks.element, holds.element);
  new Live({ update, link: (how) => how === "lost" && followOutage(null) }).start(NO_REQUEST);
  read();
}

function update(news) {
  showState(news.state);
  followOutage(news.state);
  showHeld(news.held);
  if (news.rules === revision) return;
  revision = news.rules;
  timer ??= setTimeout(read, PAUSE);
}

/** Asks for the rules at once. */
function refresh() {
  clearTimeout(timer);
  read();
}

async function read() {
  if (reading) {
    clearTimeout(timer);
    timer = setTimeout(read, PAUSE);
    return;
  }
  timer = null;
  reading = true;
  try {
    const found = await Promise.all([ask("/api/mocks"), ask("/api/holds"), ask("/inspect/data/held")]);
    mocks.draw(found[0].mocks);
    holds.draw(found[1].holds);
    held.draw(found[2]);
    say(byId("rules-problem"), "");
  } catch (error) {
    say(byId("rules-problem"), error.message);
  }
  reading = false;
}

// ── Tables ───────────────────────────────────────────────────────────────────────────────────

/** A table of rules; what has changed in a row is drawn anew, its controls are not. */
function ruleTable(kind) {
  const rows = new Map();
  const body = make("tbody");
  const count = make("span", { class: "hint" });
  const none = empty(...kind.none, make("div", { class: "actions" }, button(kind.add, () => open(), { class: kind.what === "mock" ? "strong" : null })));
  const add = button(kind.add, () => open());
  const head = ["On", "Name", "Requests", ...kind.columns, "Hits", ""].map((name) =>
    make("th", { scope: "col", class: name === "Hits" ? "end" : null }, name || make("span", { class: "unseen" }, "Actions")));
  const table = make("div", { class: "scroll" }, make("table", { class: "list" }, make("thead", {}, make("tr", {}, head)), body));
  const id = `${kind.what}s-title`;
  const element = make("section", { class: "rules-part", "aria-labelledby": id },
    make("div", { class: "tools" }, make("h2", { id }, kind.title), count, make("span", { class: "wide" }), add),
    make("p", { class: "hint" }, kind.hint), table, none);
  // Until it is known whether there are any.
  for (const part of [table, add, none]) part.hidden = true;
  const open = (rule) => kind.edit(rule, refresh).catch((error) => notice(error.message));
  return { element, draw: (rules) => draw(rules) };

  function draw(rules) {
    const hadFocus = body.contains(document.activeElement);
    const known = new Set(rules.map((rule) => rule.id));
    for (const [name, { row }] of rows) {
      if (known.has(name)) continue;
      row.remove();
      rows.delete(name);
    }
    rules.forEach((rule, at) => {
      const { row } = rowFor(rule);
      if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
    });
    const isEmpty = !rules.length;
    table.hidden = isEmpty;
    add.hidden = isEmpty;
    none.hidden = !isEmpty;
    say(count, isEmpty ? "" : `${rules.filter((rule) => rule.enabled).length} of ${rules.length} on`);
    // The row that had it has gone.
    if (hadFocus && !body.contains(document.activeElement)) (body.querySelector("button") ?? none.querySelector("button")).focus();
  }

  /** The row of a rule as it is now; what can have the focus stays, also for dialogs that give it back. */
  function rowFor(rule) {
    const { hits, ...rest } = rule;
    const face = JSON.stringify(rest);
    const shown = rows.get(rule.id) ?? addRow(rule.id);
    say(shown.hits, String(hits));
    if (shown.face === face) return shown;
    Object.assign(shown, { rule, face });
    shown.row.className = rule.enabled ? "" : "off";
    shown.on.checked = rule.enabled;
    fill(shown.name, rule.id, rule.from_file ? badge("file", "", { title: "from the configuration file: it is there again at the next start" }) : null);
    fill(shown.requests, ...requests(rule));
    kind.cells(rule).forEach((cell, at) => fill(shown.cells[at], cell));
    return shown;
  }

  function addRow(id) {
    const name = `${kind.what} ${id}`;
    const shown = {
      name: make("th", { scope: "row" }), requests: make("td"), cells: kind.columns.map(() => make("td")), hits: make("td", { class: "end number" }),
      on: make("input", { type: "checkbox", "aria-label": `${name} is on`, change: () => change(shown.rule, { enabled: shown.on.checked }) }),
    };
    shown.row = make("tr", { "data-id": id }, make("td", { class: "on" }, shown.on), shown.name, shown.requests, shown.cells, shown.hits,
      make("td", { class: "end" }, make("span", { class: "tools" },
        button("Edit", () => open(shown.rule), { class: "small", "aria-label": `Edit ${name}` }),
        button("Delete", () => remove(shown.rule, name), { class: "small danger", "aria-label": `Delete ${name}` }))));
    rows.set(id, shown);
    return shown;
  }
}

const fill = (cell, ...children) => cell.replaceChildren(...children.filter((child) => child != null));

/** Which requests a rule is for, in one line and what else must be so below it. */
function requests(rule) {
  const others = [
    rule.host ? `host ${rule.host}` : null, rule.tunnel_name ? `tunnel ${rule.tunnel_name}` : null,
    ...Object.entries(rule.match_query ?? {}).map(([name, value]) => `${name}=${value}`),
    ...Object.entries(rule.match_headers ?? {}).map(([name, value]) => `${name}: ${value}`),
  ].filter(Boolean);
  const line = rule.method || rule.path
    ? make("span", { class: "mono" }, rule.method ? make("span", { class: "method" }, `${rule.method} `) : null, rule.path ?? "any path")
    : others.length ? make("span", {}, "any method and path") : make("span", {}, "every request");
  return [line, ...others.map((other) => make("div", { class: "hint mono" }, other))];
}

function response(mock) {
  const type = Object.entries(mock.headers ?? {}).find(([name]) => name.toLowerCase() === "content-type")?.[1];
  const content = mock.json != null ? "JSON" : type ? type.split(";")[0] : mock.body_base64 != null ? "bytes" : mock.body ? "text" : "no body";
  const notes = [
    mock.fault === "reset" ? "the connection" : content, mock.delay ? `after ${time(mock.delay)}` : null, mock.fault === "truncate" ? "body cut off" : null,
    mock.times != null ? `${mock.times} at most` : null,
  ].filter(Boolean);
  const face = mock.fault === "reset" ? badge("reset", "bad") : badge(String(mock.status), level(mock.status));
  return make("span", {}, face, make("span", { class: "hint" }, ` ${notes.join(", ")}`));
}

async function change(rule, changes) {
  try {
    await ask(rule.uri, { method: "PATCH", body: changes });
  } catch (error) {
    notice(error.message);
  }
  refresh();
}

function remove(rule, name) {
  const lets = name.startsWith("hold") ? " Requests that it holds go on." : rule.from_file ? " The configuration file keeps it: it is there again at the next start." : "";
  confirm(`Delete ${name}`, `It matches no more requests.${lets}`, "Delete", async () => {
    await ask(rule.uri, { method: "DELETE" });
    refresh();
  });
}

setUp();
