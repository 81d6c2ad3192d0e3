// What tunnels carry over time: requests, errors, durations, bytes, and what there is most of.

import { button, byId, bytes, make, say } from "./dom.js";
import { HeatMap, TimePlot, bars } from "./plot.js";
import { showHeld } from "./held.js";
import { followOutage, showState } from "./outage.js";
import { Live } from "./live.js";
import { ask, query } from "./server.js";
import { empty, level, recall, remember } from "./ui.js";

const RANGES = [[5, "5 min"], [15, "15 min"], [60, "1 h"]];
/** How many points a plot has. */
const POINTS = 120;
const DRAW = 1000;
/** How often the agent is asked for its figures, in milliseconds. */
const ASK = 2000;
const TOP = 8;
/** The classes of the heat map, by their lower ends in milliseconds. */
const CLASSES = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000];

const kept = recall("traffic.range", 15);
/** `slots` has, for each tunnel, what the agent counted in each slot of the last hour, by its beginning. */
const page = { range: RANGES.some(([minutes]) => minutes === kept) ? kept : 15, tunnel: "", requests: new Map(), slots: new Map(), step: 10_000, ends: [] };

/** Milliseconds without digits that say nothing. */
function short(value) {
  return value < 1000 ? `${+value.toPrecision(3)} ms` : `${+(value / 1000).toPrecision(3)} s`;
}

const perSecond = (value) => `${+value.toPrecision(3)}/s`;
const plots = {
  requests: new TimePlot({ title: "Requests", unit: "per second", format: perSecond, brush, series: [{ name: "all", kind: "accent" }, { name: "failed", kind: "bad" }] }),
  durations: new TimePlot({ title: "Duration", unit: "each line ten times the last", format: short, brush, log: true, series: [{ name: "p50", kind: "accent" }, { name: "p95", kind: "moved" }, { name: "p99", kind: "warn" }] }),
  bytes: new TimePlot({ title: "Bytes of bodies", unit: "per second", format: (value) => `${value < 10 ? `${+value.toPrecision(2)} B` : bytes(Math.round(value))}/s`, brush, least: 4, series: [{ name: "in", kind: "accent" }, { name: "out", kind: "moved" }] }),
  heat: new HeatMap({ title: "How long requests took", unit: "requests in each class", labels: CLASSES.map(short) }),
};
const lists = make("div", { class: "plots tops" });
const about = make("p", { class: "hint" });
const tunnels = make("select", { id: "tunnel", change: () => choose(tunnels.value) }, make("option", { value: "" }, "All tunnels"));
const ranges = make("span", { class: "tools", role: "group", "aria-label": "Time shown" });
const nothing = make("div", { hidden: true }, empty("No requests in this time", "Plots show the last hour since the agent began; bytes are counted where requests are captured."));

function setUp() {
  byId("traffic").replaceChildren(
    make("div", { class: "tools traffic-tools" }, make("label", { for: "tunnel" }, "Tunnel"), tunnels, ranges, make("span", { class: "wide" }),
      make("span", { class: "hint" }, "Drag over a plot, or Shift and arrow keys and Enter, to see the requests of that time.")),
    nothing, make("div", { class: "plots" }, plots.requests.element, plots.durations.element, plots.bytes.element, plots.heat.element),
    make("h2", {}, "Most of all"), lists, about);
  drawRanges();
  const live = new Live({ update, link: (how) => how === "lost" && followOutage(null) });
  live.start("");
  readSlots();
  setInterval(() => !document.hidden && draw(), DRAW);
}

function drawRanges() {
  ranges.replaceChildren(...RANGES.map(([minutes, word]) => button(word, () => {
    page.range = minutes;
    remember("traffic.range", minutes);
    for (const other of ranges.children) other.setAttribute("aria-pressed", other.textContent === word);
    draw();
  }, { "aria-pressed": minutes === page.range })));
}

/** Asks for what is new since the last slot, which may have grown. */
async function readSlots() {
  const last = [...page.slots.values()].flatMap((slots) => [...slots.keys()]).reduce((a, b) => Math.max(a, b), 0);
  // A request counts in the slot in which it began, which may be a while ago.
  const since = Math.max(0, last - 6 * page.step) || "";
  const found = await ask(`/inspect/data/traffic${query({ since })}`).catch(() => null);
  setTimeout(readSlots, ASK);
  if (!found) return;
  Object.assign(page, { step: found.step, ends: found.ends });
  const names = found.tunnels.map(({ name }) => name);
  if (String(names) !== String(page.names)) showTunnels(names);
  page.names = names;
  for (const { name, slots } of found.tunnels) {
    const known = page.slots.get(name) ?? new Map();
    slots.forEach((slot) => known.set(slot.at, slot));
    page.slots.set(name, known);
  }
  for (const name of page.slots.keys()) if (!names.includes(name)) page.slots.delete(name);
  const oldest = Date.now() - 3_700_000;
  for (const slots of page.slots.values()) for (const at of slots.keys()) if (at < oldest) slots.delete(at);
  if (!document.hidden) draw();
}

function showTunnels(names) {
  tunnels.replaceChildren(make("option", { value: "" }, "All tunnels"), ...names.map((name) => make("option", { value: name }, name || "(without a name)")));
  tunnels.value = names.includes(page.tunnel) ? page.tunnel : "";
  page.tunnel = tunnels.value;
}

function choose(name) {
  page.tunnel = name;
  draw();
}

