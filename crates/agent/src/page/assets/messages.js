// What goes over a connection that stays open: messages of WebSockets, events, calls of gRPC.

import { hex, json, mistake } from "./body.js";
import { button, bytes, decode, make, say } from "./dom.js";
import { fieldsOf } from "./protobuf.js";
import { protoFilesButton } from "./proto_files.js";
import { ask, query } from "./server.js";
import { badge } from "./ui.js";

/** How many are kept here at once; older ones leave. */
const MAX_MESSAGES = 2000;
/** How long changes are gathered, in milliseconds. */
const PAUSE = 300;
/** How many characters stand in the line of a message. */
const LINE = 300;
/** How many bytes stand there. */
const BYTES = 32;
const SENDERS = { client: ["↑", "to the service"], server: ["↓", "to the visitor"] };
const CODES = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"];
/** What most messages of a stream are, which needs no word. */
const UNNAMED = ["text", "event", "grpc"];
const CONTROL = ["ping", "pong", "close"];

/** The name of a status of gRPC. */
export function grpcStatus(code) {
  return CODES[code] ?? String(code);
}

const TITLES = { websocket: "Messages", events: "Events", grpc: "Messages of the call" };
const KINDS = [["", "all"], ["client", "↑ to the service"], ["server", "↓ to the visitor"], ["text", "text"], ["binary", "binary"], ["control", "ping, pong, close"]];

/** Follows the messages of one request; the same element goes on while the request is drawn anew. */
class Messages {
  constructor(id, stream, reveal) {
    Object.assign(this, { id, stream, reveal, last: 0, dropped: 0, all: [], rows: new Map(), paused: false, filter: "" });
    const title = TITLES[stream];
    this.count = make("span", { class: "hint number" });
    this.pause = button("Pause", () => this.togglePause(), { class: "small", "aria-pressed": "false" });
    this.search = make("input", {
      class: "find", placeholder: "Filter", "aria-label": "Filter messages", autocomplete: "off", spellcheck: "false",
      input: () => {
        this.filter = this.search.value.toLowerCase();
        this.draw();
      },
    });
    const kinds = stream === "websocket" ? KINDS : stream === "grpc" ? KINDS.slice(0, 3) : [];
    this.kinds = make("select", { "aria-label": "Kinds of messages", hidden: !kinds.length, change: () => this.draw() }, kinds.map(([value, word]) => make("option", { value }, word)));
    this.list = make("ol", { class: "messages", tabindex: "0", "aria-label": title });
    this.nothing = make("p", { class: "hint messages-none" });
    this.element = make("section", { class: "part stream", "aria-label": title },
      make("div", { class: "tools body-tools" }, make("h3", {}, title), this.count, make("span", { class: "wide" }), this.search, this.kinds, stream === "grpc" ? protoFilesButton(() => this.again()) : null, this.pause),
      this.list, this.nothing);
    this.read();
  }

