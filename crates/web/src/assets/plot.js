// Plots: lines over time with axes and units, a heat map, and bars.

import { draw, make, say } from "./dom.js";

const HEIGHT = 150;
const [LEFT, RIGHT, TOP, BOTTOM] = [60, 8, 8, 20];
const TICKS = 4;

/** Round values between nothing and the highest, the last at or above it. */
export function ticks(highest, count = TICKS) {
  const rough = Math.max(highest, 1e-9) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let at = 0; found.length < 2 || found.at(-1) < highest * 0.999; at += 1) found.push(at * step);
  return found;
}

/** Powers of ten around all of some values. */
export function powers(values) {
  const exponent = (value) => Math.floor(Math.log10(value));
  const from = values.length ? exponent(values.reduce((a, b) => Math.min(a, b))) : 0;
  const until = values.length ? exponent(values.reduce((a, b) => Math.max(a, b))) + 1 : 1;
  return Array.from({ length: until - from + 1 }, (_, at) => +`1e${from + at}`);
}

/** A number that is short. */
export function brief(value) {
  if (!value) return "0";
  if (value >= 1e9) return `${+(value / 1e9).toPrecision(3)} G`;
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e4) return `${+(value / 1e3).toPrecision(3)} k`;
  return String(+value.toPrecision(3));
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const exactClock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const SPANS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400].map((s) => s * 1000);

/** Round times between two, in milliseconds. */
export function timeTicks(from, until, count) {
  const step = SPANS.find((span) => span >= (until - from) / count) ?? SPANS.at(-1);
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= until; at += step) found.push(at);
  return { step, found };
}

/**
 * Lines over time. `series` are `{ name, kind }`, kind one of "accent", "good", "moved", "warn", "bad";
 * `format` makes words of a value, with its unit; the axis reaches at least to `least`, and with `log` each step
 * is ten times the last, so that one high value leaves room for the others. With `brush`, a part is chosen by pointer or by keys
 * (arrows move, Shift and arrows choose, Enter takes it), and `brush(from, until)` gets it in
 * milliseconds since 1970.
 */
export class TimePlot {
  constructor({ title, unit, series, format = brief, brush = null, height = HEIGHT, least = 0, log = false }) {
    Object.assign(this, { series, format, brush, height, least, log });
    this.times = [];
    this.values = series.map(() => []);
    this.grid = draw("g", { class: "plot-grid" });
    this.lines = series.map(({ kind }) => draw("path", { class: `plot-line ${kind}` }));
    this.cursor = draw("line", { class: "plot-cursor", y1: TOP, y2: height - BOTTOM });
    this.range = draw("rect", { class: "plot-range", y: TOP, height: height - TOP - BOTTOM });
    this.picture = draw("svg", {
      role: "img", tabindex: "0", height, width: "100%",
      pointermove: (event) => this.point(event), pointerleave: () => this.leave(),
      pointerdown: (event) => this.press(event), pointerup: (event) => this.release(event),
      keydown: (event) => this.key(event), blur: () => this.leave(),
    }, this.grid, this.range, ...this.lines.toReversed(), this.cursor);
    this.about = make("output", { class: "plot-about" });
    this.legend = make("span", { class: "plot-legend" }, series.length < 2 ? [] : series.map(({ name, kind }) =>
      make("span", { class: `plot-key ${kind}` }, name)));
    this.title = title;
    this.unit = unit;
    this.element = make("figure", { class: "plot" },
      make("figcaption", {}, make("b", {}, title), unit ? make("span", { class: "hint" }, ` ${unit}`) : null, this.legend, this.about),
      this.picture);
    new ResizeObserver(() => this.drawNow()).observe(this.picture);
    this.leave();
  }

  /** `times` in milliseconds since 1970, ascending; for each series a value at each time, or null. */
  show(times, values) {
    this.times = times;
    this.values = values;
    this.drawNow();
  }

  x(time) {
    const [from, until] = [this.times[0], this.times.at(-1)];
    return LEFT + ((time - from) / Math.max(until - from, 1)) * (this.width - LEFT - RIGHT);
  }

