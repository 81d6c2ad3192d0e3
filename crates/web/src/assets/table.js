// A grid of rows: only those that can be seen are made, so ten thousand scroll like ten.

import { button, make } from "./dom.js";
import { check, menu, recall, remember } from "./ui.js";

const BEYOND = 8;
const FIRST_ROW = 2;
/** How often a sorted view with many rows is sorted anew, in milliseconds. */
const RESORT = 250;
const MANY = 2000;
/** Widths of the cell that selects, and of the space between cells, in rem. */
const [MARK, GAP] = [1.3, 0.6];
/** What a title needs that sorts: for each letter, and for the arrow beside it, in rem. */
const [LETTER, ARROW] = [0.55, 1.8];
/** The least share of the width for a column that takes what is left. */
const FLEX = 0.32;

const collator = new Intl.Collator("en", { numeric: true });

/** Nothing comes first, then numbers, then words. */
function compare(a, b) {
  if (a == null || b == null) return (a != null) - (b != null);
  return typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
}

/**
 * `columns` are `{ id, title, cell, width, flex, end, sort, rank, off }`: `cell(row)` makes text or
 * elements, `width` is in rem (the least one with `flex`), `sort(row)` makes what is compared, columns of
 * the highest `rank` are left out first where there is no room (those without are never), and columns
 * that are `off` are shown when somebody chooses them.
 *
 * `key(row)` is the row's name; names ascend in the order of arrival. `newestFirst` turns that round.
 * `choose(key)` gets which row is looked at, `open(key)` that it was clicked, and `selected(keys)` which
 * rows are marked. What is chosen of columns and order is kept in the browser under `name`.
 */
export class Table {
  constructor({
    place, id = "list", body = "rows", name, label, columns, key, href, choose, open, selected = null,
    newestFirst = false, rowClass = () => "",
  }) {
    Object.assign(this, { name, columns, key, href, choose, open, selected, newestFirst, rowClass });
    this.rows = new Map();
    this.order = [];
    this.made = new Map();
    this.marked = new Set();
    this.chosen = null;
    this.fresh = 0;
    const kept = recall(`${name}.table`, {});
    this.sort = columns.some((column) => column.id === kept.sort?.id && column.sort) ? kept.sort : null;
    // Those that somebody asked for, the last one first: they are left out last.
    this.prioritized = kept.prioritized ?? [];
    this.shown = new Set(kept.columns ?? columns.filter((column) => !column.off).map((column) => column.id));
    this.head = make("div", { role: "row", class: "row head", "aria-rowindex": "1" });
    this.body = make("div", { id: body, role: "rowgroup" });
    this.grid = make("div", {
      id, role: "grid", class: "table", "aria-label": label, "aria-rowcount": "1", tabindex: "0",
      "aria-multiselectable": selected ? "true" : null,
      scroll: () => this.draw(),
    }, make("div", { role: "rowgroup" }, this.head), this.body);
    this.body.addEventListener("click", (event) => this.click(event));
    place.append(this.grid);
    this.fit();
    new ResizeObserver(() => this.measure()).observe(this.grid);
  }

  get count() {
    return this.order.length;
  }

  /** Forgets every row. */
  clear() {
    this.rows.clear();
    this.order = [];
    this.fresh = 0;
    this.mark([]);
    this.stale = true;
    for (const row of this.made.values()) row.remove();
    this.made.clear();
    this.draw();
  }

  /** Adds or changes rows, given oldest first; what is on the screen stays where it is. */
  put(rows) {
    const known = this.order.length;
    const newest = this.order[known - 1] ?? "";
    let late = false;
    for (const row of rows) {
      const key = this.key(row);
      if (!this.rows.has(key)) {
        late ||= key < newest;
        this.order.push(key);
      }
      this.rows.set(key, row);
      this.made.get(key)?.remove();
      this.made.delete(key);
    }
    if (late) this.order.sort();
    this.stale ||= rows.length > 0;
    this.keepPlace(known, newest);
    this.draw();
  }

  /** New rows come in above; who has scrolled down is not pushed around. */
  keepPlace(known, newest) {
    if (this.sort || !this.newestFirst) return;
    const above = this.order.length - 1 - this.order.lastIndexOf(newest);
    if (!known || above <= 0 || this.grid.scrollTop < 1) return;
    this.fresh += above;
    this.resize();
    this.grid.scrollTop += above * this.height;
  }

  /** Takes rows out that are not to be shown, or not kept, any more; `stays(row)` although it is older. */
  drop(keys, oldest, stays = () => false) {
    const gone = new Set(keys.filter((key) => this.rows.has(key)));
    const kept = (key) => !gone.has(key) && (oldest == null || key >= oldest || stays(this.rows.get(key)));
    if (this.order.every(kept)) return;
    this.order = this.order.filter((key) => kept(key) || !this.rows.delete(key));
    this.stale = true;
    if ([...this.marked].some((key) => !this.rows.has(key))) this.mark([...this.marked].filter((key) => this.rows.has(key)));
    this.draw();
  }

