// Everything about one request.

import { hex, pairs, show, unread } from "./body.js";
import { FORMS } from "./copies.js";
import { button, bytes, decode, make, time } from "./dom.js";
import { difference } from "./difference.js";
import { marks } from "./list.js";
import { grpcStatus } from "./messages.js";
import { badge, facts as pairsOf, level, menu, recall, remember, tabs } from "./ui.js";

/** As crates/api/src/mask writes it. */
const MASK = "••••••";

/** How many replays of a request are linked. */
const MAX_REPLAYS = 20;

/** Which tab of each part was chosen last; the next request opens with the same. */
const looked = recall("tabs", {});

/** How a request came to the tunnel, by what the service says. */
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
      make("h2", {}, make("span", { class: "method" }, detail.method), ` ${detail.target}`),
      make("p", { class: "outcome" },
        detail.grpc_status == null ? null : badge(`gRPC ${detail.grpc_status} ${grpcStatus(detail.grpc_status)}`, detail.grpc_status ? "bad" : "good"),
        status ? badge(status, detail.grpc_status ? "" : detail.failed ? "bad" : `${level(detail.status)} s${Math.floor((detail.status ?? 0) / 100)}`) : null,
        ...marks({ ...detail, note: null }).map(([sign, word]) => make("span", { class: "mark" }, ` ${sign} ${word}`)))),
    tools(detail, actions),
    actions.held ?? "",
    detail.error ? make("p", { class: "problem" }, `⚠ ${detail.error}`) : "",
    detail.note ? make("p", { class: "request-note", id: "note" }, detail.note) : "",
    facts(detail, actions),
    rules(detail.rules) ?? "",
    timing(detail) ?? "",
    actions.messages ?? "",
    make("div", { class: "parts" },
      part("Request", detail.request, detail, actions),
      part("Response", detail.response, detail, actions)),
    original ? compared(original, detail) : "",
  );
}

/** How much went in and out. */
export function sizes({ received, sent, messages }) {
  return `${bytes(received)} in, ${bytes(sent)} out${messages == null ? "" : `, ${messages} messages`}`;
}

function tools(detail, actions) {
  const copy = make("select", {
    "aria-label": "Copy the request as",
    change: (event) => {
      actions.copy(event.target.value);
      event.target.value = "";
    },
  }, make("option", { value: "" }, "Copy as…"), ...FORMS.map(([value, name]) => make("option", { value }, name)));
  return make("div", { class: "tools" },
    button("↻ Replay", actions.replay, { id: "replay", class: detail.held ? null : "strong", "aria-keyshortcuts": "r" }),
    button("Edit and replay", actions.edit, { id: "edit", "aria-keyshortcuts": "e" }),
    button("★ Pin", actions.pin, { id: "pin", "aria-keyshortcuts": "p", "aria-pressed": detail.pinned, title: "Newer requests do not displace what is pinned" }),
    button(detail.note ? "✐ Change the note…" : "✐ Note…", actions.note, { id: "write-note", "aria-keyshortcuts": "n" }),
    menu("More", () => [
      ["Replay several times…", actions.repeat],
      ...(detail.response && !detail.response.truncated ? [["Respond with this…", actions.mock, { title: "A mock with this response, for requests like this one" }]] : []),
      ["Hold requests like this…", actions.hold],
    ], { id: "more-actions" }),
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
    ["Arrived", detail.start.replace("T", " ").replace(/([+-]\d\d:\d\d|Z)$/, " $1")],
    ["Took", time(detail.took) || "not complete yet"],
    ["From", detail.source],
    ["Tunnel", detail.tunnel],
    VIA[detail.via] ? ["Received via", VIA[detail.via]] : null,
    detail.edge_id ? ["Edge", detail.edge_id] : null,
    detail.route_id ? ["Route", detail.route_id] : null,
    ["Sizes", make("span", { id: "sizes" }, sizes(detail))],
    ["Identifier", detail.id],
    detail.imported ? ["Imported", "from an archive: no visitor sent it"] : null,
    detail.mock ? ["Response by", make("a", { href: "/inspect/rules" }, `mock ${detail.mock}`)] : null,
    detail.hold ? ["Held by", make("a", { href: "/inspect/rules" }, detail.hold)] : null,
    detail.replay_of ? ["Replay of", link(detail.replay_of)] : null,
    detail.schedule ? ["Sent by", detail.schedule] : null,
    detail.replays.length ? ["Replays", make("span", {}, replays(detail.replays).flatMap((id) => [link(id), " "]), more(detail.replays))] : null,
  ];
  return pairsOf(known);
}

/** The last replays; a schedule makes many. */
const replays = (all) => all.slice(-MAX_REPLAYS);
const more = ({ length }) => (length > MAX_REPLAYS ? `and ${length - MAX_REPLAYS} before` : null);

