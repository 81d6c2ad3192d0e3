// Events of public traffic as they happen, and what decided on each.

import { button, make, say, time } from "./dom.js";
import { hostOf, matches } from "./event_filter.js";
import { follow } from "./session.js";
import { query } from "./server.js";
import { Table } from "./table.js";
import { badge, empty, facts, field, level } from "./ui.js";
import { at } from "./views.js";

/** How many events a page keeps. */
const MOST = 10_000;
const AGAIN = 2000;
const FIELDS = [
  ["host", "Host", "part of it"], ["path", "Path", "part of it"], ["status", "Status", "404 or 5xx"], ["edge", "Edge or route", "identifier"],
  ["rule", "Rule", "part of it"], ["module", "Module or action", "such as deny"], ["source", "Source", "IP or CIDR"],
];

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const decider = (event) => event.rule || event.action || event.module || "";

const COLUMNS = [
  { id: "time", title: "Time", width: 5, rank: 3, cell: ({ time: text }) => make("time", { datetime: text, title: text }, clock.format(new Date(text))), sort: ({ time: text }) => text },
  { id: "status", title: "Status", width: 4, cell: ({ status, proto }) => (status ? badge(String(status), level(status)) : badge(proto)), sort: ({ status }) => status },
  { id: "method", title: "Method", width: 4.5, rank: 2, cell: ({ method }) => method ?? "", sort: ({ method }) => method },
  { id: "host", title: "Host", width: 10, flex: true, rank: 1, cell: ({ host }) => host ?? "", sort: ({ host }) => host },
  { id: "path", title: "Path", width: 10, flex: true, cell: ({ path }) => path ?? "", sort: ({ path }) => path },
  { id: "decided", title: "Decided by", width: 9, rank: 4, cell: decider, sort: decider },
  { id: "source", title: "Source", width: 9, rank: 5, cell: ({ peer }) => hostOf(peer), sort: ({ peer }) => hostOf(peer) },
  { id: "took", title: "Took", width: 5, end: true, rank: 6, cell: ({ duration_ms: took }) => time(took), sort: ({ duration_ms: took }) => took },
  { id: "node", title: "Node", width: 7, rank: 8, off: true, cell: ({ node }) => node ?? "", sort: ({ node }) => node },
  { id: "request", title: "Request", width: 16, rank: 9, off: true, cell: ({ request_id: id }) => id ?? "" },
];

/** What is known of one event. */
function detail(event) {
  const link = (resource, id) => id && make("a", { class: "mono", href: resource ? at(resource, id) : at("id", id) }, id);
  const edge = { edgtcp: "edges.tcp", edgtls: "edges.tls" }[event.edge_id?.split("_")[0]] ?? "edges.https";
  const decided = [event.module && ["Module", event.module], event.rule && ["Rule", event.rule], event.expressions?.length && ["If", make("ul", { class: "plain" }, event.expressions.map((it) => make("li", {}, make("code", {}, it))))], event.action && ["Action", event.action], event.code && ["Code", event.code]].filter(Boolean);
  return make("div", {},
    make("h2", {}, event.method ? `${event.method} ${event.path ?? ""}` : `Connection, ${event.proto}`),
    make("p", {}, event.status ? badge(String(event.status), level(event.status)) : null, ` ${event.host ?? ""}`),
    decided.length ? make("section", {}, make("h3", {}, "What decided"), facts(decided))
      : make("p", { class: "hint" }, "No module or rule decided: it went to the backend."),
    make("h3", {}, "The way"), facts([
      ["Edge", link(edge, event.edge_id) ?? "the address of an agent"],
      event.route_id && ["Route", make("a", { class: "mono", href: at("edges.https", event.edge_id, "routes", event.route_id) }, event.route_id)],
      event.backend_id && ["Backend", link(null, event.backend_id)],
    ]),
    make("h3", {}, "The visitor"), facts([
      ["Source", event.peer], ["Protocol", event.proto], ["Time", event.time.replace("T", " ").replace("Z", " UTC")], ["Took", time(event.duration_ms)],
      event.request_id && ["Request", event.request_id], event.node && ["Node", event.node],
      event.received_bytes != null && ["Received", `${event.received_bytes} B`], event.sent_bytes != null && ["Sent", `${event.sent_bytes} B`],
    ]),
    event.logs?.length ? make("section", {}, make("h3", {}, "Logs"), make("pre", {}, event.logs.map((it) => JSON.stringify(it, null, 2)).join("\n"))) : null);
}