  // ── Order ──────────────────────────────────────────────────────────────────────────────────

  at(index) {
    if (this.sort) return this.sorted()[index];
    return this.newestFirst ? this.order[this.order.length - 1 - index] : this.order[index];
  }

  indexOf(key) {
    if (this.sort) return this.sorted().indexOf(key);
    const at = this.order.lastIndexOf(key);
    return at < 0 || !this.newestFirst ? at : this.order.length - 1 - at;
  }

  /** The keys in the order that was chosen. */
  sorted() {
    const now = performance.now();
    const complete = this.view?.length === this.order.length;
    if (!this.stale && complete) return this.view;
    if (complete && this.count > MANY && now - this.sortedAt < RESORT) {
      this.later ??= setTimeout(() => {
        this.later = null;
        this.draw();
      }, RESORT);
      return this.view;
    }
    const { id, down } = this.sort;
    const value = this.columns.find((column) => column.id === id).sort;
    const keyed = this.order.map((key) => [value(this.rows.get(key)), key]);
    keyed.sort((a, b) => compare(a[0], b[0]) || (a[1] < b[1] ? -1 : 1));
    if (down) keyed.reverse();
    this.view = keyed.map(([, key]) => key);
    this.stale = false;
    this.sortedAt = now;
    return this.view;
  }

  /** First by a column upwards, then downwards, then in the order of arrival again. */
  sortBy(id) {
    if (this.sort?.id !== id) this.sort = { id, down: false };
    else if (!this.sort.down) this.sort = { id, down: true };
    else this.sort = null;
    this.stale = true;
    this.keep();
    this.drawHead();
    this.draw();
  }

  keep() {
    remember(`${this.name}.table`, { sort: this.sort, columns: [...this.shown], prioritized: this.prioritized });
  }

  // ── Columns ────────────────────────────────────────────────────────────────────────────────

