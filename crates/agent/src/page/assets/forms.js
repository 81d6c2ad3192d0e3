// The forms of mocks and holds.

import { announce, bytes, decode, encode, encoded, make, say } from "./dom.js";
import { text } from "./protobuf.js";
import { joinedOf, linesOf, linesOfJoined, pairsOf } from "./headers.js";
import { lines } from "./body.js";
import { ask } from "./server.js";
import { check, dialog, field, unique } from "./ui.js";

function input(value, attributes = {}) {
  const element = make("input", { autocomplete: "off", spellcheck: "false", ...attributes });
  element.value = value ?? "";
  return element;
}

function area(value, rows) {
  const element = make("textarea", { rows, spellcheck: "false", class: "mono" });
  element.value = value ?? "";
  return element;
}

function select(options, chosen) {
  return make("select", {}, options.map(([value, word]) => make("option", { value, selected: value === chosen }, word)));
}

function group(title, ...content) {
  return make("fieldset", {}, make("legend", {}, title), content);
}

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/** A field for a method, with the common ones to choose from. */
export function methodInput(value, attributes = {}) {
  const list = make("datalist", { id: unique("methods") }, METHODS.map((method) => make("option", { value: method })));
  const control = input(value, { list: list.id, class: "mono", ...attributes });
  return { control, list };
}

/** The fields that say which requests match. */
function matching(rule, tunnels) {
  const isNew = !rule?.uri;
  const method = methodInput(rule?.method, { placeholder: "any" });
  const names = [...new Set([rule?.tunnel_name, ...tunnels].filter(Boolean))];
  const inputs = {
    method: method.control,
    path: input(rule?.path, { placeholder: "any, such as /hook/*", class: "mono" }),
    host: input(rule?.host, { placeholder: "any", class: "mono" }),
    tunnel_name: select([["", "any"], ...names.map((name) => [name, name])], rule?.tunnel_name ?? ""),
  };
  const id = input(rule?.id, { placeholder: "chosen for you", maxlength: "64", pattern: "[A-Za-z0-9_.\\-]+", title: "Letters, digits and _ . -" });
  const headers = area(linesOfJoined(rule?.match_headers), "2");
  const query = area(linesOfJoined(rule?.match_query), "2");
  return {
    first: inputs.path,
    element: group("Requests that match",
      make("div", { class: "fields line-fields" }, field("Method", inputs.method), field("Path", inputs.path, "* stands for anything; with a ? in it, path and query are compared, with the parameters in any order.")), method.list,
      make("details", { open: Boolean(headers.value || query.value || rule?.host || rule?.tunnel_name) }, make("summary", {}, "Host, tunnel, query and headers"),
        make("div", { class: "fields" }, field("Host", inputs.host), field("Tunnel", inputs.tunnel_name)),
        field("Parameters that must match, one on each line as name: value", query, "In the query, in any order. Values may have a * as well."),
        field("Headers that must match, one on each line", headers, "Values may have a * as well.")),
      isNew ? field("Name", id) : null),
    read: () => ({
      ...(isNew && id.value ? { id: id.value } : {}),
      ...Object.fromEntries(Object.entries(inputs).filter(([name, control]) => control.value || rule?.[name]).map(([name, control]) => [name, control.value.trim()])),
      ...(query.value.trim() || rule?.match_query ? { match_query: joinedOf(query.value) } : {}),
      ...(headers.value.trim() || rule?.match_headers ? { match_headers: joinedOf(headers.value) } : {}),
    }),
  };
}

async function tunnelNames() {
  const { tunnels } = await ask("/api/tunnels").catch(() => ({ tunnels: [] }));
  return tunnels.map(({ name }) => name);
}

// ── Mocks ────────────────────────────────────────────────────────────────────────────────────

/** What stands for a secret, as crates/api/src/mask writes it. */
const MASK = "••••••";

/** The same of a captured response: what may be seen of it, which stays as it came unless it is changed. */
function bodyOfCaptured({ response }) {
  const content = response.text ?? response.raw_text;
  const isJson = response.kind === "json" && /[/+]json$/.test(response.media_type) && !mistake(content);
  return isJson && content ? { kind: "json", content: lines(content) } : { kind: content === null ? "body_base64" : "body", content, size: response.length };
}

