// Which events a filter of the traffic view shows, as `event_filter.rs` decides it for those that are still to come.

import { networkOf, sameNetwork } from "./address.js";

const has = (text, part) => (text ?? "").toLowerCase().includes(part);
const is = (text, whole) => (text ?? "").toLowerCase() === whole;

/** For each field of the filter, whether an event has what is written in it, in lower case. */
const TESTS = {
  host: (event, part) => has(event.host, part),
  path: (event, part) => has(event.path, part),
  rule: (event, part) => has(event.rule, part),
  edge: (event, id) => [event.edge_id, event.route_id, event.backend_id].some((it) => is(it, id)),
  module: (event, name) => is(event.module, name) || is(event.action, name),
  status: ({ status }, text) => status != null && (is(String(status), text) || is(`${String(status)[0]}xx`, text)),
  source: (event, text) => sameNetwork(networkOf(hostOf(event.peer)), networkOf(text)),
};

/** The address of a peer, without its port. */
export const hostOf = (peer) => peer.slice(0, peer.lastIndexOf(":")).replace(/^\[|\]$/g, "");

/** Whether an event has all that is written in the fields. */
export function matches(event, values) {
  return Object.entries(values).every(([name, text]) => !text || TESTS[name](event, text.toLowerCase()));
}
