// The page of captured requests.

import { askTunnel, holdLike, mockLike, pin, repeat, writeNote } from "./actions.js";
import { compose } from "./compose.js";
import { copyOf } from "./copies.js";
import { announce, button, byId, bytes, make, say } from "./dom.js";
import { edit } from "./editor.js";
import { drawChips, hint, savedMenu } from "./filters.js";
import { heldBar, showHeld } from "./held.js";
import { help, onKeys } from "./keys.js";
import { makeList } from "./list.js";
import { confirm, copyText, empty, notice, splitter, toast } from "./ui.js";
import { Live } from "./live.js";
import { followOutage, showState } from "./outage.js";
import { render, sizes } from "./detail.js";
import { keepMessages, messagesOf } from "./messages.js";
import { ScheduleList } from "./schedules.js";
import { Selection } from "./selection.js";
import { Start } from "./start.js";
import { ask, query } from "./server.js";
import { isFolded, seldomTools } from "./tools.js";

const PREVIEW = 60;
/** How long changes of a stream are gathered, in milliseconds. */
const STREAMING = 500;
const ANNOUNCE = 5000;
const COPIED = 2000;
/** Where there is room for either the list or the request; as in style.css. */
const NARROW = matchMedia("(max-width: 60rem)");

const filterText = byId("filter-text");
const place = byId("detail");
const problem = byId("problem");
/** What the page shows before anything is asked for. */
const first = JSON.parse(byId("first").textContent);
const page = { filter: first.filter, chosen: null, detail: null, face: null, reveal: false, copied: false, paused: false, waiting: [], turn: 0, usage: null };

const list = makeList(byId("listing"), { choose, open, selected: (marked) => selection?.changed(marked) });
const start = new Start(byId("starting"));
const schedules = new ScheduleList({
  open: (id) => {
    choose(id);
    open();
  },
  leave: () => list.grid,
});
const composing = button("Compose…", newRequest, { id: "compose", "aria-keyshortcuts": "c" });
const nothing = make("div", { id: "nothing", hidden: true });
const live = new Live({ update, link });
const pause = button("Pause", togglePause, { "aria-pressed": "false", id: "pause" });
const fresh = button("", toTop, { id: "fresh", hidden: true });
const seldom = seldomTools({ list, clear, help, addresses: () => start.show(), usage: () => byId("room").textContent });
const chips = make("span", { class: "chips", role: "group", "aria-label": "Common filters" });

const selection = new Selection(byId("listing"), list, {
  revealed: () => page.reveal,
  show: (comparison) => {
    page.face = null;
    place.replaceChildren(button("← List", back, { class: "back" }), comparison);
    open(null);
    place.focus();
  },
});

function setUp() {
  byId("tools").append(chips, fresh, make("span", { class: "wide" }), selection.bar, composing, pause, ...seldom.elements);
  byId("saved").append(savedMenu(() => page.filter, setFilter, () => isFolded(chips)));
  byId("listing").append(nothing);
  byId("starting").append(schedules.element);
  byId("help").addEventListener("click", help);
  byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    setFilter(filterText.value.trim());
  });
  filterText.addEventListener("search", () => setFilter(filterText.value.trim()));
  const withDetail = (act) => () => page.detail?.id === page.chosen && page.detail && act(page.detail);
  onKeys(list, { filter: () => filterText.focus(), replay, modify, newRequest, help, enter, escape, pin: withDetail(pin), note: withDetail(writeNote) });
  addEventListener("popstate", fromHistory);
  list.drawn = tell;
  byId("listing").after(splitter(document.querySelector(".panes"), "split"));
  begin();
  setInterval(pulse, ANNOUNCE);
}

// ── What is shown ────────────────────────────────────────────────────────────────────────────

/** Shows what the page came with; what is new since then comes like everything later. */
function begin() {
  showFilter(first.filter);
  if (first.update) {
    update(first.update);
    live.start(first.filter, first.update.cursor);
  } else say(problem, first.problem);
  const id = requestOfAddress();
  showDetail(Boolean(id));
  if (!id) showNothing();
  else if (first.chosen?.id !== id) choose(id, { keep: true });
  else {
    page.chosen = id;
    page.detail = first.chosen;
    list.look(id);
    redraw(first.chosen);
    // With what it repeats, which is asked for.
    if (first.chosen.replay_of) load();
  }
}

