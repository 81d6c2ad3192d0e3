// The tools above the list that are seldom used: beside each other, or in one menu where there is no room.

import { button, make } from "./dom.js";
import { importButton } from "./import.js";
import { timesAreRelative, turnTimes } from "./list.js";
import { query } from "./server.js";
import { check, menu } from "./ui.js";

/** Whether the styles hide an element for want of room. */
export const isFolded = (element) => getComputedStyle(element).display === "none";

/**
 * The elements of the tools, and what tells them of another filter. `addresses` opens the addresses of tunnels,
 * which have no row of their own on a narrow screen, and `usage` says how full the agent's memory is.
 */
export function seldomTools({ list, clear, help, addresses, usage }) {
  const times = button("Age", () => turn(), { id: "ages", "aria-pressed": timesAreRelative(), title: "How long ago, instead of the time of day" });
  const turn = () => {
    turnTimes(list);
    times.setAttribute("aria-pressed", timesAreRelative());
  };
  const exporting = make("a", { class: "button", download: "requests.har", id: "export" }, "Export HAR");
  const [importing, file] = importButton();
  const row = make("span", { id: "seldom" }, times, list.columnMenu(), exporting, importing, button("Clear…", clear, { id: "clear", "aria-label": "Clear requests…" }));
  const title = (text) => make("p", { class: "title" }, text);
  // Actions of the list are of no use while it is empty.
  const ofList = () => (isFolded(list.grid.closest(".panes")) ? [] : [
    title("Columns"), ...list.columnChecks(), check("Times as an age", turn, { checked: timesAreRelative() }), null,
    ["Export HAR", () => exporting.click()], ["Clear requests…", clear]]);
  const more = menu("More", () => [
    ["Addresses", addresses], ["Import HAR…", () => importing.click()], ["Keys", help], null, ...ofList(), title(usage())], { id: "more" });
  more.id = "folded";
  return {
    elements: [row, more, file],
    exports: (filter) => {
      exporting.href = `/inspect/data/export.har${query({ filter })}`;
    },
  };
}