  drawNow() {
    this.width = this.picture.clientWidth;
    if (!this.width) return;
    const highest = this.values.flat().reduce((most, value) => Math.max(most, value ?? 0), 0);
    const steps = this.log ? powers(this.values.flat().filter((value) => value > 0)) : ticks(Math.max(highest, this.least) || 1);
    const bottom = this.height - BOTTOM;
    const place = this.log ? (value) => Math.log10(Math.max(value, steps[0]) / steps[0]) / Math.log10(steps.at(-1) / steps[0]) : (value) => value / steps.at(-1);
    this.y = (value) => bottom - place(value) * (bottom - TOP);
    let last = null;
    this.grid.replaceChildren(...steps.flatMap((step) => {
      const label = this.format(step);
      const isNew = label !== last;
      last = label;
      return [
        draw("line", { x1: LEFT, x2: this.width - RIGHT, y1: this.y(step), y2: this.y(step) }),
        isNew ? draw("text", { x: LEFT - 6, y: this.y(step) + 4, "text-anchor": "end" }, label) : null,
      ].filter(Boolean);
    }), ...this.timeAxis(bottom));
    this.lines.forEach((line, at) => line.setAttribute("d", this.path(this.values[at])));
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.picture.setAttribute("aria-label", this.summary(highest));
    if (this.at != null) this.look(this.at);
  }

  timeAxis(bottom) {
    if (this.times.length < 2) return [];
    const { step, found } = timeTicks(this.times[0], this.times.at(-1), Math.max(this.width / 90, 2));
    const words = step < 60_000 ? exactClock : clock;
    return found.filter((time) => this.x(time) < this.width - 24).map((time) =>
      draw("text", { x: this.x(time), y: bottom + 15, "text-anchor": "middle" }, words.format(time)));
  }

  path(values) {
    let pen = "M";
    return values.map((value, at) => {
      if (value == null) {
        pen = "M";
        return "";
      }
      // A value without neighbours is a dot.
      const dot = pen === "M" ? "h0" : "";
      const point = `${pen}${this.x(this.times[at]).toFixed(1)} ${this.y(value).toFixed(1)}${dot}`;
      pen = "L";
      return point;
    }).join("");
  }

  summary(highest) {
    if (!this.times.length) return `${this.title}: nothing yet`;
    const last = this.series.map(({ name }, at) => `${name} ${this.format(this.values[at].at(-1) ?? 0)}`).join(", ");
    return `${this.title}${this.unit ? `, ${this.unit}` : ""}: now ${last}; at most ${this.format(highest)}`;
  }

  /** The place of the sample that is nearest to a pointer. */
  nearest(event) {
    const x = event.clientX - this.picture.getBoundingClientRect().left;
    const [from, until] = [this.times[0], this.times.at(-1)];
    const time = from + ((x - LEFT) / Math.max(this.width - LEFT - RIGHT, 1)) * (until - from);
    let best = 0;
    this.times.forEach((known, at) => {
      if (Math.abs(known - time) < Math.abs(this.times[best] - time)) best = at;
    });
    return best;
  }

  point(event) {
    if (this.times.length) this.look(this.nearest(event));
  }

  look(at) {
    this.at = Math.min(Math.max(at, 0), this.times.length - 1);
    const time = this.times[this.at];
    if (time == null) return;
    this.cursor.setAttribute("x1", this.x(time));
    this.cursor.setAttribute("x2", this.x(time));
    this.cursor.classList.add("shown");
    const values = this.series.map(({ name }, index) => {
      const value = this.values[index][this.at];
      return `${this.series.length > 1 ? `${name} ` : ""}${value == null ? "–" : this.format(value)}`;
    });
    say(this.about, `${exactClock.format(time)}  ${values.join("  ")}`);
    this.drawRange();
  }

  leave() {
    if (this.anchor != null && this.pressed) return;
    this.at = null;
    this.anchor = null;
    this.cursor.classList.remove("shown");
    this.range.classList.remove("shown");
    say(this.about, "");
  }

  drawRange() {
    const chosen = this.anchor != null && this.anchor !== this.at;
    this.range.classList.toggle("shown", chosen);
    if (!chosen) return;
    const [from, until] = [this.anchor, this.at].sort((a, b) => a - b).map((at) => this.x(this.times[at]));
    this.range.setAttribute("x", from);
    this.range.setAttribute("width", until - from);
  }

  press(event) {
    if (!this.brush || !this.times.length) return;
    this.picture.setPointerCapture(event.pointerId);
    this.anchor = this.nearest(event);
    this.pressed = true;
  }

  release() {
    this.pressed = false;
    this.take();
  }

  take() {
    const [anchor, at] = [this.anchor, this.at];
    this.anchor = null;
    this.drawRange();
    if (!this.brush || anchor == null || anchor === at) return;
    const [from, until] = [anchor, at].sort((a, b) => a - b);
    this.brush(this.times[from], this.times[until]);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (step && this.times.length) {
      event.preventDefault();
      const at = this.at ?? this.times.length - 1;
      if (event.shiftKey && this.brush) this.anchor ??= at;
      else this.anchor = null;
      this.look(at + step);
    } else if (event.key === "Enter") this.take();
    else if (event.key === "Escape" && this.anchor != null) {
      event.stopPropagation();
      this.leave();
    }
  }
}

