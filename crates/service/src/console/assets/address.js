// Addresses and networks, of both versions of IP.

/** The 16-bit groups of an IPv6 address; null where it is none. */
function groupsOf(text) {
  const [, head, v4] = text.match(/^(.*:)(\d+\.\d+\.\d+\.\d+)$/) ?? [null, text, null];
  const bytes = v4 && bytesOf(v4);
  if (v4 && !bytes) return null;
  const full = bytes ? `${head}${((bytes[0] << 8) | bytes[1]).toString(16)}:${((bytes[2] << 8) | bytes[3]).toString(16)}` : text;
  const halves = full.split("::");
  if (halves.length > 2) return null;
  const [left, right] = halves.map((half) => (half ? half.split(":") : []));
  const missing = 8 - left.length - (right?.length ?? 0);
  if (right ? missing < 1 : missing !== 0) return null;
  const groups = right ? [...left, ...Array(missing).fill("0"), ...right] : left;
  return groups.every((group) => /^[0-9a-f]{1,4}$/i.test(group)) ? groups.map((group) => parseInt(group, 16)) : null;
}

function bytesOf(text) {
  const parts = text.split(".");
  return parts.length === 4 && parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) < 256) ? parts.map(Number) : null;
}

/** The bits of an address as text of 0 and 1; null where it is none. IPv4 inside of IPv6 is IPv4. */
export function bitsOf(text) {
  const binary = (numbers, width) => numbers.map((it) => it.toString(2).padStart(width, "0")).join("");
  if (!text.includes(":")) {
    const bytes = bytesOf(text);
    return bytes && binary(bytes, 8);
  }
  const groups = groupsOf(text);
  if (!groups) return null;
  const isMapped = groups.slice(0, 5).every((it) => it === 0) && groups[5] === 0xffff;
  return binary(isMapped ? groups.slice(6) : groups, 16);
}

/** A network in CIDR notation, or a single address: its bits, and how many of them count; null where it is neither. */
export function networkOf(text) {
  const [address, length, ...more] = text.split("/");
  const bits = bitsOf(address);
  if (!bits || more.length) return null;
  const count = length === undefined ? bits.length : /^\d{1,3}$/.test(length) ? Number(length) : NaN;
  return count <= bits.length ? { bits, count } : null;
}

/** Whether an address is in a network. */
export const sameNetwork = (address, network) => Boolean(address && network) && address.bits.length === network.bits.length
  && address.bits.startsWith(network.bits.slice(0, network.count));
