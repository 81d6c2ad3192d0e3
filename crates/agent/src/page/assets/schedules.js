// Requests that the agent sends again and again: above the list, with what stops them.

import { announce, button, make, say } from "./dom.js";
import { ask } from "./server.js";
import { notice, toast } from "./ui.js";

/** How often they are asked for at most, in milliseconds: each time that one is sent changes them. */
const PAUSE = 250;
const TICK = 1000;

/** The schedules that run, and those that could not go on; rows stay as they are while others come and go. */
export class ScheduleList {
  /** `open` shows a request, and `leave` takes the focus when the last row has gone. */
  constructor({ open, leave }) {
    Object.assign(this, { open, leave, rows: new Map(), revision: 0, timer: null, reading: false });
    this.list = make("ul", { class: "held schedules" });
    this.element = make("section", { id: "schedules", "aria-label": "Replays on a schedule", hidden: true }, this.list);
    setInterval(() => this.rows.forEach(({ progress, schedule }) => say(progress, describe(schedule))), TICK);
  }

  /** Asks for them when they have changed. */
  follow(revision) {
    if (revision === this.revision) return;
    this.revision = revision;
    this.timer ??= setTimeout(() => this.read(), PAUSE);
  }

  async read() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.reading) {
      this.timer = setTimeout(() => this.read(), PAUSE);
      return;
    }
    this.reading = true;
    const all = await ask("/inspect/data/schedules").catch(() => null);
    this.reading = false;
    if (all) this.draw(all);
    // What was missed is asked for with the next change.
    else this.revision = null;
  }

  draw(all) {
    const hadFocus = this.list.contains(document.activeElement);
    const known = new Map(all.map((schedule) => [schedule.id, schedule]));
    for (const [id, { row }] of this.rows) {
      const now = known.get(id);
      if (now && now.state !== "completed") continue;
      row.remove();
      this.rows.delete(id);
      if (now) toast(`${name(now)} was sent ${count(now)}`);
    }
    for (const schedule of all) {
      if (schedule.state === "completed") continue;
      const shown = this.rows.get(schedule.id) ?? this.add(schedule);
      shown.schedule = schedule;
      say(shown.progress, describe(schedule));
      if (schedule.state === "aborted" && !shown.row.classList.contains("aborted")) {
        shown.row.classList.add("aborted");
        say(shown.stop, "Dismiss");
        shown.stop.setAttribute("aria-label", `Dismiss ${schedule.id}`);
        announce(`${schedule.id} ended: ${schedule.error}`);
      }
    }
    this.element.hidden = !this.rows.size;
    if (hadFocus && !this.list.contains(document.activeElement)) (this.list.querySelector("button") ?? this.leave()).focus();
  }

  add(schedule) {
    const { id, captured_id: request } = schedule;
    const progress = make("div", { class: "hint" });
    const stop = button("Stop", () => this.stop(id), { "aria-label": `Stop ${id}` });
    const link = make("a", {
      class: "held-target", href: `/inspect/http/${request}`,
      click: (event) => {
        event.preventDefault();
        this.open(request);
      },
    }, make("span", { class: "method" }, schedule.method), ` ${schedule.target}`);
    const row = make("li", { class: "held-row", "data-id": id }, make("div", { class: "held-text" }, link, progress), stop);
    this.list.append(row);
    const made = { row, progress, stop, schedule };
    this.rows.set(id, made);
    return made;
  }

  async stop(id) {
    try {
      await ask(`/api/replay_schedules/${id}`, { method: "DELETE" });
      announce(`${id} was stopped`);
    } catch (error) {
      // It may have ended meanwhile, and somebody else removed it.
      if (error.status !== 404) notice(error.message);
    }
    this.read();
  }
}

const name = ({ method, target }) => `${method} ${target}`;
const count = ({ sent, failed }) => `${sent} ${sent === 1 ? "time" : "times"}${failed ? `, ${failed} failed` : ""}`;

/** How far a schedule has come, in one line. */
function describe(schedule) {
  const { interval, times, until, sent, failed, last_status: status, state, error, next, addr, tunnel_name: tunnel } = schedule;
  const left = next ? Math.ceil((Date.parse(next) - Date.now()) / 1000) : 0;
  return [
    state === "aborted" ? `ended: ${error}` : `every ${interval / 1000} s`,
    times == null ? `sent ${sent}` : `sent ${sent} of ${times}`,
    failed ? `${failed} failed` : null, status == null ? null : `last ${status}`,
    state === "running" && until ? `until ${new Date(until).toLocaleString()}` : null,
    `to ${addr ?? `tunnel ${tunnel}`}`,
    interval > 2 * TICK && left > 0 ? `next in ${left} s` : null,
  ].filter(Boolean).join(" · ");
}
