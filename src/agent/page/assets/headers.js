// Headers as lines of text, one on each, as people write them.

/** Pairs of name and value; fails with the line that is none. */
export function pairsOf(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`Headers: “${line}” is not written as name: value.`);
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
