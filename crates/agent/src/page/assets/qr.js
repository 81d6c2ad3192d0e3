// QR codes (ISO/IEC 18004) of short texts: bytes, error correction level M, versions 1 to 10.

import { draw } from "./dom.js";

/** For each version: all codewords, error correction codewords of a block, blocks, alignment patterns. */
const VERSIONS = [
  [26, 10, 1, []], [44, 16, 1, [6, 18]], [70, 26, 1, [6, 22]], [100, 18, 2, [6, 26]], [134, 24, 2, [6, 30]],
  [172, 16, 4, [6, 34]], [196, 18, 4, [6, 22, 38]], [242, 22, 4, [6, 24, 42]], [292, 22, 5, [6, 26, 46]],
  [346, 26, 5, [6, 28, 50]],
];
const MASKS = [
  (x, y) => (x + y) % 2 === 0, (x, y) => y % 2 === 0, (x) => x % 3 === 0, (x, y) => (x + y) % 3 === 0,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2 === 0, (x, y) => ((x * y) % 2) + ((x * y) % 3) === 0,
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2 === 0, (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2 === 0,
];
/** Level M in the format information. */
const LEVEL = 0;
const QUIET = 4;

// ── Error correction: Reed–Solomon over GF(256) with 0x11d ──

const EXP = new Uint8Array(512);
const LOG = new Uint8Array(256);
for (let at = 0, value = 1; at < 255; at += 1) {
  EXP[at] = EXP[at + 255] = value;
  LOG[value] = at;
  value = (value << 1) ^ (value & 128 ? 0x11d : 0);
}

function times(a, b) {
  return a && b ? EXP[LOG[a] + LOG[b]] : 0;
}

function correction(data, count) {
  let generator = [1];
  for (let at = 0; at < count; at += 1) {
    const next = [...generator, 0];
    generator.forEach((value, index) => {
      next[index + 1] ^= times(value, EXP[at]);
    });
    generator = next;
  }
  const rest = [...data, ...new Array(count).fill(0)];
  for (let at = 0; at < data.length; at += 1) {
    const lead = rest[at];
    generator.forEach((value, index) => {
      rest[at + index] ^= times(value, lead);
    });
  }
  return rest.slice(data.length);
}

/** The remainder of a BCH code, behind its data. */
function bch(data, generator, bits) {
  const length = (value) => 32 - Math.clz32(value);
  let rest = data << bits;
  while (length(rest) > bits) rest ^= generator << (length(rest) - bits - 1);
  return (data << bits) | rest;
}

// ── Codewords ──

function dataCount([all, ec, blocks]) {
  return all - ec * blocks;
}

function lengthBits(version) {
  return version < 10 ? 8 : 16;
}

function codewords(bytes, version) {
  const [all, ec, blocks] = VERSIONS[version - 1];
  const room = dataCount(VERSIONS[version - 1]);
  const bits = [];
  const put = (value, count) => {
    for (let at = count - 1; at >= 0; at -= 1) bits.push((value >> at) & 1);
  };
  put(4, 4);
  put(bytes.length, lengthBits(version));
  bytes.forEach((byte) => put(byte, 8));
  put(0, Math.min(4, room * 8 - bits.length));
  while (bits.length % 8) bits.push(0);
  const data = [];
  for (let at = 0; at < bits.length; at += 8) data.push(parseInt(bits.slice(at, at + 8).join(""), 2));
  for (let pad = 0xec; data.length < room; pad ^= 0xec ^ 0x11) data.push(pad);
  const short = Math.floor(all / blocks) - ec;
  const shorter = blocks - (all % blocks);
  let from = 0;
  const parts = Array.from({ length: blocks }, (_, at) => {
    const part = data.slice(from, from += short + (at < shorter ? 0 : 1));
    return [part, correction(part, ec)];
  });
  const mixed = [];
  for (let at = 0; at <= short; at += 1) for (const [part] of parts) if (at < part.length) mixed.push(part[at]);
  for (let at = 0; at < ec; at += 1) for (const [, part] of parts) mixed.push(part[at]);
  return mixed;
}

// ── The picture ──

/** The dark modules as rows of booleans; null when the text is too long. */
export function matrix(text, mask = null) {
  const bytes = new TextEncoder().encode(text);
  const version = VERSIONS.findIndex((known, at) => bytes.length * 8 + 4 + lengthBits(at + 1) <= dataCount(known) * 8) + 1;
  if (!version) return null;
  const size = version * 4 + 17;
  const fixed = frame(version, size);
  const words = codewords(bytes, version);
  const masks = mask == null ? MASKS.map((_, at) => at) : [mask];
  const drawn = masks.map((at) => fill(fixed, size, words, at));
  const worth = drawn.map(penalty);
  return drawn[worth.indexOf(Math.min(...worth))];
}

/** What does not depend on data: true and false, or null where data goes. */
function frame(version, size) {
  const cells = Array.from({ length: size }, () => new Array(size).fill(null));
  const square = (left, top, radius, dark) => {
    for (let y = -radius; y <= radius; y += 1) {
      for (let x = -radius; x <= radius; x += 1) {
        const row = cells[top + y];
        if (row && left + x >= 0 && left + x < size) row[left + x] = dark(Math.max(Math.abs(x), Math.abs(y)));
      }
    }
  };
  for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]]) square(x, y, 4, (ring) => ring !== 2 && ring !== 4);
  const places = VERSIONS[version - 1][3];
  for (const x of places) {
    for (const y of places) if (cells[y][x] === null) square(x, y, 2, (ring) => ring !== 1);
  }
  for (let at = 8; at < size - 8; at += 1) cells[6][at] = cells[at][6] = at % 2 === 0;
  // Places of the format information, which depends on the mask.
  for (let at = 0; at < 9; at += 1) {
    if (at !== 6) cells[8][at] = cells[at][8] = false;
    if (at < 8) cells[8][size - 1 - at] = cells[size - 1 - at][8] = false;
  }
  if (version >= 7) {
    const bits = bch(version, 0x1f25, 12);
    for (let at = 0; at < 18; at += 1) {
      const [a, b] = [size - 11 + (at % 3), Math.floor(at / 3)];
      cells[a][b] = cells[b][a] = Boolean((bits >> at) & 1);
    }
  }
  return cells;
}

