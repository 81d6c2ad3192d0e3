// What waits to be delivered to a destination of events, and why it waits.

import { bytes, make } from "./dom.js";
import { moment } from "./moment.js";
import { data } from "./session.js";
import { badge, facts } from "./ui.js";

/** The time between two looks, in milliseconds. */
const PAUSE = 5000;

function failure({ at, attempts, problem }) {
  const state = attempts ? badge(`${attempts} failed ${attempts === 1 ? "attempt" : "attempts"}`, "bad") : badge("delivered since", "good");
  return make("span", {}, state, " ", moment(at), make("span", { class: "block" }, problem));
}

function draw({ count, bytes: size, oldest_at: oldest, last_failure: last }) {
  return facts([
    ["Events", count ? String(count) : "none"], count ? ["Size", bytes(size)] : null, oldest ? ["Oldest", moment(oldest)] : null,
    ["Last failure", last ? failure(last) : "none that this node knows of"],
  ]);
}

/** The section of one destination, which follows what happens while it is shown. */
export async function deliveriesOf({ signal }, { id }) {
  const path = `deliveries?id=${encodeURIComponent(id)}`;
  const place = make("div", {}, draw(await data(path)));
  const follow = () => setTimeout(async () => {
    if (signal.aborted) return;
    const found = document.hidden ? null : await data(path, undefined, { inBackground: true }).catch(() => null);
    if (signal.aborted) return;
    // What cannot be read stays as it was: the bar says when the service is away.
    if (found) place.replaceChildren(draw(found));
    follow();
  }, PAUSE);
  follow();
  return make("section", { class: "deliveries", "aria-label": "Waiting to be delivered" }, make("h2", {}, "Waiting to be delivered"), place);
}
