// The status page: looked at every second, with plots of what happened since it was opened.

import { announce, button, byId, bytes, make, say, time } from "./dom.js";
import { showOutage, showState } from "./outage.js";
import { TimePlot, brief } from "./plot.js";
import { ask } from "./server.js";

const PAUSE = 1000;
const SAMPLES = 120;

const history = new Map();
const cards = new Map();
const parts = {};

function facts(name) {
  const element = make("dl", { class: "facts", id: name });
  parts[name] = element;
  return element;
}

function setUp() {
  parts.tunnels = make("div", { class: "cards" });
  parts.meter = make("meter", { min: "0", max: "1", high: "0.9", "aria-label": "Memory for captured requests" });
  parts.room = make("p", {});
  parts.file = make("p", { id: "file" });
  parts.failures = make("ol", { class: "failures" });
  byId("status").replaceChildren(
    make("section", {}, make("h2", {}, "Session"), facts("session")),
    make("section", {}, make("h2", {}, "Tunnels"), parts.tunnels, make("h3", {}, "Start a tunnel"), starting()),
    make("section", {}, make("h2", {}, "Captured requests"), parts.meter, parts.room, parts.file),
    make("section", {}, make("h2", {}, "Options in effect"), facts("options")),
    make("section", {}, make("h2", {}, "Recent errors"), parts.failures),
  );
  show(JSON.parse(byId("first").textContent));
  setTimeout(look, PAUSE);
}

async function look() {
  try {
    show(await ask("/inspect/data/status"));
  } catch (error) {
    showState(null);
    showOutage(null);
  }
  setTimeout(look, PAUSE);
}

function show(status) {
  showState(status.state);
  showOutage(status);
  list(parts.session, [
    ["State", session(status)],
    ["Region", status.region || "none"],
    ["Latency", status.latency == null ? "not measured yet" : time(status.latency)],
    ...(status.nodes.length ? [["Nodes", nodes(status.nodes)]] : []),
    ["Reconnects", String(status.reconnects)],
    ["Uptime", duration(status.uptime)],
    ["Agent version", status.version],
  ]);
  const { bytes: used, limit, records, evicted } = status.usage;
  parts.meter.value = limit ? used / limit : 0;
  say(parts.room, limit
    ? `${bytes(used)} of ${bytes(limit)}, ${records} requests kept, ${evicted} evicted`
    : "Nothing is captured.");
  say(parts.file, fileText(status.file));
  list(parts.options, Object.entries(status.options).map(([name, value]) =>
    [name, typeof value === "string" ? value : JSON.stringify(value)]));
  failures(status.failures);
  tunnels(status.tunnels);
}

/** Where requests survive a restart, and how that goes. */
function fileText(file) {
  if (!file) return "They are gone when the agent ends; inspect_file keeps them.";
  const left = file.dropped ? `; ${file.dropped} were not written` : "";
  return `${file.path} keeps ${bytes(file.bytes)} of ${bytes(file.limit)} for the next start${left}${file.problem ? `: ${file.problem}` : ""}`;
}

/** The nodes of the service that the agent has sessions with. */
function nodes(all) {
  const shown = ({ name, latency }) => latency == null ? name : `${name} (${time(latency)})`;
  return all.map(shown).join(", ");
}

/** The state of the session, and while there is none the reason. */
function session({ state, failures: [last] }) {
  return state === "online" || !last ? state : `${state}: ${last.reason}`;
}

/** Changes what is different, so that a selection in it stays. */
function list(element, pairs) {
  pairs.forEach(([name, value], at) => {
    const row = element.children[at] ?? element.appendChild(make("div", {}, make("dt"), make("dd")));
    say(row.firstChild, name);
    say(row.lastChild, value);
  });
  while (element.children.length > pairs.length) element.lastElementChild.remove();
}

/** Adds what is new and removes what is not there any more, so that a selection in the rest stays. */
function failures(found) {
  const known = new Map([...parts.failures.children].map((item) => [item.textContent, item]));
  const items = found.map(({ at, reason }) => {
    const [when, what] = [at.replace("T", " "), ` ${reason}`];
    const item = known.get(when + what) ?? make("li", {}, make("time", { datetime: at }, when), what);
    known.delete(when + what);
    return item;
  });
  if (!items.length) {
    items.push(known.get("Nothing.") ?? make("li", { class: "hint" }, "Nothing."));
    known.delete("Nothing.");
  }
  known.forEach((item) => item.remove());
  items.forEach((item, at) => {
    if (parts.failures.children[at] !== item) parts.failures.insertBefore(item, parts.failures.children[at] ?? null);
  });
}

function duration(seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return [hours && `${hours} h`, (hours || minutes) && `${minutes} min`, `${seconds % 60} s`].filter(Boolean).join(" ");
}

// ── Tunnels ──────────────────────────────────────────────────────────────────────────────────

