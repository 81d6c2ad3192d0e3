// Text of bodies in colour, with parts to fold and words to find.

import { button, make, say } from "./dom.js";
import { copyButton } from "./ui.js";

/** How many lines are coloured and folded; beyond that it is plain text. */
const MOST_LINES = 10_000;
const MOST_FOUND = 5000;
/** How long a line may be that is coloured, in characters: what a token may need grows with its square. */
const LONGEST_LINE = 10_000;

/** For each language what its tokens are, by the class that colours them. */
const LANGUAGES = {
  json: [["key", /"(?:[^"\\]|\\.)*"(?=\s*:)/], ["string", /"(?:[^"\\]|\\.)*"/], ["number", /-?\d[\d.eE+-]*/], ["word", /\b(?:true|false|null)\b/]],
  markup: [["note", /<!--[^]*?(?:-->|$)|<!\[CDATA\[[^]*?\]\]>|<[!?][^>]*>/], ["key", /<\/?[A-Za-z_][\w:.-]*|\/?>/], ["string", /(?<==\s*)(?:"[^"]*"|'[^']*')/], ["word", /(?<![\w:.-])[\w:.-]+(?=\s*=\s*["'])/], ["number", /&[\w#]+;/]],
  graphql: [["note", /#.*/], ["string", /"(?:[^"\\]|\\.)*"/], ["word", /\b(?:query|mutation|subscription|fragment|on|true|false|null)\b/], ["number", /\$\w+|-?\b\d[\d.]*\b/], ["key", /@\w+|\b\w+(?=\s*:)/]],
  text: [],
};

const patterns = new Map(Object.entries(LANGUAGES).map(([name, kinds]) =>
  [name, kinds.length ? new RegExp(kinds.map(([, pattern]) => `(${pattern.source})`).join("|"), "g") : null]));

/** Text with its tokens as spans. */
function coloured(text, language) {
  const pattern = patterns.get(language);
  if (!pattern || text.length > LONGEST_LINE) return [text];
  const kinds = LANGUAGES[language];
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(pattern)) {
    if (!found[0]) continue;
    if (found.index > from) parts.push(text.slice(from, found.index));
    const kind = kinds[found.slice(1).findIndex((group) => group !== undefined)][0];
    parts.push(make("span", { class: `t-${kind}` }, found[0]));
    from = found.index + found[0].length;
  }
  parts.push(text.slice(from));
  return parts;
}

const indent = (line) => line.search(/\S|$/);

/** Where each part ends that can be folded, by the line it begins with. */
function folds(lines) {
  const ends = new Map();
  const open = [];
  lines.forEach((line, at) => {
    if (!line.trim()) return;
    const depth = indent(line);
    while (open.length && open.at(-1).depth >= depth) {
      const { start } = open.pop();
      if (at - start > 1) ends.set(start, at);
    }
    open.push({ start: at, depth });
  });
  for (const { start } of open) if (lines.length - start > 1) ends.set(start, lines.length);
  return ends;
}

/** The lines as elements, and a way to fold them. */
function foldable(all, language) {
  const ends = folds(all);
  const closed = new Set();
  const rows = [];
  const toggles = [];
  const draw = () => {
    let until = 0;
    rows.forEach((row, at) => {
      row.hidden = at < until;
      if (at >= until && closed.has(at)) until = ends.get(at);
    });
  };
  const turn = (at, close) => {
    if (close) closed.add(at);
    else closed.delete(at);
    rows[at].classList.toggle("folded", close);
    rows[at].firstChild.setAttribute("aria-expanded", !close);
    draw();
  };
  const focus = (toggle) => {
    toggles.forEach((other) => {
      other.tabIndex = other === toggle ? 0 : -1;
    });
    toggle.focus();
  };
  const key = (event, at) => {
    const seen = toggles.filter((toggle) => !toggle.parentElement.hidden);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) focus(seen[Math.min(Math.max(seen.indexOf(event.target) + step, 0), seen.length - 1)]);
    else if (event.key === "ArrowLeft") turn(at, true);
    else if (event.key === "ArrowRight") turn(at, false);
    else return;
    event.preventDefault();
  };
  all.forEach((line, at) => {
    const toggle = ends.has(at) ? button("", () => turn(at, !closed.has(at)), {
      class: "fold", tabindex: toggles.length ? "-1" : "0", "aria-expanded": "true", "aria-label": `Line ${at + 1}`,
      keydown: (event) => key(event, at),
    }) : null;
    if (toggle) toggles.push(toggle);
    const end = at < all.length - 1 ? make("span", { class: "end" }, "\n") : null;
    rows.push(make("span", { class: "ln" }, toggle, ...coloured(line, language), end));
  });
  return {
    rows,
    canFold: ends.size > 0,
    all: (close) => [...ends.keys()].forEach((at) => at > 0 && turn(at, close)),
    show: (row) => {
      const at = rows.indexOf(row);
      for (const [start, end] of ends) if (start < at && at < end && closed.has(start)) turn(start, false);
    },
  };
}

/** The searches on the page: highlights are those of all of them. */
const searches = new Set();

function drawHighlights() {
  for (const search of searches) if (!search.place.isConnected) searches.delete(search);
  const all = [...searches];
  CSS.highlights?.set("found", new Highlight(...all.flatMap(({ found }) => found)));
  CSS.highlights?.set("current", new Highlight(...all.map(({ found, at }) => found[at]).filter(Boolean)));
}

/** Finds words in an element, and shows them. */
class Search {
  constructor(place, show) {
    Object.assign(this, { place, show, found: [], at: -1 });
    this.box = make("input", {
      placeholder: "Find in the body", "aria-label": "Find in the body", class: "find", autocomplete: "off", spellcheck: "false",
      input: () => this.look(), keydown: (event) => this.key(event),
    });
    this.count = make("span", { class: "hint nowrap", role: "status" });
    this.element = make("span", { class: "finding" }, this.box, this.count);
  }

  look() {
    const term = this.box.value.toLowerCase();
    this.found = [];
    this.at = -1;
    if (term) this.collect(term);
    searches.add(this);
    this.step(1);
  }

  collect(term) {
    const walker = document.createTreeWalker(this.place, NodeFilter.SHOW_TEXT);
    const nodes = [];
    let text = "";
    while (walker.nextNode()) {
      nodes.push([text.length, walker.currentNode]);
      text += walker.currentNode.data;
    }
    const lower = text.toLowerCase();
    // Some letters change their length with their case; then places would be wrong.
    const searched = lower.length === text.length ? lower : text;
    const node = (offset) => {
      let [low, high] = [0, nodes.length - 1];
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (nodes[middle][0] <= offset) low = middle;
        else high = middle - 1;
      }
      return [nodes[low][1], offset - nodes[low][0]];
    };
    for (let at = searched.indexOf(term); at >= 0 && this.found.length < MOST_FOUND; at = searched.indexOf(term, at + term.length)) {
      const range = new Range();
      range.setStart(...node(at));
      const [last, offset] = node(at + term.length - 1);
      range.setEnd(last, offset + 1);
      this.found.push(range);
    }
  }

  step(by) {
    const all = this.found.length;
    if (all) {
      this.at = (this.at + by + all) % all;
      const range = this.found[this.at];
      const row = range.startContainer.parentElement.closest(".ln");
      if (row) this.show(row);
      this.reach(range);
    }
    drawHighlights();
    say(this.count, this.box.value ? (all ? `${this.at + 1} of ${all}` : "not found") : "");
  }

  reach(range) {
    const [seen, place] = [range.getBoundingClientRect(), this.place.getBoundingClientRect()];
    if (seen.top < place.top || seen.bottom > place.bottom) {
      this.place.scrollTop += seen.top - place.top - this.place.clientHeight / 2;
    }
  }

  key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape" && this.box.value) {
      event.stopPropagation();
      this.box.value = "";
      this.look();
    }
  }
}

/** Text in a language, with tools above it; `tools` are further ones. */
export function viewer(text, language = "text", tools = []) {
  const all = text.split("\n");
  const rich = all.length <= MOST_LINES && language !== "text" ? foldable(all, language) : null;
  const body = make("pre", { tabindex: "0", class: "viewer" }, rich ? rich.rows : text);
  const search = new Search(body, (row) => rich?.show(row));
  return make("div", { class: "body" },
    make("div", { class: "tools body-tools" }, search.element,
      rich?.canFold ? button("Fold", () => rich.all(true), { class: "small quiet" }) : null,
      rich?.canFold ? button("Unfold", () => rich.all(false), { class: "small quiet" }) : null,
      copyButton(() => text, "Copy", { class: "small quiet", "aria-label": "Copy the body" }), tools),
    body);
}