function fromAddress() {
  applyFilter(filterOfAddress());
  const id = requestOfAddress();
  if (id) {
    choose(id, { keep: true });
    showDetail(true);
  } else {
    page.chosen = null;
    page.detail = null;
    list.look(null);
    showNothing();
    showDetail(false);
  }
}

/** Back, or forward: on a narrow screen the list stays as it was while a request is before it. */
function fromHistory() {
  if (!NARROW.matches || filterOfAddress() !== page.filter) {
    fromAddress();
    return;
  }
  const id = requestOfAddress();
  if (id) {
    choose(id, { keep: true });
    showDetail(true);
    place.focus();
  } else toList();
}

function showNothing() {
  page.face = null;
  place.replaceChildren(make("p", { class: "hint" }, "Select a request to see it."));
}

function filterOfAddress() {
  return new URLSearchParams(location.search).get("filter") ?? "";
}

function requestOfAddress() {
  return /^\/inspect\/http\/([0-9a-f]+)$/.exec(location.pathname)?.[1] ?? null;
}

/** The address of what is seen; `state` when it becomes a step that one can go back from. */
function address(push, state = null) {
  const id = NARROW.matches && !detailed() ? null : page.chosen;
  const path = `/inspect/http${id ? `/${id}` : ""}${query({ filter: page.filter })}`;
  if (path === location.pathname + location.search) return;
  if (push) history.pushState(state, "", path);
  else history.replaceState(history.state, "", path);
}

async function setFilter(filter) {
  applyFilter(filter);
  address(true);
}

function showFilter(filter) {
  page.filter = filter;
  filterText.value = filter;
  seldom.exports(filter);
  drawChips(chips, filter, setFilter);
  hint(filter, setFilter);
}

async function applyFilter(filter) {
  showFilter(filter);
  say(problem, "");
  byId("count").classList.add("busy");
  list.clear();
  page.waiting = [];
  live.stop();
  const turn = ++page.turn;
  try {
    // A stream of events cannot say what is wrong with a filter.
    await ask(`/inspect/data/requests${query({ filter, before: "0" })}`);
    if (turn === page.turn) live.start(filter);
  } catch (error) {
    if (turn !== page.turn) return;
    byId("count").classList.remove("busy");
    if (error.status === 400) say(problem, error.message);
    else live.start(filter);
  }
}

// ── What is new ──────────────────────────────────────────────────────────────────────────────

function update(news) {
  page.usage = news.usage;
  byId("room").textContent =
    `${news.tunnels} ${news.tunnels === 1 ? "tunnel" : "tunnels"}, ${bytes(news.usage.bytes)} of ${bytes(news.usage.limit)}` +
    (news.usage.evicted ? `, ${news.usage.evicted} evicted` : "");
  page.service = news.state;
  drawState();
  showHeld(news.held);
  schedules.follow(news.schedules);
  start.follow(news.tunnels, news.state);
  start.setEmpty(!news.usage.records);
  if (!page.paused) {
    take(news);
    return;
  }
  hold(news);
  // Requests that are listed already and go on are no new ones.
  const unlisted = page.waiting[0].requests.filter(({ id }) => !list.rows.has(id));
  say(pause, `Resume (${unlisted.length} new)`);
}

/** Keeps what is new while the page is paused: each request once, and none that is not kept any more. */
function hold(news) {
  const held = page.waiting[0];
  if (!held || news.reset) {
    page.waiting = [news];
    return;
  }
  const fresh = new Set(news.requests.map(({ id }) => id));
  const hidden = new Set([...held.hidden.filter((id) => !fresh.has(id)), ...news.hidden]);
  const requests = new Map([...held.requests, ...news.requests].map((request) => [request.id, request]));
  const kept = ({ id, pinned }) => !hidden.has(id) && news.oldest != null && (pinned || id >= news.oldest);
  page.waiting = [{
    ...news,
    reset: held.reset,
    more: held.more,
    hidden: [...hidden].filter((id) => news.oldest != null && id >= news.oldest),
    requests: [...requests.values()].filter(kept),
  }];
}

function take(news) {
  byId("count").classList.remove("busy");
  if (news.reset) list.clear();
  list.drop(news.hidden, news.oldest ?? (news.usage.records ? null : "g"), ({ pinned }) => pinned && news.usage.records > 0);
  list.put(news.requests);
  if (news.more) older(page.turn);
  const concerns = ({ id, replay_of: original }) => id === page.chosen || original === page.chosen;
  if (page.chosen && news.requests.some(concerns)) refresh();
}

