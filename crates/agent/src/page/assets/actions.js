// What can be done with one request, beside replaying it once.

import { announce, make } from "./dom.js";
import { editHold, editMock } from "./forms.js";
import { ask } from "./server.js";
import { dialog, field, notice, toast } from "./ui.js";

/** As crates/agent/src/capture/store/pins.rs limits them, in bytes. */
const MAX_NOTE = 2000;

/** What is sent more often than this goes on a schedule, as crates/agent/src/replay.rs limits it. */
const MAX_TIMES = 100;
/** As crates/agent/src/replay_schedules/registry.rs limits them. */
const MAX_SCHEDULED = 1000000;
const MIN_SECONDS = 0.1;
const MAX_SECONDS = 86400;
/** How long a form waits for a refusal before the replays go on without it, in milliseconds. */
const REFUSAL = 600;

function number(value, attributes) {
  const element = make("input", { type: "number", required: true, ...attributes });
  element.value = value;
  return element;
}

/** Replays a request several times, at once or on a schedule, also to another address. */
export function repeat({ id, tunnel }) {
  const times = number(5, { min: "1", max: MAX_SCHEDULED, required: false });
  const interval = number(0, { min: "0", max: MAX_SECONDS, step: "any" });
  const isEndless = () => !times.value || Number(times.value) > MAX_TIMES;
  times.addEventListener("input", () => { interval.min = isEndless() ? MIN_SECONDS : 0; });
  const addr = make("input", { placeholder: `where tunnel ${tunnel} leads`, autocomplete: "off", spellcheck: "false" });
  dialog("Replay several times", make("div", {}, make("div", { class: "fields" },
    field("Times", times, "Empty: until you stop it"), field("Seconds between", interval, `From ${MIN_SECONDS} on, which more than ${MAX_TIMES} times need, you can stop it above the list`)),
  field("Address", addr, "Another place on this machine, such as localhost:8081, or the address of one of the tunnels.")), [["Replay", async () => {
    const body = {
      ...(times.value ? { times: Number(times.value) } : {}), interval: Math.round(Number(interval.value) * 1000),
      ...(addr.value.trim() ? { addr: addr.value.trim() } : {}),
    };
    if (isEndless() || Number(interval.value) >= MIN_SECONDS) {
      await ask("/api/replay_schedules", { method: "POST", body: { captured_id: id, ...body } });
      announce("The request is sent on a schedule");
      return;
    }
    const all = ask(`/inspect/data/requests/${id}/replay`, { method: "POST", body });
    let isOpen = true;
    all.catch((error) => isOpen || notice(error.message));
    // The agent responds when all were sent, which may take a while; refusals come at once.
    await Promise.race([all, new Promise((done) => { setTimeout(done, REFUSAL); })]);
    isOpen = false;
    toast(`The request is sent ${body.times} ${body.times === 1 ? "time" : "times"}`);
  }]]);
  times.select();
}

const like = ({ method, target, tunnel }) => ({ method, path: target.split("?")[0], tunnel_name: tunnel });
const toRules = ["Show", () => location.assign("/inspect/rules")];

/** Makes a mock of a captured response, for requests like this one. */
export function mockLike(detail) {
  editMock(like(detail), ({ id }) => toast(`Mock ${id} responds to such requests now`, toRules), { captured: detail })
    .catch((error) => notice(error.message));
}

/**
 * Asks through which tunnel a request goes whose own does not run; true where that runs. `send` gets what is to be
 * different.
 */
export async function askTunnel({ tunnel }, send) {
  const { tunnels } = await ask("/api/tunnels");
  const names = tunnels.filter(({ proto }) => /^https?$/.test(proto)).map(({ name }) => name);
  if (names.includes(tunnel)) return true;
  if (!names.length) throw new Error("The request names no tunnel that runs, and no HTTP tunnel runs: start one first.");
  const choice = make("select", {}, names.map((name) => make("option", { value: name }, name || "(without a name)")));
  dialog("Replay an imported request", field("Tunnel", choice, tunnel ? `The tunnel ${tunnel} of the archive does not run here.` : "The archive names no tunnel."),
    [["Replay", () => send({ tunnel: choice.value })]]);
  choice.focus();
  return false;
}

/** Makes requests like this one wait. */
export function holdLike(detail) {
  editHold(like(detail), ({ id }) => toast(`Hold ${id} makes such requests wait now`, toRules)).catch((error) => notice(error.message));
}

const change = ({ id }, body) => ask(`/api/requests/http/${id}`, { method: "PATCH", body });

/** Pins a request, or does not any more. */
export function pin(detail) {
  change(detail, { pinned: !detail.pinned }).then(
    () => announce(detail.pinned ? "The request is not pinned any more" : "The request is pinned"),
    (error) => notice(error.message));
}

/** Asks for what is to be known about a request. */
export function writeNote(detail) {
  const text = make("textarea", { rows: "5", maxlength: MAX_NOTE, "aria-label": "Note" });
  text.value = detail.note ?? "";
  dialog(`Note on ${detail.method} ${detail.target}`, make("div", {}, text,
    make("p", { class: "hint" }, "It stays with the request for as long as that is kept, and in what is passed on as HTML or HAR.")),
  [["Save", () => change(detail, { note: text.value })]], { className: "noting" });
  text.focus();
}
