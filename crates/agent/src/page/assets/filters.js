// The filter: common terms, filters that were kept, and hints where a word is not known.

import { button, byId, make } from "./dom.js";
import { check, dialog, field, menu, recall, remember } from "./ui.js";

const SUGGESTED = ["status:5xx", "status:4xx", "is:replay", ">500ms"];
/** As crates/agent/src/page/filter.rs reads them. */
const WORDS = ["method", "path", "status", "grpc", "took", "after", "before", "size", "header", "body", "tunnel", "is"];
const MARKS = ["replay", "failed", "truncated", "unanswered", "mocked", "held", "edited", "policy", "pinned", "noted", "imported"];
const NEAR = 3;

/** How many letters differ. */
export function distance(a, b) {
  let before = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      row.push(Math.min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    before = row;
  }
  return before.at(-1);
}

function nearest(word, known) {
  const best = known.map((name) => [distance(word.toLowerCase(), name), name]).sort((a, b) => a[0] - b[0])[0];
  return best[0] < Math.min(NEAR, word.length) ? best[1] : null;
}

/** The terms of a filter, those in quotes as one. */
export function terms(filter) {
  return filter.match(/(?:"[^"]*"|\S)+/g) ?? [];
}

/** What was probably meant: `[said, meant, term, better]`; `meant` null where nothing is near. */
export function mistake(filter) {
  for (const term of terms(filter)) {
    const [, minus, word, value] = /^(-?)([a-z_]+):(?!\/\/)(.*)$/i.exec(term) ?? [];
    if (!word) continue;
    if (!WORDS.includes(word)) {
      const meant = nearest(word, WORDS);
      return { said: `${word}:`, meant: meant && `${meant}:`, term, better: meant && `${minus}${meant}:${value}` };
    }
    if (word === "is" && !MARKS.includes(value)) {
      const meant = nearest(value, MARKS);
      return { said: term, meant: meant && `is:${meant}`, term, better: meant && `${minus}is:${meant}` };
    }
  }
  return null;
}

/** Shows a hint where a filter has a word that is none, with a button for the nearest. */
export function hint(filter, apply) {
  const place = byId("suggestion");
  const found = mistake(filter);
  if (!found) {
    place.replaceChildren();
    return;
  }
  place.replaceChildren(
    `“${found.said}” is no word of filters${found.said.endsWith(":") ? `: the text “${found.term}” is looked for` : ""}. `,
    found.meant ? make("span", {}, "Did you mean ", button(found.meant, () => apply(filter.replace(found.term, found.better)), { class: "small" }), "?")
      : `Words are ${WORDS.map((word) => `${word}:`).join(" ")}`);
}

/** A filter with a term that it did not have, or without the one that it had. */
function toggled(filter, term) {
  const all = terms(filter);
  const rest = all.filter((known) => known !== term);
  return (rest.length === all.length ? [...all, term] : rest).join(" ");
}

/** Common terms to turn on and off. */
export function drawChips(place, filter, apply) {
  const toggle = (term) => {
    apply(toggled(filter, term));
    place.querySelector(`[data-term="${term}"]`)?.focus();
  };
  place.replaceChildren(
    ...SUGGESTED.map((term) => button(term, () => toggle(term), {
      class: "chip", "data-term": term, "aria-pressed": terms(filter).includes(term),
    })),
    filter ? button("No filter", () => apply(""), { class: "chip" }) : "");
}

/** A menu of filters that were kept in this browser, and of common terms where `hasTerms` says so. */
export function savedMenu(current, apply, hasTerms) {
  const saved = () => recall("filters", []);
  const keep = (filters) => remember("filters", filters);
  return menu("Saved", () => [
    ...(hasTerms() ? [...SUGGESTED.map((term) => check(term, () => apply(toggled(current(), term)), { checked: terms(current()).includes(term) })),
      ...(current() ? [["No filter", () => apply("")]] : []), null] : []),
    ...saved().map(({ name, filter }) => make("div", { class: "saved" },
      button(make("span", {}, name, make("span", { class: "hint mono" }, ` ${filter}`)), (event) => {
        event.target.closest("[popover]").hidePopover();
        apply(filter);
      }, { class: "quiet" }),
      button("×", (event) => {
        keep(saved().filter((other) => other.name !== name));
        event.target.closest(".saved").remove();
      }, { class: "quiet", "aria-label": `Forget the filter ${name}` }))),
    saved().length ? null : make("p", { class: "title" }, "No filter was saved yet."),
    ["Save this filter…", () => ask(current(), (name) => keep([...saved().filter((other) => other.name !== name), { name, filter: current() }])), { disabled: !current() }],
  ], { "aria-label": "Saved filters" });
}

function ask(filter, keep) {
  const name = make("input", { required: true, maxlength: "60", autocomplete: "off" });
  name.value = filter.slice(0, 60);
  dialog("Save the filter", make("div", {}, make("p", {}, make("code", {}, filter)), field("Name", name)), [["Save", () => keep(name.value.trim() || filter)]]);
  name.select();
}