/** Gets what is older than the oldest row, step by step. */
async function older(turn) {
  let more = true;
  while (more && turn === page.turn) {
    const found = await ask(`/inspect/data/requests${query({ filter: page.filter, before: list.order[0] })}`)
      .catch(() => null);
    if (!found || turn !== page.turn) return;
    list.put(found.requests);
    more = found.more && found.requests.length > 0;
  }
}

function togglePause() {
  page.paused = !page.paused;
  pause.setAttribute("aria-pressed", page.paused);
  say(pause, page.paused ? "Resume" : "Pause");
  if (!page.paused) {
    page.waiting.splice(0).forEach(take);
  }
}

function toTop() {
  list.grid.scrollTop = 0;
  list.draw();
}

let linked = "live";

function link(how) {
  linked = how;
  drawState();
}

function drawState() {
  const service = page.service ?? "connecting";
  const state = linked === "lost" ? null : service;
  showState(state, linked === "polling" ? " (asking each second)" : "");
  followOutage(state);
}

function tell() {
  const kept = page.usage?.records ?? 0;
  say(byId("count"), page.filter ? `${list.count} shown of ${kept}` : `${list.count} requests`);
  fresh.hidden = list.fresh === 0;
  say(fresh, `↑ ${list.fresh} new`);
  const isBusy = byId("count").classList.contains("busy");
  nothing.hidden = list.count > 0 || !kept || isBusy;
  if (nothing.hidden) nothing.replaceChildren();
  else if (!nothing.firstChild) nothing.append(empty("No request matches the filter", null, button("Show all requests", () => setFilter(""))));
}

let announced = 0;

/** Says at most every few seconds how many there are. */
function pulse() {
  if (list.count === announced) return;
  announced = list.count;
  announce(`${list.count} requests are listed`);
}

// ── One request ──────────────────────────────────────────────────────────────────────────────

let preview;

function choose(id, { keep = false } = {}) {
  if (!id) return;
  if (id !== page.chosen) page.reveal = false;
  page.chosen = id;
  list.look(id);
  if (!keep) address(false);
  // Not the words of a page where nothing is chosen.
  if (place.childElementCount === 1 && place.firstChild.matches(".hint")) say(place.firstChild, "Loading…");
  clearTimeout(preview);
  preview = setTimeout(load, PREVIEW);
}

function open(id = page.chosen) {
  const fromList = !detailed();
  showDetail(true);
  address(NARROW.matches && fromList, { fromList });
  clearTimeout(preview);
  if (id) load();
}

/** On a narrow screen either the list is shown, or the request. */
function showDetail(yes) {
  document.documentElement.classList.toggle("detailed", yes);
}

function detailed() {
  return document.documentElement.classList.contains("detailed");
}

function back() {
  if (!NARROW.matches || !detailed()) {
    showDetail(false);
    list.grid.focus();
  } else if (history.state?.fromList) history.back();
  else {
    toList();
    address(false);
  }
}

/** From the request to the list, with the row that was chosen, for the keyboard to go on from there. */
function toList() {
  showDetail(false);
  list.look(page.chosen);
  list.grid.focus();
}

let loads = 0;

let latest;

/** Gets the request that is chosen; who waits for it while it is asked for again waits for that. */
function load() {
  loads += 1;
  latest = loadNow(loads, page.chosen);
  return latest;
}

async function loadNow(turn, id) {
  const path = `/inspect/data/requests/${id}`;
  const reveal = page.reveal ? "1" : "";
  try {
    const detail = await ask(path + query({ reveal }));
    const original = detail.replay_of
      ? await ask(`/inspect/data/requests/${detail.replay_of}${query({ reveal })}`).catch(() => null)
      : null;
    if (turn !== loads) return latest;
    if (id !== page.chosen) return;
    page.detail = detail;
    // What only counts further is not drawn anew, so that no click is lost on the way.
    const face = JSON.stringify([detail, original], detail.stream === "websocket" ? (key, value) => (COUNTS.includes(key) ? undefined : value) : null);
    if (face === page.face) recount(detail);
    else redraw(detail, original);
    page.face = face;
  } catch (error) {
    if (turn !== loads) return latest;
    if (id !== page.chosen) return;
    page.detail = null;
    page.face = null;
    place.replaceChildren(make("p", { class: "hint" },
      error.status === 404 ? "This request is no longer kept." : error.message));
  }
}