  /** Asks for what is new; called whenever the request has changed. */
  changed() {
    if (this.paused || this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      this.read();
    }, PAUSE);
  }

  async read() {
    if (this.reading) {
      this.changed();
      return;
    }
    this.reading = true;
    try {
      let page;
      do {
        page = await ask(`/inspect/data/requests/${this.id}/messages${query({ since: String(this.last), reveal: this.reveal ? "1" : "" })}`);
        this.last = page.last;
        this.dropped = page.dropped;
        this.all.push(...page.messages);
        this.all.splice(0, this.all.length - MAX_MESSAGES);
      } while (page.messages.length && !this.paused);
      this.draw();
    } catch (error) {
      say(this.count, error.message);
    }
    this.reading = false;
  }

  /** Reads everything anew: other files describe it now. */
  again() {
    Object.assign(this, { last: 0, all: [] });
    for (const element of this.rows.values()) element.remove();
    this.rows = new Map();
    this.read();
  }

  togglePause() {
    this.paused = !this.paused;
    this.pause.setAttribute("aria-pressed", this.paused);
    say(this.pause, this.paused ? "Resume" : "Pause");
    if (!this.paused) this.read();
  }

  shown() {
    const kind = this.kinds.value;
    const isKind = (message) => !kind || message.from === kind || message.kind === kind || (kind === "control" && CONTROL.includes(message.kind));
    return this.all.filter((message) => isKind(message) && (!this.filter || contentOf(message).toLowerCase().includes(this.filter)));
  }

  draw() {
    const shown = this.shown();
    const gone = this.dropped ? `, ${this.dropped} before them are not kept` : "";
    say(this.count, `${shown.length === this.all.length ? "" : `${shown.length} of `}${this.all.length}${gone}`);
    say(this.nothing, shown.length ? "" : this.all.length ? "No message matches." : "None so far.");
    this.list.hidden = !shown.length;
    const isAtEnd = this.list.scrollTop + this.list.clientHeight >= this.list.scrollHeight - 8;
    const rows = new Map(shown.map((message) => [message.index, this.rows.get(message.index) ?? row(message)]));
    for (const [index, element] of this.rows) if (!rows.has(index)) element.remove();
    let at = this.list.firstChild;
    for (const element of rows.values()) {
      if (element === at) at = at.nextSibling;
      else this.list.insertBefore(element, at);
    }
    this.rows = rows;
    if (isAtEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  /** Remembers where it is scrolled to and what has the focus, and returns what puts both back. */
  keepPlace() {
    const { scrollTop } = this.list;
    const focused = this.element.contains(document.activeElement) ? document.activeElement : null;
    return () => {
      this.list.scrollTop = scrollTop;
      focused?.focus({ preventScroll: true });
    };
  }
}

let current = null;

/** What shows the messages of a request; null where it is no stream. */
export function messagesOf({ id, stream, revealed }) {
  if (!stream) return null;
  if (current?.id === id && current.reveal === revealed) current.changed();
  else current = new Messages(id, stream, revealed);
  return current.element;
}

/** Remembers the place in the messages that are shown, and returns what puts it back. */
export function keepMessages() {
  return current?.element.isConnected ? current.keepPlace() : () => {};
}

function contentOf(message) {
  return message.message ?? message.text ?? "";
}

/** What a message is, in badges. */
function badges(message) {
  return [
    message.kind === "close" ? badge(message.code == null ? "close" : `close ${message.code}`, "warn") : UNNAMED.includes(message.kind) ? null : badge(message.kind),
    message.message_type ? badge(message.message_type.split(".").at(-1), "accent", { title: message.message_type }) : null,
    message.event ? badge(`event ${message.event}`, "accent") : null,
    message.event_id ? badge(`id ${message.event_id}`) : null,
    message.compressed ? badge("compressed, could not be read") : null,
    message.masked && !message.compressed ? badge("masked", "", { title: "Secrets in it are masked." }) : null,
    message.truncated ? badge("✂ truncated", "warn") : null,
  ].filter(Boolean);
}

function row(message) {
  const [sign, word] = SENDERS[message.from];
  const read = contentOf(message);
  const line = make("span", { class: "message-text" }, read ? read.slice(0, LINE) : message.data ? bytesOf(message.data) : "");
  const full = make("div", { class: "message-full" });
  const box = make("details", {
    toggle: () => box.open && !full.firstChild && full.append(whole(message, read)),
  }, make("summary", {},
    make("span", { class: `message-from ${message.from}`, title: word }, make("span", { "aria-hidden": "true" }, sign), make("span", { class: "unseen" }, word)),
    message.time ? make("span", { class: "hint mono nowrap" }, message.time.slice(11, 23)) : null,
    make("span", { class: "message-badges" }, badges(message)), line, make("span", { class: "hint nowrap number" }, bytes(message.size))), full);
  return make("li", { "data-index": message.index }, box);
}

/** The first bytes, as digits. */
function bytesOf(data) {
  return [...decode(data).subarray(0, BYTES)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

function whole(message, read) {
  if (message.message) {
    return make("div", {}, json(message.message), message.data ? make("details", {}, make("summary", {}, "By the numbers of the fields"), call(decode(message.data))) : null);
  }
  if (message.kind === "grpc" && message.data) return call(decode(message.data));
  if (!read) return message.data ? hex(decode(message.data)) : make("p", { class: "hint" }, message.compressed ? "It is compressed, and cannot be read here." : message.masked ? "It is no text, and holds secrets." : "It is empty.");
  return /^\s*[[{]/.test(read) && mistake(read) === null ? json(read) : make("pre", { tabindex: "0" }, read);
}

/** A message of gRPC by the numbers of its fields, and its bytes. */
function call(data) {
  const fields = fieldsOf(data);
  if (!fields) return hex(data);
  return make("div", {}, make("pre", { tabindex: "0" }, fields.join("\n") || "No fields."), make("details", {}, make("summary", {}, "Bytes"), hex(data)));
}
