// Says across the page that the agent has no session with the service, why, and when it tries again.

import { byId, make, say } from "./dom.js";
import { ask } from "./server.js";

const PAUSE = 1000;
const SIGNS = { online: "●", connecting: "◌", reconnecting: "◌", stopping: "◌", offline: "○" };

let timer;
let next = null;

/** Shows the state in the bar; `note` stands behind it. */
export function showState(service, note = "") {
  const element = byId("state");
  say(element, service ? `${SIGNS[service]} ${service}${note}` : "○ the agent does not respond");
  element.className = service ?? "away";
}

function banner() {
  let place = byId("outage");
  if (!place) {
    place = make("section", { id: "outage", class: "notice bad", hidden: true, "aria-label": "Session with the service" },
      make("span", { id: "outage-reason", role: "alert" }), " ", make("span", { id: "outage-next" }));
    document.querySelector("main").before(place);
  }
  return place;
}

/** Shows an outage, from the data of the status page; null when the agent itself does not respond. */
export function showOutage(status) {
  const place = banner();
  place.hidden = status?.state === "online";
  if (place.hidden) {
    say(byId("outage-reason"), "");
    return;
  }
  const why = status?.failures[0]?.reason;
  say(byId("outage-reason"), reason(status, why));
  next = ["offline", "stopping"].includes(status?.state) ? null : status?.next_attempt ?? null;
  countDown();
}

function reason(status, why) {
  if (!status) return "The agent does not respond: it was stopped, or is not reachable from here.";
  if (status.state === "stopping") return "The agent is stopping: new visitors get errors, and it waits for those that it serves.";
  const tail = why ? `: ${why}` : "";
  if (status.state === "offline") return `The agent was refused by the service, or is stopping${tail}.`;
  if (status.state === "connecting") return `The agent connects to the service for the first time${tail}.`;
  return `The agent has lost the service; visitors get errors until it is back${tail}.`;
}

function countDown() {
  const left = next ? Math.ceil((Date.parse(next) - Date.now()) / 1000) : null;
  say(byId("outage-next"), left == null ? "" : left > 0 ? `Next attempt in ${left} s.` : "Trying now.");
}

let followed = "online";

/** Follows an outage until there is a session again; `state` is null when the agent does not respond. */
export function followOutage(state) {
  if (state === followed) return;
  followed = state;
  clearTimeout(timer);
  if (state === "online") showOutage({ state });
  else if (state === null) showOutage(null);
  else look();
}

async function look() {
  const status = await ask("/inspect/data/status").catch(() => null);
  showOutage(status);
  if (status?.state !== "online") timer = setTimeout(look, PAUSE);
}