/** What messages of a WebSocket change of its request. */
const COUNTS = ["messages", "received", "sent"];

function recount(detail) {
  messagesOf(detail);
  say(byId("sizes"), sizes(detail));
}

/** Draws the request anew; what had the focus has it again. */
function redraw(detail, original) {
  const focused = place.contains(document.activeElement) ? document.activeElement.id : null;
  const restore = keepMessages();
  const shut = place.scrollTop;
  render(place, detail, {
    replay, copy, back,
    edit: modify,
    repeat: () => repeat(detail),
    pin: () => pin(detail),
    note: () => writeNote(detail),
    mock: () => mockLike(detail),
    hold: () => holdLike(detail),
    held: heldBar(detail, refresh),
    messages: messagesOf(detail),
    reveal: () => {
      page.reveal = !page.reveal;
      load();
    },
    open: (id) => {
      choose(id);
      open();
    },
    secret: async (part, kind, at) => {
      const exact = await ask(`/inspect/data/requests/${detail.id}?reveal=1`);
      return exact[part][kind][at].value;
    },
    har: `/inspect/data/export.har${query({ id: detail.id, reveal: page.reveal ? "1" : "" })}`,
  }, original);
  drawCopied();
  place.scrollTop = shut;
  if (focused) byId(focused)?.focus({ preventScroll: true });
  restore();
}

let refreshing;

function refresh() {
  // What changes without a pause is still shown.
  refreshing ??= setTimeout(() => {
    refreshing = undefined;
    load();
  }, page.detail?.stream ? STREAMING : PREVIEW);
}

async function replay() {
  if (!page.chosen) return;
  const { detail } = page;
  try {
    if (detail?.id === page.chosen && detail.imported && !await askTunnel(detail, send)) return;
    await send({});
  } catch (error) {
    notice(error.message);
  }
}

async function send(changes) {
  const { id } = await ask(`/inspect/data/requests/${page.chosen}/replay`, { method: "POST", body: changes });
  announce("The request was sent again");
  if (id) {
    choose(id);
    open();
  } else notice("The request was sent again; the tunnel does not capture.");
}

/** A request from scratch. */
function newRequest() {
  compose((id) => {
    announce("The request was sent");
    if (!id) return;
    choose(id);
    open();
  }).catch((error) => notice(error.message));
}

async function modify() {
  // A key may be faster than the request that it is about.
  if (page.chosen && page.detail?.id !== page.chosen) await load();
  if (!page.detail || page.detail.id !== page.chosen) return;
  try {
    const exact = await ask(`/inspect/data/requests/${page.chosen}?reveal=1&whole=1`);
    await edit(page.detail, exact, { send });
  } catch (error) {
    notice(error.message);
  }
}

let copying;

async function copy(form, reveal = page.reveal) {
  if (!form) return;
  try {
    const { text, isMasked } = await copyOf(page.chosen, form, reveal);
    if (!await copyText(text)) return;
    if (isMasked) toast("Secrets are masked in the copy", ["Copy with secrets", () => copy(form, true)]);
    page.copied = true;
    drawCopied();
    clearTimeout(copying);
    copying = setTimeout(() => {
      page.copied = false;
      drawCopied();
    }, COPIED);
  } catch (error) {
    notice(error.message);
  }
}

/** Says that the copy is there, also when the request is drawn anew meanwhile. */
function drawCopied() {
  const label = place.querySelector("select option");
  if (label) say(label, page.copied ? "Copied ✓" : "Copy as…");
}

function clear() {
  confirm("Clear requests", "All captured requests are removed from the agent’s memory. This cannot be undone.", "Clear requests", async () => {
    await ask("/api/requests/http", { method: "DELETE" });
    page.chosen = null;
    page.detail = null;
    showNothing();
    address(false);
  });
}

// ── Keys ─────────────────────────────────────────────────────────────────────────────────────

function escape(target) {
  if (target === filterText) list.grid.focus();
  else if (list.marked.size) list.mark([]);
  else back();
}

function enter() {
  if (!page.chosen) list.move(0);
  open();
  place.focus();
}

setUp();