function tunnels(found) {
  const names = new Set(found.map((tunnel) => tunnel.name));
  for (const [name, card] of cards) {
    if (!names.has(name)) {
      card.element.remove();
      cards.delete(name);
      history.delete(name);
    }
  }
  for (const tunnel of found) {
    if (!cards.has(tunnel.name)) {
      cards.set(tunnel.name, card(tunnel));
      parts.tunnels.append(cards.get(tunnel.name).element);
    }
    sample(tunnel);
    cards.get(tunnel.name).show(tunnel, history.get(tunnel.name));
  }
}

/** Remembers the figures of a tunnel; rates are between two looks. */
function sample({ name, metrics: { http, conns } }) {
  const past = history.get(name) ?? [];
  const now = performance.now();
  const before = past.at(-1);
  const seconds = before ? (now - before.now) / 1000 : 1;
  const rate = before ? Math.max(http.count - before.count, 0) / seconds : 0;
  past.push({
    now, at: Date.now(), count: http.count, rate, p50: http.p50 / 1e6, p95: http.p95 / 1e6, open: conns.gauge,
  });
  history.set(name, past.slice(-SAMPLES));
}

function card(tunnel) {
  const element = make("article", { class: "card" });
  const figures = make("dl", { class: "facts" });
  const plots = [
    plot("Requests per second", brief, (sample) => sample.rate),
    plot("Median duration", time, (sample) => sample.p50),
    plot("95th percentile", time, (sample) => sample.p95),
    plot("Open connections", brief, (sample) => sample.open),
  ];
  const definition = make("pre", { tabindex: "0" });
  const address = make("a", { rel: "noreferrer", target: "_blank" });
  const local = make("span");
  element.append(
    make("h3", {}, tunnel.name || "(without a name)"),
    make("p", {}, address, " → ", local),
    figures,
    make("div", { class: "plots small-plots" }, plots.map((drawn) => drawn.element)),
    make("details", {}, make("summary", {}, "Definition"), definition),
    button("Stop", () => stop(tunnel), { "aria-label": `Stop the tunnel ${tunnel.name}` }));
  return {
    element,
    show: (now, samples) => {
      const { http, conns } = now.metrics;
      // Another tunnel may have taken the name since.
      address.href = now.public_url;
      say(address, now.public_url);
      say(local, now.config?.addr ?? "");
      list(figures, [
        ["Status", now.status],
        ["Requests", String(http.count)],
        ["Rates", `${per(http.rate1)}, ${per(http.rate5)}, ${per(http.rate15)} (1, 5, 15 min)`],
        ["Percentiles", [50, 90, 95, 99].map((p) => `p${p}\u00a0${time(http[`p${p}`] / 1e6).replace(" ", "\u00a0")}`).join(", ")],
        ["Connections", `${conns.gauge} open, ${conns.count} in total`],
      ]);
      say(definition, JSON.stringify(now.definition, null, 2));
      plots.forEach((drawn) => drawn.show(samples));
    },
  };
}

function per(rate) {
  return `${rate.toFixed(2)}/s`;
}

/** A line over time, with its latest value beside the title. */
function plot(title, format, value) {
  const drawn = new TimePlot({ title, unit: "", format, height: 110, series: [{ name: title, kind: "accent" }] });
  const show = (samples) => {
    say(drawn.legend, format(value(samples.at(-1))));
    drawn.show(samples.map(({ at }) => at), [samples.map(value)]);
  };
  return { element: drawn.element, show };
}

async function stop({ name, uri }) {
  await ask(uri, { method: "DELETE" }).then(
    () => announce(`The tunnel ${name} was stopped`),
    (error) => say(parts.problem, error.message));
}

function starting() {
  const name = make("input", { id: "start-name", required: true, autocomplete: "off" });
  const proto = make("select", { id: "start-proto" }, ["http", "tcp", "tls"].map((proto) => make("option", {}, proto)));
  const addr = make("input", { id: "start-addr", required: true, placeholder: "8080", autocomplete: "off" });
  parts.problem = make("p", { class: "problem", role: "alert" });
  const field = (label, control) => make("div", { class: "field" }, make("label", { for: control.id }, label), control);
  return make("form", {
    class: "start",
    "aria-label": "Start a tunnel",
    submit: async (event) => {
      event.preventDefault();
      say(parts.problem, "");
      const body = { name: name.value, proto: proto.value, addr: addr.value };
      try {
        const started = await ask("/api/tunnels", { method: "POST", body });
        announce(`The tunnel ${started.name} was started`);
        name.value = "";
        addr.value = "";
      } catch (error) {
        say(parts.problem, error.message);
      }
    },
  },
  field("Name", name), field("Protocol", proto), field("Local port or address", addr),
  make("button", {}, "Start"), parts.problem);
}

setUp();
