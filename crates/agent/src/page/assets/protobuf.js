// Messages of Protocol Buffers without their description: fields by number, as the wire has them.


const MAX_DEPTH = 20;
const INDENT = "  ";

/** A variable-length integer at a place: its value and what comes after it; null where there is none. */
function varint(data, at) {
  let value = 0n;
  for (let shift = 0n; at < data.length && shift < 70n; shift += 7n) {
    const byte = data[at];
    at += 1;
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [BigInt.asUintN(64, value), at];
  }
  return null;
}

const isReadable = (words) => words !== null && !/[\u0000-\u0008\u000e-\u001f\u007f]/.test(words);

/** What has a length: a text, a message of its own, or bytes. */
function nested(data, name, depth) {
  const words = text(data);
  if (data.length && isReadable(words)) return [`${name}: ${JSON.stringify(words)}`];
  const inner = depth < MAX_DEPTH && data.length ? fieldsOf(data, depth + 1) : null;
  if (inner) return [`${name} {`, ...inner.map((line) => INDENT + line), "}"];
  return [`${name}: ${data.length ? [...data].map((byte) => byte.toString(16).padStart(2, "0")).join(" ") : "\"\""}`];
}

/** The lines of a message, one for each field; null where the bytes are none. */
export function fieldsOf(data, depth = 0) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const lines = [];
  let at = 0;
  while (at < data.length) {
    const key = varint(data, at);
    if (!key || key[0] >> 3n === 0n) return null;
    const name = String(key[0] >> 3n);
    const kind = Number(key[0] & 7n);
    at = key[1];
    if (kind === 0) {
      const value = varint(data, at);
      if (!value) return null;
      lines.push(`${name}: ${value[0]}`);
      at = value[1];
    } else if (kind === 1 || kind === 5) {
      const size = kind === 1 ? 8 : 4;
      if (at + size > data.length) return null;
      const [whole, real] = kind === 1 ? [view.getBigUint64(at, true), view.getFloat64(at, true)] : [view.getUint32(at, true), view.getFloat32(at, true)];
      lines.push(`${name}: ${whole} (as a float ${real})`);
      at += size;
    } else if (kind === 2) {
      const length = varint(data, at);
      if (!length || length[1] + Number(length[0]) > data.length) return null;
      lines.push(...nested(data.subarray(length[1], length[1] + Number(length[0])), name, depth));
      at = length[1] + Number(length[0]);
    } else return null;
  }
  return lines;
}

/** The text of bytes; null when they are not UTF-8. Fields of messages have no other charset. */
export function text(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}
