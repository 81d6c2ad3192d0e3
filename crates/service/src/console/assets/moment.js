// Moments as people say them.

import { make } from "./dom.js";

/** A moment: how far it is, and exactly when. */
export function moment(text) {
  const time = Date.parse(text);
  const seconds = Math.abs(Date.now() - time) / 1000;
  const [size, unit] = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([it]) => seconds >= it) ?? [1, "s"];
  const far = `${Math.floor(seconds / size)} ${unit}`;
  return make("time", { datetime: text, title: new Date(time).toLocaleString() }, time > Date.now() ? `in ${far}` : `${far} ago`);
}