/** What the body of a mock is: its kind, and its text, null where it is not text. */
function bodyOf(mock) {
  if (mock?.json != null) return { kind: "json", content: JSON.stringify(mock.json, null, 2) };
  if (mock?.body_base64 == null) return { kind: mock?.uri || mock?.body ? "body" : "json", content: mock?.body ?? "" };
  return { kind: "body_base64", content: text(decode(mock.body_base64)), size: decode(mock.body_base64).length };
}

const BODY_HINTS = {
  json: "Values of the request are escaped in it. The type is application/json unless a header says otherwise.",
  body: "The type is text/plain unless a header says otherwise.",
  body_base64: "It is sent as it is: {{ … }} is not replaced.",
};

/** The fields of the body; `read` gives what has changed. */
function bodyFields(mock, captured) {
  const before = captured ? bodyOfCaptured(captured) : bodyOf(mock);
  const kind = select([["json", "JSON"], ["body", "text"], ["body_base64", "bytes"]], before.kind);
  const content = area(before.content ?? "", "7");
  const file = make("input", { type: "file" });
  const problem = make("p", { class: "problem", role: "status" });
  const contentField = field("Body", content);
  const fileField = field("A file with the body", file);
  const hint = make("p", { class: "hint small-hint" });
  const draw = () => {
    const isBytes = kind.value === "body_base64";
    contentField.hidden = isBytes && (before.kind !== "body_base64" || before.content === null);
    fileField.hidden = !isBytes;
    say(hint, `${BODY_HINTS[kind.value]}${captured ? ` The response is sent as it was captured unless it is changed here${captured.response.masked ? "; secrets in it are masked here, and are sent as they came" : ""}.` : ""}${!captured && isBytes && before.size !== undefined ? ` There are ${bytes(before.size)} now, which stay unless a file is chosen${before.content === null ? "" : " or they are changed here"}.` : ""}`);
    say(problem, kind.value === "json" ? mistake(content.value) : "");
  };
  kind.addEventListener("change", draw);
  content.addEventListener("input", draw);
  draw();
  return {
    kind: field("The body is", kind),
    element: make("div", {}, contentField, problem, fileField, hint),
    read: async () => {
      if (kind.value === "body_base64" && file.files.length) return { body_base64: encode(new Uint8Array(await file.files[0].arrayBuffer())) };
      if (kind.value === before.kind && content.value === (before.content ?? "").replace(/\r\n?/g, "\n")) return {};
      if (captured && content.value.includes(MASK)) throw new Error("Body: it has masked secrets; show secrets before changing it.");
      if (kind.value === "body_base64") return { body_base64: encode(encoded(contentField.hidden ? "" : content.value)) };
      if (kind.value === "body" || !content.value.trim()) return { body: content.value };
      if (mistake(content.value)) throw new Error(`Body: ${mistake(content.value)}`);
      return { json: JSON.parse(content.value) };
    },
  };
}

