// Everything about one request.

import { cut, hex, pairs, readable, show, unread } from "./body.js";
import { button, bytes, decode, make, text, time } from "./dom.js";
import { difference } from "./difference.js";
import { marks } from "./list.js";
import { facts as pairsOf, tabs } from "./ui.js";

/** Which tab of each part was looked at last; the next request opens with the same. */
const looked = { Request: "Headers", Response: "Headers" };

/** What the service has told of the way to the tunnel. */
const VIA = {
  endpoint: "the tunnel’s own address",
  https_edge: "a route of an HTTPS edge, by the tunnel’s labels",
  edge: "an edge, by the tunnel’s labels",
};

/**
 * Shows a request. `actions` has `replay`, `edit`, `copy`, `reveal`, `open` and `back`;
 * `original` is the detail of what it repeats.
 */
export function render(place, detail, actions, original) {
  const status = detail.response ? detail.response.line.split(" ").slice(1).join(" ") : "";
  place.replaceChildren(
    make("div", { class: "title" },
      button("← List", actions.back, { class: "back" }),
      make("h2", {}, `${detail.method} ${detail.target}`),
      make("p", { class: `outcome s${Math.floor((detail.status ?? 0) / 100)}` }, status,
        ...marks(detail).map(([sign, word]) => make("span", { class: "mark" }, ` ${sign} ${word}`)))),
    tools(detail, actions),
    detail.error ? make("p", { class: "problem" }, `⚠ ${detail.error}`) : "",
    facts(detail, actions),
    make("div", { class: "parts" },
      part("Request", detail.request, detail),
      part("Response", detail.response, detail)),
    original ? compared(original, detail) : "",
  );
}

function tools(detail, actions) {
  const copies = [["curl", "curl"], ["requests", "Python: requests"], ["ginnel", "Python: ginnel"], ["raw", "raw"], ["url", "URL"]];
  const copy = make("select", {
    "aria-label": "Copy the request as",
    change: (event) => {
      actions.copy(event.target.value);
      event.target.value = "";
    },
  }, make("option", { value: "" }, "Copy as…"), ...copies.map(([value, name]) => make("option", { value }, name)));
  return make("div", { class: "tools" },
    button("↻ Replay", actions.replay, { id: "replay", "aria-keyshortcuts": "r" }),
    button("Edit and replay", actions.edit, { id: "edit", "aria-keyshortcuts": "e" }),
    copy,
    make("a", { href: actions.har, download: `${detail.id}.har`, class: "button" }, "HAR"),
    button(detail.revealed ? "Hide secrets" : "Show secrets", actions.reveal, { id: "reveal", "aria-pressed": detail.revealed }));
}

function facts(detail, actions) {
  const link = (id) => make("a", {
    href: `/inspect/http/${id}`,
    click: (event) => {
      event.preventDefault();
      actions.open(id);
    },
  }, id);
  const known = [
    ["Arrived", detail.start.replace("T", " ")],
    ["Took", time(detail.took) || "not complete yet"],
    ["From", detail.source],
    ["Tunnel", detail.tunnel],
    VIA[detail.via] ? ["Received via", VIA[detail.via]] : null,
    detail.edge_id ? ["Edge", detail.edge_id] : null,
    detail.route_id ? ["Route", detail.route_id] : null,
    ["Sizes", `${bytes(detail.received)} in, ${bytes(detail.sent)} out`],
    ["Identifier", detail.id],
    detail.replay_of ? ["Replay of", link(detail.replay_of)] : null,
    detail.replays.length ? ["Replays", make("span", {}, detail.replays.flatMap((id) => [link(id), " "]))] : null,
  ];
  return pairsOf(known);
}

function part(name, part, detail) {
  const title = make("h3", { id: `${name}-title` }, name);
  if (!part) {
    return make("section", { class: "part", "aria-labelledby": title.id }, title,
      make("p", { class: "hint" }, detail.error ? "No response." : "No response yet."));
  }
  const target = detail.target;
  const query = target.includes("?") ? target.slice(target.indexOf("?") + 1) : "";
  const entries = [
    ["Headers", () => fields(part.headers)],
    query && name === "Request" ? ["Query", () => pairs(new URLSearchParams(query))] : null,
    ["Body", () => show(part)],
    part.trailers.length > 0 ? ["Trailers", () => fields(part.trailers)] : null,
    ["Raw", () => raw(part)],
    ["Hex", () => hex(decode(part.body))],
  ].filter(Boolean);
  return make("section", { class: "part", "aria-labelledby": title.id }, title,
    make("p", { class: "line" }, part.line),
    tabs(name, entries, looked[name], (title) => {
      looked[name] = title;
    }));
}

function fields(list) {
  return make("table", { class: "pairs" }, make("tbody", {}, list.map((field) =>
    make("tr", {},
      make("th", { scope: "row" }, field.name),
      make("td", { class: field.secret ? "secret" : null }, field.value)))));
}

function raw(part) {
  const head = [part.line, ...part.headers.map((field) => `${field.name}: ${field.value}`)].join("\n");
  if (part.unread && part.masked) return make("pre", { tabindex: "0" }, `${head}\n\n(${unread(part)})`);
  const body = text(part.body ? decode(part.body) : readable(part), cut(part));
  return make("pre", { tabindex: "0" }, `${head}\n\n${body ?? `(${part.kept} bytes that are not text; see Hex)`}`);
}

function compared(original, detail) {
  return make("section", { class: "compared", "aria-labelledby": "compared" },
    make("h3", { id: "compared" }, "Compared with the original"),
    make("div", { class: "parts" },
      make("section", { class: "part" }, make("h4", {}, "Request"), difference(original.request, detail.request)),
      make("section", { class: "part" }, make("h4", {}, "Response"), difference(original.response, detail.response))));
}
