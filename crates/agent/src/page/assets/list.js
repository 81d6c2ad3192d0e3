// The columns of the list of requests, and the marks of a request.

import { age, bytes, make, time } from "./dom.js";
import { recall, remember, badge, level, sign } from "./ui.js";
import { grpcStatus } from "./messages.js";
import { Table } from "./table.js";

/** Marks: a sign and a word. */
export function marks(request) {
  const found = [];
  if (request.status == null && !request.error) found.push(["…", "pending"]);
  if (request.policy) found.push(["§", "rules of a policy acted on it"]);
  if (request.pinned) found.push(["★", "pinned"]);
  if (request.note) found.push(["✐", `note: ${request.note}`]);
  if (request.imported) found.push(["⇩", "imported"]);
  if (request.mock) found.push(["◆", "mock"]);
  if (request.held) found.push(["‖", "held now"]);
  else if (request.hold) found.push(["‖", "was held"]);
  if (request.edited) found.push(["✎", "changed while held"]);
  if (request.replay_of) found.push(["↻", "replay"]);
  if (request.truncated) found.push(["✂", "truncated"]);
  if (request.unanswered) found.push(["⚠", "no response from the local service"]);
  return found;
}

/** Kinds of content, by the beginning or end of a media type: a sign and a word. */
const KINDS = [
  [/json$/, "{}", "JSON"], [/xml$|^text\/html/, "<>", "markup"], [/^image\//, "▣", "image"],
  [/^(audio|video)\//, "▶", "audio or video"], [/^text\/event-stream/, "⇣", "event stream"],
  [/^application\/grpc/, "⇄", "gRPC"], [/form/, "▤", "form"], [/^text\/|javascript$/, "¶", "text"], [/./, "▪", "binary"],
];

/** What a request carried, as a sign. */
export function kind(request) {
  if (request.stream === "websocket" || request.status === 101) return sign("⇅", "WebSocket");
  if (request.stream === "events") return sign("⇣", "event stream");
  if (request.stream === "grpc") return sign("⇄", "gRPC");
  const type = request.media_type;
  const found = type ? KINDS.find(([pattern]) => pattern.test(type)) : null;
  return found ? sign(found[1], found[2]) : "";
}

/** Whether times are shown as how long ago. */
let relative = recall("relative", false);

export function timesAreRelative() {
  return relative;
}

function when(request) {
  const at = request.start;
  return make("time", { datetime: at, title: at.replace("T", " ") }, relative ? age(Date.parse(at)) : at.slice(11, 23));
}

const COLUMNS = [
  { id: "time", title: "Time", width: 6.8, rank: 2, cell: when, sort: (request) => request.start },
  { id: "method", title: "Method", width: 3.7, cell: (request) => badge(request.method, "method"), sort: (request) => request.method },
  { id: "target", title: "Path", width: 18, flex: true, cell: path, sort: (request) => request.target },
  { id: "kind", title: "Type", width: 2.6, rank: 6, off: true, cell: kind, sort: (request) => request.media_type ?? "" },
  { id: "status", title: "Status", width: 4.8, cell: status, sort: (request) => request.status },
  { id: "took", title: "Duration", width: 4.6, end: true, rank: 1, cell: (request) => time(request.took), sort: (request) => request.took },
  { id: "size", title: "Size", width: 8.4, end: true, rank: 3, cell: (request) => `${bytes(request.received)} / ${bytes(request.sent)}`, sort: (request) => request.received + request.sent },
  { id: "source", title: "Source", width: 7.2, rank: 5, cell: (request) => request.source, sort: (request) => request.source },
  { id: "tunnel", title: "Tunnel", width: 5, rank: 4, cell: (request) => request.tunnel, sort: (request) => request.tunnel },
];

/** The path, and behind it the marks, which are never cut off. */
function path(request) {
  const found = marks(request).map(([character, word]) => sign(character, word));
  return [
    make("a", { href: `/inspect/http/${request.id}`, tabindex: "-1", title: request.target }, request.target),
    found.length ? make("span", { class: "marks" }, found) : null,
  ];
}

/** How it ended: what failed first, and in red. */
function status(request) {
  if (request.grpc_status) {
    return badge(`gRPC ${request.grpc_status}`, "bad", { title: `${grpcStatus(request.grpc_status)}, with HTTP status ${request.status}` });
  }
  if (request.status == null) return request.error ? badge("failed", "bad", { title: request.error }) : "";
  const kind = request.failed ? "bad" : `${level(request.status)} s${Math.floor(request.status / 100)}`;
  return badge(String(request.status), kind, { title: request.error });
}

/** The list of requests. */
export function makeList(place, acts) {
  const list = new Table({
    place, name: "requests", label: "Captured requests, newest first", columns: COLUMNS,
    key: (request) => request.id, newestFirst: true, ...acts,
  });
  setInterval(() => relative && !document.hidden && list.refresh("time"), 1000);
  return list;
}

/** Shows times the other way. */
export function turnTimes(list) {
  relative = !relative;
  remember("relative", relative);
  list.refresh("time");
}
