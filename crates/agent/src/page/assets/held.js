// Requests that are held: shown in a list or beside one request, let go, changed, refused.

import { announce, button, bytes, decode, encode, make, say } from "./dom.js";
import { withEnds } from "./editor.js";
import { bytesOfDigits, digitsOf, linesOf, pairsOf } from "./headers.js";
import { ask, query } from "./server.js";
import { badge, dialog, facts, field, notice } from "./ui.js";

const TICK = 1000;

/** Shows beside the link to the page of rules how many requests are held. */
export function showHeld(count) {
  const link = document.querySelector('nav a[href="/inspect/rules"]');
  const known = link.querySelector(".badge");
  if (!count) known?.remove();
  else if (known) say(known, `${count} held`);
  else link.append(" ", badge(`${count} held`, "warn"));
}

/** What can be done with a held request; `done` is called after something was, `kind` is the class of the first button. */
export function heldTools(held, done, kind = "go") {
  const name = `${held.method} ${held.target}`;
  const uri = `/api/requests/held/${held.id}`;
  return [
    button("Let go", () => post(`${uri}/release`, {}, done), { class: kind, "aria-label": `Let ${name} go`, "data-act": "go" }),
    held.editable ? button("Change…", () => change(held, done), { "aria-label": `Change ${name}`, "data-act": "change" }) : null,
    button("Refuse…", () => refuse(uri, name, done), { class: "danger", "aria-label": `Refuse ${name}`, "data-act": "refuse" }),
  ];
}

/** How long a request is still held, which `countDown` renews. */
export function timeLeft(held) {
  const element = make("span", { class: "hint time-left", "data-until": held.until });
  drawTimeLeft(element);
  return element;
}

function drawTimeLeft(element) {
  const seconds = Math.max(0, Math.ceil((Date.parse(element.dataset.until) - Date.now()) / 1000));
  say(element, `goes on by itself in ${seconds} s`);
}

setInterval(() => document.querySelectorAll(".time-left").forEach(drawTimeLeft), TICK);

let bar = { id: null, element: null };

/** What can be done with a request that is looked at, while it is held; the same element stays until it is not. */
export function heldBar({ id, held: isHeld }, done) {
  if (!isHeld) bar = { id: null, element: null };
  else if (bar.id !== id) {
    bar = { id, element: make("div", { class: "held-bar", role: "group", "aria-label": "Held request" }) };
    fill(bar, done);
  }
  return bar.element;
}

async function fill({ id, element }, done) {
  const all = await ask("/inspect/data/held").catch(() => []);
  const held = all.find((one) => one.id === id);
  if (held) element.replaceChildren(make("strong", {}, `Held by ${held.hold}`), timeLeft(held), make("span", { class: "wide" }), ...heldTools(held, done, "strong").filter(Boolean));
}

/** The list of held requests; rows stay as they are while others come and go. */
export class HeldList {
  constructor(done) {
    this.done = done;
    this.rows = new Map();
    this.title = make("h2", { id: "held-title", tabindex: "-1" });
    this.all = button("Let all go", () => post("/api/requests/held", {}, done), { "data-act": "all" });
    this.list = make("ul", { class: "held" });
    this.element = make("section", { class: "held-part", "aria-labelledby": "held-title", hidden: true },
      make("div", { class: "tools" }, this.title, make("span", { class: "wide" }), this.all), this.list);
  }

  draw(all) {
    const title = `${all.length} ${all.length === 1 ? "request is held" : "requests are held"}`;
    if (all.length && this.title.textContent !== title) announce(title);
    say(this.title, title);
    this.all.hidden = all.length < 2;
    const hadFocus = this.list.contains(document.activeElement);
    const kept = new Set(all.map(({ id }) => id));
    for (const [id, row] of this.rows) {
      if (kept.has(id)) continue;
      row.remove();
      this.rows.delete(id);
    }
    for (const held of all) {
      if (this.rows.has(held.id)) continue;
      const row = this.row(held);
      this.rows.set(held.id, row);
      this.list.append(row);
    }
    this.element.hidden = !all.length;
    // The next one is where the keyboard goes on, not the top of the page.
    if (hadFocus && !this.list.contains(document.activeElement)) (this.list.querySelector("button") ?? document.querySelector("main button"))?.focus();
  }

