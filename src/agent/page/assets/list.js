// The list: only the rows that can be seen are made, so ten thousand scroll like ten.

import { byId, bytes, make, time } from "./dom.js";

const BEYOND = 8;
const FIRST_ROW = 2;

/** Marks, told by sign and word. */
export function marks(request) {
  const found = [];
  if (request.status == null) found.push(["…", "pending"]);
  if (request.replay_of) found.push(["↻", "replay"]);
  if (request.truncated) found.push(["✂", "truncated"]);
  if (request.unanswered) found.push(["⚠", "no response from the local service"]);
  return found;
}

export class List {
  /** `choose` is called with the identifier of a row that was chosen. */
  constructor({ choose, open }) {
    this.grid = byId("list");
    this.body = byId("rows");
    this.choose = choose;
    this.open = open;
    this.rows = new Map();
    this.order = [];
    this.made = new Map();
    this.chosen = null;
    this.fresh = 0;
    this.grid.addEventListener("scroll", () => this.draw());
    this.body.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.measure()).observe(this.grid);
  }

  get count() {
    return this.order.length;
  }

  /** Forgets everything. */
  clear() {
    this.rows.clear();
    this.order = [];
    this.fresh = 0;
    this.draw();
  }

  /** Adds or changes rows, given oldest first; what is on the screen stays where it is. */
  put(requests) {
    const known = this.order.length;
    const newest = this.order[known - 1] ?? "";
    let late = false;
    for (const request of requests) {
      if (!this.rows.has(request.id)) {
        late ||= request.id < newest;
        this.order.push(request.id);
      }
      this.rows.set(request.id, request);
      this.made.get(request.id)?.remove();
      this.made.delete(request.id);
    }
    if (late) this.order.sort();
    this.keepPlace(known, newest);
    this.draw();
  }

  /** New rows come in above; who has scrolled down is not pushed around. */
  keepPlace(known, newest) {
    const above = this.order.length - 1 - this.order.lastIndexOf(newest);
    if (!known || above <= 0 || this.grid.scrollTop < 1) return;
    this.fresh += above;
    this.resize();
    this.grid.scrollTop += above * this.height;
  }

  /** Takes rows out that are not to be shown, or not kept, any more. */
  drop(ids, oldest) {
    const gone = new Set(ids.filter((id) => this.rows.has(id)));
    const kept = (id) => !gone.has(id) && (oldest == null || id >= oldest);
    if (this.order.every(kept)) return;
    this.order = this.order.filter((id) => kept(id) || !this.rows.delete(id));
    this.draw();
  }

  at(index) {
    return this.order[this.order.length - 1 - index];
  }

  indexOf(id) {
    const at = this.order.lastIndexOf(id);
    return at < 0 ? -1 : this.order.length - 1 - at;
  }

  /** Marks a row as chosen, and brings it into view. */
  mark(id, show = true) {
    this.chosen = id;
    const index = this.indexOf(id);
    if (show && index >= 0) this.show(index);
    this.draw();
  }

  show(index) {
    const head = this.grid.firstElementChild.offsetHeight;
    const top = index * this.height;
    const room = this.grid.clientHeight - head;
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    else if (top + this.height > this.grid.scrollTop + room) {
      this.grid.scrollTop = top + this.height - room;
    }
  }

  /** Chooses the row that is so many rows further down. */
  move(by) {
    if (!this.count) return;
    const next = this.indexOf(this.chosen) + by;
    this.choose(this.at(Math.min(Math.max(next, 0), this.count - 1)));
  }

  click(event) {
    const row = event.target.closest(".row");
    if (!row || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    this.choose(row.dataset.id);
    this.open(row.dataset.id);
  }

  measure() {
    const probe = this.row({
      id: "probe", start: "", method: "X", target: "/", status: 200, took: 1,
      received: 0, sent: 0, source: "", tunnel: "",
    });
    this.body.append(probe);
    this.height = probe.offsetHeight || 28;
    probe.remove();
    this.draw();
  }

  resize() {
    this.body.style.height = `${this.count * this.height}px`;
    this.grid.setAttribute("aria-rowcount", this.count + 1);
  }

  /** Makes the rows that can be seen; at most once for each frame. */
  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.drawNow();
    });
  }

  drawNow() {
    if (!this.height) return;
    this.resize();
    if (this.grid.scrollTop < 1) this.fresh = 0;
    const first = Math.max(Math.floor(this.grid.scrollTop / this.height) - BEYOND, 0);
    const seen = Math.ceil(this.grid.clientHeight / this.height) + 2 * BEYOND;
    const last = Math.min(first + seen, this.count);
    const wanted = new Set();
    for (let index = first; index < last; index += 1) wanted.add(this.at(index));
    for (const [id, row] of this.made) {
      if (!wanted.has(id)) {
        row.remove();
        this.made.delete(id);
      }
    }
    let before = this.body.firstChild;
    for (let index = first; index < last; index += 1) {
      const row = this.place(this.at(index), index);
      // In the order in which they are seen, for those who are read to.
      if (row === before) before = row.nextSibling;
      else this.body.insertBefore(row, before);
    }
    const shown = this.made.has(this.chosen);
    if (shown) this.grid.setAttribute("aria-activedescendant", `row-${this.chosen}`);
    else this.grid.removeAttribute("aria-activedescendant");
    this.drawn?.();
  }

  place(id, index) {
    let row = this.made.get(id);
    if (!row) {
      row = this.row(this.rows.get(id));
      this.made.set(id, row);
    }
    row.style.transform = `translateY(${index * this.height}px)`;
    row.setAttribute("aria-rowindex", index + FIRST_ROW);
    row.setAttribute("aria-selected", id === this.chosen);
    row.classList.toggle("chosen", id === this.chosen);
    return row;
  }

  row(request) {
    const cell = (name, ...content) =>
      make("span", { role: "gridcell", class: name }, ...content);
    const found = marks(request).map(([sign, word]) =>
      make("span", { class: "mark", title: word },
        make("span", { "aria-hidden": "true" }, ` ${sign}`),
        make("span", { class: "unseen" }, ` ${word}`)));
    const level = request.status ? ` s${Math.floor(request.status / 100)}` : "";
    const link = make("a", { href: `/inspect/http/${request.id}`, tabindex: "-1" }, request.target);
    return make(
      "div",
      { role: "row", class: "row", id: `row-${request.id}`, "data-id": request.id },
      cell("time", request.start.slice(11, 23)),
      cell("method", request.method),
      cell("target", link),
      cell(`status${level}`, String(request.status ?? ""), ...found),
      cell("took", time(request.took)),
      cell("size", `${bytes(request.received)} / ${bytes(request.sent)}`),
      cell("source", request.source),
      cell("tunnel", request.tunnel),
    );
  }
}
