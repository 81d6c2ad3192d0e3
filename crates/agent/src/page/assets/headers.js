// What people write in forms: headers as lines of text, and bytes as digits.

/** Pairs of name and value; fails with the line that is none. */
export function pairsOf(text, what = "Headers") {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`${what}: “${line}” is not written as name: value.`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
}

/** Lines of pairs. */
export function linesOf(pairs) {
  return pairs.map(([name, value]) => `${name}: ${value}`).join("\n");
}

/** An object of names, each with all its values in order. */
export function valuesOf(text) {
  const headers = {};
  for (const [name, value] of pairsOf(text)) (headers[name] ??= []).push(value);
  return headers;
}

/** An object of names; several values of one are parted by line breaks, as rules have them. */
export function joinedOf(text) {
  return Object.fromEntries(Object.entries(valuesOf(text)).map(([name, values]) => [name, values.join("\n")]));
}

/** Lines of such an object. */
export function linesOfJoined(headers) {
  return linesOf(Object.entries(headers ?? {}).flatMap(([name, values]) => values.split("\n").map((value) => [name, value])));
}

const ROW = 16;

/** Bytes as pairs of hexadecimal digits, sixteen on each line. */
export function digitsOf(bytes) {
  const rows = [];
  for (let at = 0; at < bytes.length; at += ROW) rows.push(Array.from(bytes.subarray(at, at + ROW), (byte) => byte.toString(16).padStart(2, "0")).join(" "));
  return rows.join("\n");
}

/** The bytes of such digits; fails with the line and what is no digit in it. */
export function bytesOfDigits(text) {
  const all = [];
  text.split("\n").forEach((line, at) => {
    const digits = line.replace(/\s/g, "");
    const wrong = /[^0-9a-f]/i.exec(digits);
    if (wrong) throw new Error(`Body: line ${at + 1}: “${wrong[0]}” is no hexadecimal digit.`);
    if (digits.length % 2) throw new Error(`Body: line ${at + 1} has an odd number of digits.`);
    for (let place = 0; place < digits.length; place += 2) all.push(parseInt(digits.slice(place, place + 2), 16));
  });
  return Uint8Array.from(all);
}
