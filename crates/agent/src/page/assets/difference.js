// What is different between two requests, or two answers.

import { make } from "./dom.js";
import { few, lines as layOut, mistake, unread } from "./body.js";

const MOST = 3000;

/** The lines of a message; `tidy` with headers by name and a line for each member of JSON. */
function lines(part, tidy = false) {
  if (!part) return ["(none)"];
  const hidden = isHidden(part) ? `(${unread(part)})` : null;
  const sent = hidden ?? part.text ?? part.raw_text;
  const body = tidy && /^\s*[[{]/.test(sent ?? "") && mistake(sent) === null ? layOut(sent) : sent;
  const fields = part.headers.map((field) => `${field.name}: ${field.value}`);
  const name = (field) => field.slice(0, field.indexOf(":")).toLowerCase();
  if (tidy) fields.sort((a, b) => name(a).localeCompare(name(b)));
  const head = [part.line, ...fields];
  return [...head, "", ...(body === null ? [`(${part.length} bytes)`] : body.split("\n"))];
}

/** Whether nothing is known of the body but how long it is. */
function isHidden(part) {
  return Boolean(part?.hidden);
}

/** Both messages in one: lines that went, came, and stayed. */
export function difference(before, after) {
  const tidy = compare(lines(before, true), lines(after, true));
  // Where only order or blanks differ, as both were sent.
  const changes = tidy?.some(([sign]) => sign !== " ") ? tidy : compare(lines(before), lines(after));
  if (!changes) return make("p", { class: "hint" }, "They are too long to be compared.");
  if (changes.every(([sign]) => sign === " ")) {
    const known = isHidden(after) ? "They are the same, as far as they can be read." : "They are the same.";
    return make("p", { class: "hint" }, known);
  }
  const kinds = { "+": ["added", "new: "], "-": ["removed", "before: "], " ": ["same", ""] };
  return make("pre", { class: "difference", tabindex: "0" }, few(changes, ([sign, line]) => {
    const [kind, word] = kinds[sign];
    return make("span", { class: kind },
      make("span", { class: "unseen" }, word), `${sign} ${line}\n`);
  }, (rest) => make("span", { class: "hint" }, rest)));
}

/** Pairs of sign and line; null when there are too many. By the longest common subsequence. */
export function compare(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  const shorter = Math.min(before.length, after.length) - start;
  while (end < shorter && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const [a, b] = [before.slice(start, before.length - end), after.slice(start, after.length - end)];
  if (a.length * b.length > MOST * MOST) return null;
  const same = (line) => [" ", line];
  return [
    ...before.slice(0, start).map(same),
    ...middle(a, b),
    ...(end ? before.slice(-end).map(same) : []),
  ];
}

function middle(a, b) {
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = a[i] === b[j]
        ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const changes = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      changes.push([" ", a[i]]);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      changes.push(["-", a[i]]);
      i += 1;
    } else {
      changes.push(["+", b[j]]);
      j += 1;
    }
  }
  return changes;
}