/** The rules of policies that acted on the request before it came; null where none did. */
function rules(list) {
  if (!list.length) return null;
  return make("section", { class: "deciding", "aria-labelledby": "deciding" },
    make("h3", { id: "deciding" }, "Rules that acted on this request"),
    make("ol", {}, list.map(({ module, index, name, expressions, actions }) => make("li", {},
      make("p", {}, make("strong", {}, name || `Rule ${index + 1}`),
        make("span", { class: "hint" }, ` ${module}, rule ${index + 1} for requests`), " ",
        ...actions.flatMap((action) => [badge(action, ""), " "])),
      expressions?.length ? expressions.map((text) => make("pre", { tabindex: "0", "aria-label": "Expression" }, text))
        : make("p", { class: "hint" }, "No expression is known: there is none, it is long, or the rule is one of an edge.")))),
    make("p", { class: "hint" }, "What a policy denies never comes to the agent; the service’s console and its events have it."));
}

const STAGES = [["waited", "waited"], ["connected", "connected"], ["first_byte", "first byte"], ["body", "body"]];

/** How long each stage took, as a bar; null where that was not recorded. */
function timing({ timings, stream }) {
  if (!timings) return null;
  const all = STAGES.reduce((sum, [key]) => sum + (timings[key] ?? 0), 0);
  const share = (key) => (all ? ((timings[key] ?? 0) / all) * 100 : 0);
  // What would be thinner than a line is shown by its number alone.
  const bar = make("div", { class: "timing-bar", "aria-hidden": "true" }, STAGES.filter(([key]) => share(key) >= 0.5).map(([key]) => {
    const stage = make("span", { class: key });
    stage.style.flexGrow = share(key);
    return stage;
  }));
  return make("section", { class: "timing", "aria-label": "Timing" }, bar,
    make("p", { class: "timing-key" }, STAGES.map(([key, word]) =>
      make("span", {}, make("i", { class: key, "aria-hidden": "true" }), `${key === "body" && stream === "websocket" ? "open" : word} ${time(timings[key] ?? 0)}`))));
}

function part(name, part, detail, actions) {
  const title = make("h3", { id: `${name}-title` }, name);
  if (!part) {
    return make("section", { class: "part", "aria-labelledby": title.id }, title,
      make("p", { class: "hint" }, detail.error ? "No response." : "No response yet."));
  }
  const target = detail.target;
  const query = target.includes("?") ? target.slice(target.indexOf("?") + 1) : "";
  const values = new URLSearchParams(query);
  const secret = (kind) => (at) => actions.secret(name.toLowerCase(), kind, at);
  const entries = [
    ["Body", () => show(part), part.length ? bytes(part.length) : null],
    ["Headers", () => fields(part.headers, secret("headers")), part.headers.length],
    query && name === "Request" ? ["Query", () => pairs(values), [...values].length] : null,
    part.trailers.length > 0 ? ["Trailers", () => fields(part.trailers, secret("trailers")), part.trailers.length] : null,
    ["Raw", () => raw(part)],
    ["Hex", () => hex(decode(part.body))],
  ].filter(Boolean);
  // What there is to see, until somebody has chosen: a request without a body has its headers.
  const first = part.length || part.coming ? "Body" : query && name === "Request" ? "Query" : "Headers";
  const chosen = entries.some(([known]) => known === looked[name]) ? looked[name] : first;
  let isDrawn = false;
  return make("section", { class: "part", "aria-labelledby": title.id }, title,
    make("p", { class: "line" }, part.line),
    tabs(name, entries, chosen, (shown) => {
      if (isDrawn) {
        looked[name] = shown;
        remember("tabs", looked);
      }
      isDrawn = true;
    }));
}

/** Headers; `secret` gets the value of one that is masked. */
function fields(list, secret) {
  return make("table", { class: "pairs" }, make("tbody", {}, list.map((field, at) => {
    const value = make("span", {}, field.value);
    const isMasked = field.secret && field.value.includes(MASK);
    const reveal = isMasked ? button("Show", async () => {
      value.textContent = await secret(at);
      reveal.remove();
    }, { class: "small quiet reveal", "aria-label": `Show the value of ${field.name}` }) : null;
    return make("tr", {}, make("th", { scope: "row" }, field.name),
      make("td", { class: field.secret ? "secret" : null }, value, reveal));
  })));
}

function raw(part) {
  const head = [part.line, ...part.headers.map((field) => `${field.name}: ${field.value}`)].join("\n");
  if (part.hidden) return make("pre", { tabindex: "0" }, `${head}\n\n(${unread(part)})`);
  const body = part.text ?? part.raw_text ?? `(${part.kept} bytes that are not text; see Hex)`;
  return make("pre", { tabindex: "0" }, `${head}\n\n${body}`);
}

function compared(original, detail) {
  return make("section", { class: "compared", "aria-labelledby": "compared" },
    make("h3", { id: "compared" }, "Compared with the original"),
    make("div", { class: "parts" },
      make("section", { class: "part" }, make("h4", {}, "Request"), difference(original.request, detail.request)),
      make("section", { class: "part" }, make("h4", {}, "Response"), difference(original.response, detail.response))));
}