  row(held) {
    const { id, method, target, tunnel, source, hold, request } = held;
    return make("li", { class: "held-row", "data-id": id },
      make("div", { class: "held-text" },
        make("a", { class: "held-target", href: `/inspect/http/${id}` }, make("span", { class: "method" }, method), ` ${target}`),
        make("div", { class: "hint" }, [`tunnel ${tunnel}`, source ? `from ${source}` : null, request.length ? `${bytes(request.length)} of body` : null, `hold ${hold}`].filter(Boolean).join(" · "))),
      timeLeft(held), make("div", { class: "tools" }, heldTools(held, this.done)));
  }
}

async function post(uri, body, done) {
  try {
    await ask(uri, { method: "POST", body });
  } catch (error) {
    notice(error.message);
  }
  done();
}

function refuse(uri, name, done) {
  const status = make("input", { type: "number", value: "403", min: "400", max: "599", required: true });
  const body = make("textarea", { rows: "4", class: "mono", spellcheck: "false" });
  dialog("Refuse the request", make("div", {}, make("p", {}, make("code", {}, name)), field("Status", status, "From 400 to 599."), field("Body", body)),
    [["Refuse", async () => {
      await ask(`${uri}/refuse`, { method: "POST", body: { status: Number(status.value), ...(body.value ? { body: body.value } : {}) } });
      done();
    }, "danger"]]);
}

function change(held, done) {
  const message = held.request;
  const original = message.masked || !message.editable ? null : message.text ?? message.raw_text;
  const digits = message.masked || original !== null ? null : digitsOf(decode(message.body));
  const before = linesOf(message.headers.map(({ name, value }) => [name, value]));
  const input = (value) => make("input", { value, required: true, autocomplete: "off", spellcheck: "false", class: "mono" });
  const method = input(held.method);
  const target = input(held.target);
  const headers = make("textarea", { rows: "7", class: "mono", spellcheck: "false" });
  headers.value = before;
  const body = make("textarea", { rows: "8", class: "mono", spellcheck: "false", disabled: message.masked });
  body.value = original ?? digits ?? "";
  const secrets = message.masked ? button("Show secrets", async () => {
    try {
      const all = await ask(`/inspect/data/held${query({ reveal: "1" })}`);
      const exact = all.find(({ id }) => id === held.id);
      if (!exact) throw new Error("The request is not held any more.");
      box.close();
      change(exact, done);
    } catch (error) {
      notice(error.message);
    }
  }, { class: "small" }) : null;
  const box = dialog("Change the request", make("div", {}, facts([["Held by", held.hold], ["Tunnel", held.tunnel], ["Left", timeLeft(held)]]),
    make("div", { class: "fields line-fields" }, field("Method", method), field("Path and query", target)),
    field("Headers, one on each line", headers, "Masked values are sent as they were. The length of the body is computed."),
    field("Body", body, message.masked ? "It has secrets, and is sent as it is." : digits !== null ? "It is not text: these are its bytes as hexadecimal digits." : null), secrets),
  [["Send on", async () => {
    const edits = {};
    if (method.value !== held.method) edits.method = method.value;
    if (target.value !== held.target) edits.target = target.value;
    if (headers.value !== before) edits.headers = pairsOf(headers.value);
    if (original !== null && body.value !== original.replace(/\r\n?/g, "\n")) edits.body_text = withEnds(body.value, original);
    if (digits !== null && body.value !== digits) edits.body = encode(bytesOfDigits(body.value));
    await ask(`/inspect/data/held/${held.id}/release`, { method: "POST", body: edits });
    done();
  }]], { className: "editor" });
}
