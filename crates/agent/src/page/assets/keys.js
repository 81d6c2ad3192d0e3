// Keys of the page of requests.

import { make } from "./dom.js";
import { dialog, facts } from "./ui.js";

const KEYS = [
  ["j, ↓", "the next request"], ["k, ↑", "the previous request"], ["Enter", "open its details"],
  ["x", "select, or not"], ["Shift and ↓ ↑", "select further"], ["/", "filter"], ["r", "replay"], ["e", "edit and replay"], ["c", "compose"], ["p", "pin, or not"], ["n", "write a note"], ["?", "show these keys"],
  ["Esc", "back, or close"],
];

/** Says which keys there are. */
export function help() {
  dialog("Keys", facts(KEYS.map(([key, what]) => [make("kbd", {}, key), what])));
}

/** Listens for keys. `acts` has what they do beside moving in the list. */
export function onKeys(list, acts) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open], [popover]:popover-open")) return;
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
    if (event.key === "Escape") {
      if (!typing || typing.id === "filter-text") acts.escape(event.target);
      return;
    }
    if (typing) return;
    const act = actOf(event, list, acts);
    if (!act) return;
    event.preventDefault();
    // A key that is held down moves on, but sends nothing twice.
    if (event.repeat && [acts.replay, acts.modify, acts.newRequest, acts.pin, acts.note].includes(act)) return;
    act();
  });
}

function actOf(event, list, acts) {
  const inList = event.target === list.grid;
  const most = list.count;
  return {
    j: () => list.move(1), k: () => list.move(-1), J: () => list.move(1, true), K: () => list.move(-1, true),
    x: () => list.toggle(), "/": acts.filter, r: acts.replay, e: acts.modify, c: acts.newRequest, p: acts.pin, n: acts.note, "?": acts.help,
    ...(inList && {
      ArrowDown: () => list.move(1, event.shiftKey), ArrowUp: () => list.move(-1, event.shiftKey),
      PageDown: () => list.move(10), PageUp: () => list.move(-10),
      Home: () => list.move(-most), End: () => list.move(most),
    }),
    ...((inList || event.target === document.body) && { Enter: acts.enter }),
  }[event.key];
}