/** What is wrong with a text that is to be JSON; empty where nothing is. */
function mistake(written) {
  if (!written.trim()) return "";
  try {
    JSON.parse(written);
    return "";
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}

/** Headers that the agent makes anew, as crates/agent/src/edits.rs lists them. */
const MADE_ANEW = ["content-length", "transfer-encoding", "trailer", "connection", "keep-alive", "proxy-connection", "upgrade", "te"];
const VALUES = ["method", "target", "path", "path.1", "query.NAME", "header.NAME", "host", "tunnel_name", "body", "body.NAME", "id", "now"];

/** The headers of a mock that are to be different from those of a captured response; masked ones stay as they came. */
async function changedHeaders(written, { id }, drop) {
  const exact = await ask(`/inspect/data/requests/${id}?reveal=1&whole=1`);
  const masked = await ask(`/inspect/data/requests/${id}`);
  const left = masked.response.headers.map(({ name, value }, at) => [name, value, exact.response.headers[at].value]);
  const restored = pairsOf(written).filter(([name]) => !drop.includes(name.toLowerCase())).map(([name, value]) => {
    const at = left.findIndex(([known, shown]) => known.toLowerCase() === name.toLowerCase() && shown === value);
    if (at >= 0) return [name, left.splice(at, 1)[0][2]];
    if (value.includes(MASK)) throw new Error(`Headers: the value of ${name} is masked; show secrets before changing it.`);
    return [name, value];
  });
  return joinedOf(linesOf(restored));
}

/**
 * Opens the form of a mock; `saved` is called with it after it was saved. With `captured`, the detail of a request,
 * the mock responds as that was responded to, with what is changed in the form.
 */
export async function editMock(mock, saved, { captured = null } = {}) {
  const match = matching(mock, await tunnelNames());
  const body = bodyFields(mock, captured);
  const status = input(captured?.status ?? mock?.status ?? 200, { type: "number", min: "200", max: "599", required: true });
  const before = captured ? linesOf(captured.response.headers.filter(({ name }) => !MADE_ANEW.includes(name.toLowerCase())).map(({ name, value }) => [name, value])) : linesOfJoined(mock?.headers);
  const headers = area(before, captured ? "4" : "2");
  let template = mock?.template ?? !captured;
  const delay = input(mock?.delay ?? 0, { type: "number", min: "0", max: "600000", required: true });
  const times = input(mock?.times, { type: "number", min: "1", placeholder: "no limit" });
  const fault = select([["", "none"], ["reset", "reset the connection"], ["truncate", "cut off the body"]], mock?.fault ?? "");
  const details = Boolean(mock?.delay || mock?.fault || mock?.times != null);
  const save = async () => {
    const content = await body.read();
    // A body that was changed is not compressed any more.
    const drop = captured && Object.keys(content).length ? ["content-encoding"] : [];
    const isSame = captured && headers.value === before && !drop.some((name) => before.toLowerCase().includes(`${name}:`));
    const changes = {
      ...match.read(), ...content, status: Number(status.value), ...(captured ? { captured_id: captured.id } : {}),
      ...(isSame ? {} : { headers: captured ? await changedHeaders(headers.value, captured, drop) : joinedOf(headers.value) }), template, delay: Number(delay.value),
      ...(fault.value || mock?.fault ? { fault: fault.value } : {}),
      ...(Number(times.value) === (mock?.times ?? 0) ? {} : { times: Number(times.value) }),
    };
    const now = await ask(mock?.uri ?? "/api/mocks", { method: mock?.uri ? "PATCH" : "POST", body: changes });
    announce(`Mock ${now.id} was saved`);
    saved(now);
  };
  dialog(mock?.uri ? `Mock ${mock.id}` : "New mock", make("div", {}, match.element,
    group("Response",
      make("div", { class: "fields line-fields" }, field("Status", status), body.kind), body.element, field("Headers, one on each line", headers),
      check("Replace {{ … }} in body and headers by values of the request", (yes) => {
        template = yes;
      }, { checked: template }),
      make("p", { class: "hint small-hint" }, "Values are ", VALUES.flatMap((value) => [make("code", { class: "nowrap" }, `{{ ${value} }}`), " "]))),
    make("details", { open: details }, make("summary", {}, "Delay, faults and limit"),
      make("div", { class: "fields" }, field("Delay in ms", delay), field("Fault", fault), field("Requests at most", times, "Further ones go to the local service.")))),
  [[captured ? "Turn on" : mock?.uri ? "Save" : "Add", save]], { className: "editor" });
  match.first.focus();
}

// ── Holds ────────────────────────────────────────────────────────────────────────────────────

const MAX_WAIT = 45_000;

/** Opens the form of a hold. */
export async function editHold(hold, saved) {
  const match = matching(hold, await tunnelNames());
  const wait = input((hold?.max_wait ?? MAX_WAIT) / 1000, { type: "number", min: "0.001", max: "600", step: "any", required: true });
  dialog(hold?.uri ? `Hold ${hold.id}` : "New hold", make("div", {}, match.element,
    field("Seconds until a held request goes on by itself", wait, "Services wait for a response for 60 s by default.")),
  [[hold?.uri ? "Save" : "Add", async () => {
    const changes = { ...match.read(), max_wait: Math.round(Number(wait.value) * 1000) };
    const now = await ask(hold?.uri ?? "/api/holds", { method: hold?.uri ? "PATCH" : "POST", body: changes });
    announce(`Hold ${now.id} was saved`);
    saved(now);
  }]], { className: "editor" });
  match.first.focus();
}
