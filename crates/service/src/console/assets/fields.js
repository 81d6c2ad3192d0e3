// What can be known of a field while somebody types in it, by the name of the field in the API. The service decides.

import { bitsOf, networkOf } from "./address.js";

const NAME = /^(\*\.)?([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.?$/i;

/** What is wrong with a host name; a star stands for all names below the rest. */
function hostName(text) {
  if (text.length > 253) return `${text.slice(0, 20)}… has ${text.length} characters, the limit is 253`;
  return NAME.test(text) ? "" : `${JSON.stringify(text)} is not a host name, such as app.example.com`;
}

/** What is wrong with a host and a port. */
function hostPort(text) {
  const [, host, port] = text.match(/^(.*):([^:\]]*)$/) ?? [];
  if (port === undefined) return `${JSON.stringify(text)} has no port: write host:port`;
  if (!/^\d+$/.test(port) || Number(port) < 1 || Number(port) > 65535) return `${JSON.stringify(text)} has the port ${JSON.stringify(port)}: a port is a number from 1 to 65535`;
  if (/^\[.*\]$/.test(host)) return bitsOf(host.slice(1, -1)) ? "" : `${JSON.stringify(host)} is not an IPv6 address`;
  return hostName(host);
}

function cidr(text) {
  const network = networkOf(text);
  if (!network || !text.includes("/")) return `${JSON.stringify(text)} is not a network in CIDR notation, such as 192.0.2.0/24 or 2001:db8::/32`;
  return network.bits.slice(network.count).includes("1") ? `${JSON.stringify(text)} has bits after the first ${network.count}: they must be 0` : "";
}

/** For the name of a field: what is wrong with its text, or with one of its lines; empty where nothing is. */
const CHECKS = { hostports: hostPort, cidr, address: hostPort, domain: hostName };

const LISTED = /(?:^|: )(`[\w.-]+`(?:,? (?:\([\w ]+\),? |the default,? )?(?:or )?`[\w.-]+`)+)/;

/** The words of which a field holds one, where its description lists them, as in "`allow` or `deny`". */
export function listed(description) {
  const [, list] = description?.match(LISTED) ?? [];
  return list?.includes(" or ") ? [...list.matchAll(/`([^`]+)`/g)].map(([, word]) => word) : [];
}

/** What is wrong with a value; the first line that something is wrong with is named. */
export function fault(name, value) {
  const check = CHECKS[name];
  if (!check || value == null) return "";
  return [value].flat().map(check).find(Boolean) ?? "";
}