function fill(fixed, size, words, mask) {
  const cells = fixed.map((row) => [...row]);
  let at = 0;
  let upwards = true;
  for (let right = size - 1; right > 0; right -= 2) {
    if (right === 6) right -= 1;
    for (let step = 0; step < size; step += 1) {
      const y = upwards ? size - 1 - step : step;
      for (const x of [right, right - 1]) {
        if (cells[y][x] !== null) continue;
        const dark = Boolean((words[at >> 3] ?? 0) >> (7 - (at & 7)) & 1);
        cells[y][x] = dark !== MASKS[mask](x, y);
        at += 1;
      }
    }
    upwards = !upwards;
  }
  format(cells, size, mask);
  return cells;
}

function format(cells, size, mask) {
  const bits = bch((LEVEL << 3) | mask, 0x537, 10) ^ 0x5412;
  for (let at = 0; at < 15; at += 1) {
    const dark = Boolean((bits >> at) & 1);
    if (at < 6) cells[at][8] = dark;
    else if (at < 8) cells[at + 1][8] = dark;
    else if (at === 8) cells[8][7] = dark;
    else cells[8][14 - at] = dark;
    if (at < 8) cells[8][size - 1 - at] = dark;
    else cells[size - 15 + at][8] = dark;
  }
  cells[size - 8][8] = true;
}

/** How hard a picture is to read (section 7.8.3). */
function penalty(cells) {
  const size = cells.length;
  const lines = [...cells, ...cells.map((_, x) => cells.map((row) => row[x]))];
  let points = 0;
  for (const line of lines) {
    const text = line.map((dark) => (dark ? "1" : "0")).join("");
    for (const run of text.match(/0{5,}|1{5,}/g) ?? []) points += run.length - 2;
    for (let at = 0; at + 11 <= size; at += 1) {
      const part = text.slice(at, at + 11);
      if (part === "10111010000" || part === "00001011101") points += 40;
    }
  }
  for (let y = 1; y < size; y += 1) {
    for (let x = 1; x < size; x += 1) {
      const same = cells[y][x] === cells[y - 1][x] && cells[y][x] === cells[y][x - 1] && cells[y][x] === cells[y - 1][x - 1];
      if (same) points += 3;
    }
  }
  const dark = cells.flat().filter(Boolean).length;
  return points + Math.floor(Math.abs((dark * 20) / (size * size) - 10)) * 10;
}

/** The code as a drawing, dark on light in every colour scheme; null when the text is too long. */
export function qrCode(text, label) {
  const cells = matrix(text);
  if (!cells) return null;
  const path = cells.flatMap((row, y) => row.map((dark, x) => dark ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : "")).join("");
  const side = cells.length + 2 * QUIET;
  return draw("svg", { class: "qr", viewBox: `0 0 ${side} ${side}`, role: "img", "aria-label": label, "shape-rendering": "crispEdges" },
    draw("rect", { width: side, height: side, fill: "#fff" }), draw("path", { d: path, fill: "#000" }));
}