/**
 * How often something fell into which class at which time. `labels` name the classes from the lowest
 * on; `counts[time][class]` says how often.
 */
export class HeatMap {
  constructor({ title, unit, labels, height = HEIGHT }) {
    Object.assign(this, { title, labels, height });
    this.cells = draw("g");
    this.axis = draw("g", { class: "plot-grid" });
    this.picture = draw("svg", { role: "img", height, width: "100%", pointermove: (event) => this.point(event), pointerleave: () => say(this.about, "") }, this.axis, this.cells);
    this.about = make("output", { class: "plot-about" });
    this.element = make("figure", { class: "plot" },
      make("figcaption", {}, make("b", {}, title), unit ? make("span", { class: "hint" }, ` ${unit}`) : null, this.about), this.picture);
    this.times = [];
    new ResizeObserver(() => this.drawNow()).observe(this.picture);
  }

  show(times, counts) {
    this.times = times;
    this.counts = counts;
    this.drawNow();
  }

  drawNow() {
    this.width = this.picture.clientWidth;
    if (!this.width || !this.times.length) return;
    const bottom = this.height - BOTTOM;
    const [wide, high] = [(this.width - LEFT - RIGHT) / this.times.length, (bottom - TOP) / this.labels.length];
    const most = Math.max(1, ...this.counts.flat());
    const cells = [];
    this.counts.forEach((column, at) => column.forEach((count, level) => {
      if (!count) return;
      const cell = draw("rect", {
        x: LEFT + at * wide, y: bottom - (level + 1) * high, width: Math.max(wide - 0.5, 1), height: high - 0.5, class: "plot-cell",
      });
      cell.style.opacity = 0.15 + 0.85 * (Math.log1p(count) / Math.log1p(most));
      cells.push(cell);
    }));
    this.cells.replaceChildren(...cells);
    const every = Math.ceil(this.labels.length / 5);
    const { found, step } = timeTicks(this.times[0], this.times.at(-1), Math.max(this.width / 90, 2));
    const span = Math.max(this.times.at(-1) - this.times[0], 1);
    const words = step < 60_000 ? exactClock : clock;
    const x = (time) => LEFT + wide / 2 + ((time - this.times[0]) / span) * (this.width - LEFT - RIGHT - wide);
    this.axis.replaceChildren(
      ...this.labels.flatMap((label, level) => level % every ? [] : [draw("text", { x: LEFT - 6, y: bottom - (level + 0.5) * high + 4, "text-anchor": "end" }, label)]),
      ...found.filter((time) => x(time) < this.width - 24).map((time) => draw("text", { x: x(time), y: bottom + 15, "text-anchor": "middle" }, words.format(time))));
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const total = this.counts.flat().reduce((sum, count) => sum + count, 0);
    this.picture.setAttribute("aria-label", `${this.title}: ${brief(total)} in total, at most ${brief(most)} in one cell`);
  }

  point(event) {
    const box = this.picture.getBoundingClientRect();
    const at = Math.floor(((event.clientX - box.left - LEFT) / (this.width - LEFT - RIGHT)) * this.times.length);
    const level = Math.floor(((this.height - BOTTOM - (event.clientY - box.top)) / (this.height - BOTTOM - TOP)) * this.labels.length);
    const count = this.counts?.[at]?.[level];
    say(this.about, count == null ? "" : `${exactClock.format(this.times[at])}  from ${this.labels[level]}: ${count}`);
  }
}

/** What there is most of. `rows` are `{ label, value, kind, act }`; `act` makes the label a button. */
export function bars(title, rows, format = brief) {
  const most = Math.max(1, ...rows.map(({ value }) => value));
  return make("figure", { class: "plot" }, make("figcaption", {}, make("b", {}, title)),
    rows.length ? make("ol", { class: "bars" }, rows.map(({ label, value, kind = "accent", act }) => {
      const bar = make("span", { class: `bar-length ${kind}`, "aria-hidden": "true" });
      bar.style.width = `${(value / most) * 100}%`;
      return make("li", {},
        act ? make("button", { type: "button", class: "quiet", click: act, title: label }, label) : make("span", { title: label }, label),
        make("span", { class: "bar-value" }, format(value)), bar);
    })) : make("p", { class: "hint" }, "Nothing yet."));
}