function update(news) {
  showState(news.state);
  followOutage(news.state);
  showHeld(news.held);
  if (news.reset) page.requests.clear();
  news.requests.forEach((request) => page.requests.set(request.id, request));
  for (const id of page.requests.keys()) {
    if (news.oldest != null && id >= news.oldest) break;
    if (!page.requests.get(id).pinned || !news.usage.records) page.requests.delete(id);
  }
  if (news.more) older();
  else if (news.reset) draw();
}

/** Gets what is older than the oldest that is known, step by step. */
async function older() {
  let before = [...page.requests.keys()].sort()[0];
  for (let more = true; more && before;) {
    const found = await ask(`/inspect/data/requests${query({ before })}`).catch(() => null);
    if (!found) return;
    found.requests.forEach((request) => page.requests.set(request.id, request));
    more = found.more;
    before = found.requests[0]?.id;
  }
  // Ascending, which the removal of what is not kept relies on.
  page.requests = new Map([...page.requests].sort(([a], [b]) => (a < b ? -1 : 1)));
  draw();
}

/** The value below which so much of what is counted in classes lies; within a class, as if it were even. */
function percentile(classes, share) {
  const total = classes.reduce((sum, [, count]) => sum + count, 0);
  if (!total) return null;
  let left = total * share;
  for (const [at, count] of classes) {
    const [low, high] = [at ? page.ends[at - 1] : 0, page.ends[at]];
    if (left <= count) return low + (high - low) * (left / count);
    left -= count;
  }
  return page.ends[classes.at(-1)[0]];
}

function draw() {
  const span = page.range * 60_000;
  // A point is one slot, or as many as there must be for so many points.
  const step = page.step * Math.ceil(span / POINTS / page.step);
  const until = Math.ceil(Date.now() / step) * step;
  const from = until - span;
  const points = Array.from({ length: Math.round(span / step) }, () => ({ requests: 0, errors: 0, received: 0, sent: 0, took: new Map(), classes: CLASSES.map(() => 0) }));
  for (const [name, slots] of page.slots) {
    if (page.tunnel && name !== page.tunnel) continue;
    for (const slot of slots.values()) count(points[Math.floor((slot.at - from) / step)], slot);
  }
  const times = points.map((_, at) => from + at * step);
  const seconds = step / 1000;
  const line = (value) => points.map(value);
  const sorted = points.map(({ took }) => [...took].sort(([a], [b]) => a - b));
  page.pointStep = step;
  plots.requests.show(times, [line(({ requests }) => requests / seconds), line(({ errors }) => errors / seconds)]);
  plots.durations.show(times, [0.5, 0.95, 0.99].map((share) => sorted.map((classes) => percentile(classes, share))));
  plots.bytes.show(times, [line(({ received }) => received / seconds), line(({ sent }) => sent / seconds)]);
  plots.heat.show(times, points.map(({ classes }) => classes));
  nothing.hidden = points.some(({ requests }) => requests);
  drawLists([...page.requests.values()].filter(({ tunnel, start }) => (!page.tunnel || tunnel === page.tunnel) && Date.parse(start) >= from));
}

function count(point, slot) {
  if (!point) return;
  for (const name of ["requests", "errors", "received", "sent"]) point[name] += slot[name];
  for (const [at, number] of slot.classes) {
    point.took.set(at, (point.took.get(at) ?? 0) + number);
    const least = at ? page.ends[at - 1] : 0;
    // The middle of a class of the agent is in the class of the plot.
    const middle = (least + page.ends[at]) / 2;
    point.classes[CLASSES.findLastIndex((end) => middle >= end)] += number;
  }
}

function drawLists(shown) {
  say(about, `Of ${shown.length} captured requests.`);
  const key = `${shown.length} ${shown.at(-1)?.id} ${page.tunnel} ${page.range}`;
  // Left as they are while nothing is new, so that a focus in them stays.
  if (key === page.listed || lists.contains(document.activeElement)) return;
  page.listed = key;
  const most = (name, term, kind = () => "accent") => {
    const counts = new Map();
    for (const request of shown) counts.set(name(request), (counts.get(name(request)) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).slice(0, TOP).map(([label, value]) =>
      ({ label, value, kind: kind(label), act: () => toRequests(term(label)) }));
  };
  const quoted = (text) => (/\s/.test(text) ? `"${text}"` : text);
  lists.replaceChildren(
    bars("Paths", most(({ target }) => target.split("?")[0], (label) => `path:${quoted(label)}`)),
    bars("Statuses", most(({ status, grpc_status: call }) => (call ? `gRPC ${call}` : String(status ?? "pending")),
      (label) => (label.startsWith("gRPC ") ? `grpc:${label.slice(5)}` : `status:${label}`), (label) => (label.startsWith("gRPC ") ? "bad" : level(Number(label)) || "accent"))),
    bars("Methods", most(({ method }) => method, (label) => `method:${quoted(label)}`)),
    bars("Sources", most(({ source }) => source, (label) => `header:x-forwarded-for=${quoted(label)}*`)));
}

function toRequests(filter) {
  location.assign(`/inspect/http${query({ filter })}`);
}

/** Shows the requests of a time that was chosen in a plot. */
function brush(from, until) {
  const step = page.pointStep;
  const tunnel = page.tunnel ? ` tunnel:"${page.tunnel}"` : "";
  toRequests(`after:${new Date(from).toISOString()} before:${new Date(until + step).toISOString()}${tunnel}`);
}

setUp();