  /** Chooses the columns for which there is room. */
  fit() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const room = (this.grid.clientWidth || 1000) / rem - (this.selected ? MARK : 0) - 1;
    let seen = this.columns.filter((column) => this.shown.has(column.id) || column.rank == null);
    const width = (column) => (column.sort ? Math.max(column.width, column.title.length * LETTER + ARROW) : column.width);
    const least = (column) => (column.flex ? Math.max(column.width, room * FLEX) : width(column));
    // What was asked for stays longer than what nobody chose.
    const last = (column) => {
      const at = this.prioritized.indexOf(column.id);
      return at < 0 ? 1000 + column.rank : at;
    };
    const need = () => seen.reduce((sum, column) => sum + least(column) + GAP, 0);
    while (need() > room) {
      const [first] = seen.filter((column) => column.rank != null).sort((a, b) => last(b) - last(a));
      if (!first) break;
      seen = seen.filter((column) => column !== first);
    }
    const changed = this.seen?.map(({ id }) => id).join() !== seen.map(({ id }) => id).join();
    this.seen = seen;
    if (!changed) return;
    const widths = seen.map((column) => column.flex ? `minmax(0, 1fr)` : `${width(column)}rem`);
    this.grid.style.setProperty("--columns", [this.selected ? `${MARK}rem` : "", ...widths].join(" "));
    this.grid.setAttribute("aria-colcount", seen.length + (this.selected ? 1 : 0));
    this.drawHead();
    for (const row of this.made.values()) row.remove();
    this.made.clear();
  }

  drawHead() {
    const focused = this.head.contains(document.activeElement) ? document.activeElement.dataset.column : null;
    this.head.replaceChildren(
      ...(this.selected ? [make("span", { role: "columnheader", class: "select" }, make("span", { class: "unseen" }, "Selected"))] : []),
      ...this.seen.map((column) => {
        const sorted = this.sort?.id === column.id ? (this.sort.down ? "descending" : "ascending") : null;
        return make("span", { role: "columnheader", class: this.cellClass(column), "aria-sort": column.sort ? sorted ?? "none" : null },
          column.sort
            ? button(column.title, () => this.sortBy(column.id), { class: "sorter", "data-column": column.id, title: `Sort by ${column.title.toLowerCase()}` })
            : column.title,
          sorted ? make("span", { "aria-hidden": "true" }, sorted === "descending" ? " ↓" : " ↑") : null);
      }));
    if (focused) this.head.querySelector(`[data-column="${focused}"]`)?.focus();
  }

  cellClass(column) {
    return column.end ? `${column.id} end` : column.id;
  }

  /** A menu to choose columns with. */
  columnMenu(label = "Columns") {
    return menu(label, () => this.columnChecks());
  }

  /** A box for each column that may be left out. */
  columnChecks() {
    return this.columns.filter((column) => column.rank != null).map((column) => {
      const isLeftOut = this.shown.has(column.id) && !this.seen.includes(column);
      return check(`${column.title}${isLeftOut ? " (no room)" : ""}`, (yes) => {
        this.prioritized = this.prioritized.filter((id) => id !== column.id);
        if (yes) this.prioritized.unshift(column.id);
        if (yes) this.shown.add(column.id);
        else this.shown.delete(column.id);
        this.keep();
        this.fit();
        this.draw();
      }, { checked: this.shown.has(column.id) });
    });
  }

  /** Makes the cells of a column anew, where they depend on more than their rows. */
  refresh(id) {
    const at = this.seen.findIndex((column) => column.id === id);
    if (at < 0) return;
    for (const [key, row] of this.made) {
      const cell = row.children[at + (this.selected ? 1 : 0)];
      cell.replaceChildren(...[this.seen[at].cell(this.rows.get(key))].flat().filter((child) => child != null));
    }
  }

  // ── Choice and selection ───────────────────────────────────────────────────────────────────

  /** Says which row is looked at, and brings it into view. */
  look(key, show = true) {
    this.chosen = key;
    const index = key == null ? -1 : this.indexOf(key);
    if (show && index >= 0) this.show(index);
    this.draw();
  }

  show(index) {
    const top = index * this.height;
    const room = this.grid.clientHeight - this.head.offsetHeight;
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    else if (top + this.height > this.grid.scrollTop + room) {
      this.grid.scrollTop = top + this.height - room;
    }
  }

  /** Chooses the row that is so many rows further down; `extend` selects what is passed. */
  move(by, extend = false) {
    if (!this.count) return;
    const from = this.indexOf(this.chosen);
    const next = Math.min(Math.max(from + by, 0), this.count - 1);
    if (extend && this.selected) this.markRange(Math.max(from, 0), next);
    this.choose(this.at(next));
  }

  click(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    event.preventDefault();
    const { key } = row.dataset;
    if (this.selected && event.shiftKey) {
      getSelection().removeAllRanges();
      this.markRange(Math.max(this.indexOf(this.anchor ?? this.chosen), 0), this.indexOf(key));
    } else if (this.selected && (event.metaKey || event.ctrlKey || event.target.closest(".select"))) this.toggle(key);
    else {
      this.choose(key);
      this.open?.(key);
    }
  }

  toggle(key = this.chosen) {
    if (!this.selected || !this.rows.has(key)) return;
    this.anchor = key;
    const marked = new Set(this.marked);
    if (!marked.delete(key)) marked.add(key);
    this.mark(marked);
  }

  markRange(from, to) {
    const marked = new Set(this.marked);
    for (let at = Math.min(from, to); at <= Math.max(from, to); at += 1) marked.add(this.at(at));
    this.mark(marked);
  }

  /** Selects exactly these rows. */
  mark(keys) {
    this.marked = new Set(keys);
    this.selected?.(this.marked);
    this.draw();
  }

  // ── Drawing ────────────────────────────────────────────────────────────────────────────────

  measure() {
    this.fit();
    const probe = make("div", { class: "row" }, make("span", {}, "X"));
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
    const visible = new Set();
    for (let index = first; index < last; index += 1) visible.add(this.at(index));
    for (const [key, row] of this.made) {
      if (!visible.has(key)) {
        row.remove();
        this.made.delete(key);
      }
    }
    let before = this.body.firstChild;
    for (let index = first; index < last; index += 1) {
      const row = this.place(this.at(index), index);
      // In the order in which they are seen, for those who are read to.
      if (row === before) before = row.nextSibling;
      else this.body.insertBefore(row, before);
    }
    if (this.made.has(this.chosen)) this.grid.setAttribute("aria-activedescendant", this.made.get(this.chosen).id);
    else this.grid.removeAttribute("aria-activedescendant");
    this.drawn?.();
  }

  place(key, index) {
    let row = this.made.get(key);
    if (!row) {
      row = this.row(key);
      this.made.set(key, row);
    }
    const isMarked = this.marked.has(key);
    row.style.transform = `translateY(${index * this.height}px)`;
    row.setAttribute("aria-rowindex", index + FIRST_ROW);
    row.setAttribute("aria-selected", this.marked.size ? isMarked : key === this.chosen);
    row.classList.toggle("chosen", key === this.chosen);
    row.classList.toggle("marked", isMarked);
    return row;
  }

  row(key) {
    const row = this.rows.get(key);
    return make(
      "div",
      { role: "row", class: `row ${this.rowClass(row)}`.trim(), id: `row-${key}`, "data-key": key, "data-id": key },
      this.selected ? make("span", { role: "gridcell", class: "select" }, make("span", { class: "box", "aria-hidden": "true" })) : null,
      ...this.seen.map((column) => make("span", { role: "gridcell", class: this.cellClass(column) }, column.cell(row))));
  }

  /** A link in a cell, for opening a row elsewhere. */
  link(row, ...content) {
    return make("a", { href: this.href(row), tabindex: "-1" }, ...content);
  }
}