/** The view; it follows traffic until the signal says that another view is shown. */
export function trafficView({ signal, parameters }) {
  const state = make("span", { role: "status", class: "hint" });
  const problem = make("p", { class: "problem", role: "alert" });
  const pane = make("aside", { class: "detail", "aria-label": "The event", tabindex: "-1", hidden: true });
  const place = make("div", { class: "list-place" });
  const nothing = make("div", {});
  const inputs = new Map(FIELDS.map(([name, title, hint]) => [name, make("input", { type: "search", placeholder: hint, spellcheck: "false", value: parameters.get(name) ?? "", "aria-label": title })]));
  let [number, missed, paused, held, following] = [0, 0, false, [], null];
  // All that has come since the view was opened, also what the filter of now does not show.
  let [seen, applied] = [[], {}];
  const written = () => Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()]));

  const table = new Table({
    place, name: "console.traffic", label: "Traffic", columns: COLUMNS, key: ({ key }) => key, href: () => "#/traffic", newestFirst: true,
    choose: (key) => {
      table.look(key);
      pane.hidden = false;
      pane.replaceChildren(button("Close", () => {
        close();
        table.grid.focus();
      }, { class: "small quiet closer" }), detail(table.rows.get(key)));
    },
    open: () => pane.focus(),
  });
  table.grid.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[event.key];
    if (event.target !== table.grid) return;
    if (step) {
      event.preventDefault();
      table.move(step);
    } else if (event.key === "Enter" && table.chosen) pane.focus();
  });
  const close = () => {
    pane.hidden = true;
    table.look(null);
  };
  pane.addEventListener("keydown", (event) => event.key === "Escape" && pane.querySelector("button").click());

  const tell = (word) => {
    say(state, `${word} · ${table.count} shown${missed ? ` · ${missed} missed` : ""}${paused && held.length ? ` · ${held.length} waiting` : ""}`);
    place.hidden = !table.count;
    nothing.hidden = table.count > 0;
    if (table.count) return;
    const isFiltered = Object.values(applied).some(Boolean);
    nothing.replaceChildren(isFiltered
      ? empty("Nothing matches the filter", `${seen.length ? `None of the ${seen.length} that came so far does. ` : ""}What matches appears here as soon as it is decided.`)
      : empty("Waiting for traffic", "Every request and connection of a visitor appears here as soon as it is decided. Nothing is recorded while nobody looks."));
  };
  const add = (events) => {
    // Names of rows ascend in the order of arrival.
    const rows = events.map((event) => ({ ...event, key: String((number += 1)).padStart(12, "0") }));
    seen = seen.concat(rows).slice(-MOST);
    table.put(rows);
    if (table.count > MOST) table.drop([], table.order[table.count - MOST]);
  };
  const clear = () => {
    seen = [];
    table.clear();
    close();
  };
  /** Shows of what has come what the filter says. */
  const filter = (values) => {
    const [shown, { chosen }] = [seen.filter((event) => matches(event, values)), table];
    table.clear();
    table.put(shown);
    if (chosen && table.rows.has(chosen)) table.look(chosen);
    else close();
  };
  const received = (update) => {
    if (update) {
      missed += update.missed;
      if (paused) held = held.concat(update.events).slice(-MOST);
      else add(update.events);
    }
    tell(paused ? "Paused" : "Live");
  };
  const pause = button("Pause", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", paused);
    say(pause, paused ? "Resume" : "Pause");
    if (!paused) add(held.splice(0));
    tell(paused ? "Paused" : "Live");
  }, { "aria-pressed": "false" });

  const start = async () => {
    following?.abort();
    const own = new AbortController();
    following = own;
    signal.addEventListener("abort", () => own.abort(), { once: true });
    const values = written();
    applied = values;
    history.replaceState(null, "", `#/traffic${query(values)}`);
    add(held.splice(0));
    filter(values);
    missed = 0;
    say(problem, "");
    tell("Connecting");
    while (!own.signal.aborted) {
      try {
        await follow(`events${query(values)}`, own.signal, received);
      } catch (error) {
        if (own.signal.aborted) return;
        tell("Not live");
        if (error.status >= 400 && error.status < 500) {
          say(problem, error.message);
          nothing.hidden = true;
          return;
        }
        say(state, `${error.message} Trying again…`);
        await new Promise((done) => { setTimeout(done, AGAIN); });
      }
    }
  };
  start();
  const form = make("form", { class: "filters", role: "search", "aria-label": "Filter events", submit: (event) => {
    event.preventDefault();
    start();
  } }, FIELDS.map(([name, title]) => field(title, inputs.get(name))),
  make("div", { class: "tools" }, make("button", { class: "strong" }, "Filter"), button("No filter", () => {
    for (const input of inputs.values()) input.value = "";
    start();
  })));
  return make("div", { class: "view tall" },
    make("div", { class: "view-head" }, make("div", {}, make("h1", {}, "Traffic"), state),
      make("div", { class: "tools" }, pause, button("Clear", () => {
        clear();
        tell(paused ? "Paused" : "Live");
      }), table.columnMenu())),
    make("details", { class: "filter-box", open: matchMedia("(min-width: 60rem)").matches || [...parameters].length > 0 }, make("summary", {}, "Filter"), form), problem, nothing, make("div", { class: "beside" }, place, pane));
}
