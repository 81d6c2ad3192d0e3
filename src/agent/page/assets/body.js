// Bodies as people read them: JSON and XML in lines, forms as tables, images, bytes.

import { bytes, decode, make, text } from "./dom.js";

const IMAGES = ["png", "jpeg", "gif", "webp", "avif", "bmp"].map((kind) => `image/${kind}`);
const DEEPEST = 100;
const LONGEST = 512 * 1024;
const HEX = 64 * 1024;

/** The body without its encoding. */
export function readable(part) {
  return decode(part.decoded ?? part.body);
}

/** What the body looks like. */
export function show(part) {
  const body = readable(part);
  if (!body.length) return make("p", { class: "hint" }, part.length ? "Nothing of it was kept." : "It is empty.");
  const notes = [];
  if (part.encoding) notes.push(`${part.encoding} taken off, ${bytes(body.length)} without it`);
  if (part.length > part.kept) notes.push(`✂ the first ${bytes(part.kept)} of ${bytes(part.length)}`);
  if (part.masked) notes.push("secrets are masked");
  return make("div", {},
    notes.length ? make("p", { class: "hint" }, `${notes.join("; ")}.`) : null,
    content(part, body));
}

function content(part, body) {
  if (IMAGES.includes(part.media_type)) return image(part, body);
  const read = text(body);
  if (read === null) return hex(body);
  if (read.length > LONGEST) return code(read);
  if (part.media_type === "application/x-www-form-urlencoded") return pairs(new URLSearchParams(read));
  if (part.media_type.startsWith("multipart/")) return parts(read);
  if (/[/+]json$/.test(part.media_type) || /^\s*[[{]/.test(read)) return json(read);
  if (/[/+]xml$/.test(part.media_type) && part.media_type !== "image/svg+xml") return xml(read);
  return code(read);
}

function code(content, attributes = {}) {
  return make("pre", { tabindex: "0", ...attributes }, content);
}

/** Names and values. */
export function pairs(values) {
  const rows = [...values].map(([name, value]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)));
  if (!rows.length) return make("p", { class: "hint" }, "There are none.");
  return make("table", { class: "pairs" }, make("tbody", {}, rows));
}

function image(part, body) {
  const url = URL.createObjectURL(new Blob([body], { type: part.media_type }));
  const about = make("figcaption", {}, `${part.media_type}, ${bytes(body.length)}`);
  const picture = make("img", {
    src: url,
    alt: `The image in the body, ${bytes(body.length)}`,
    load: () => {
      URL.revokeObjectURL(url);
      about.append(`, ${picture.naturalWidth} × ${picture.naturalHeight} pixels`);
    },
    error: () => {
      URL.revokeObjectURL(url);
      about.append("; it cannot be shown");
    },
  });
  return make("figure", {}, picture, about);
}

/** JSON with a line for each member; numbers keep every digit. */
export function json(read) {
  try {
    JSON.parse(read);
  } catch (error) {
    return broken(read, "JSON", error.message, place(read, error.message));
  }
  return code(lines(read));
}

function place(read, message) {
  const found = /line (\d+) column (\d+)/.exec(message);
  if (found) return [Number(found[1]), Number(found[2])];
  const at = /position (\d+)/.exec(message);
  const before = read.slice(0, at ? Number(at[1]) : read.length).split("\n");
  return [before.length, before.at(-1).length + 1];
}

/** The text with the place of a mistake marked. */
function broken(read, language, message, [line, column]) {
  const all = read.split("\n");
  const before = all.slice(0, line - 1).concat((all[line - 1] ?? "").slice(0, column - 1)).join("\n");
  const rest = read.slice(before.length);
  const problem = `This is no valid ${language}: line ${line}, column ${column}. ${message}`;
  return make("div", {},
    make("p", { class: "problem" }, `⚠ ${problem}`),
    code([before, make("mark", { title: problem }, rest.slice(0, 1) || "⏎"), rest.slice(1)].flat()));
}

/** Valid JSON, laid out. */
function lines(read) {
  let out = "";
  let depth = 0;
  const turn = () => `\n${"  ".repeat(Math.min(depth, DEEPEST))}`;
  const tokens = read.match(/"(?:[^"\\]|\\.)*"|[[\]{}:,]|[^\s[\]{}:,"]+/gs) ?? [];
  tokens.forEach((token, at) => {
    const next = tokens[at + 1];
    if (token === "{" || token === "[") {
      depth += 1;
      out += token;
      if (next !== "}" && next !== "]") out += turn();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const before = tokens[at - 1];
      if (before !== "{" && before !== "[") out += turn();
      out += token;
    } else if (token === ",") out += `,${turn()}`;
    else out += token === ":" ? ": " : token;
  });
  return out;
}

function xml(read) {
  const parsed = new DOMParser().parseFromString(read, "application/xml");
  const error = parsed.querySelector("parsererror");
  if (error) {
    const message = error.textContent.split("\n").find((line) => line.includes("error on line")) ?? "";
    const found = /line (\d+) at column (\d+):? ?(.*)/.exec(message);
    if (!found) return code(read);
    return broken(read, "XML", found[3] ?? "", [Number(found[1]), Number(found[2])]);
  }
  return code(layOut(read));
}

/** Valid XML with a line for each tag; text stays beside its tag. */
function layOut(read) {
  const tokens = read.match(/<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[^>]*>|[^<]+/gs) ?? [];
  const out = [];
  let depth = 0;
  for (const token of tokens) {
    const isTag = token.startsWith("<") && !token.startsWith("<![CDATA[");
    if (!isTag) {
      const words = token.trim();
      if (words) out[out.length - 1] = `${out.at(-1) ?? ""}${words}`;
      continue;
    }
    const closes = token.startsWith("</");
    if (closes) depth -= 1;
    const last = out.at(-1) ?? "";
    const opened = /^\s*<([^\s/>!?]+)/.exec(last)?.[1];
    const sameLine = closes && opened === token.slice(2, -1).trim() && !last.includes("</") && !last.endsWith("/>");
    if (sameLine) out[out.length - 1] = last + token;
    else out.push("  ".repeat(Math.min(Math.max(depth, 0), DEEPEST)) + token);
    if (!closes && !token.endsWith("/>") && !/^<[!?]/.test(token)) depth += 1;
  }
  return out.join("\n");
}

/** The parts of a multipart body. */
function parts(read) {
  const boundary = /^--([^\r\n]+)/.exec(read)?.[1];
  if (!boundary) return code(read);
  const found = read.split(`--${boundary}`).slice(1, -1).map((part) => {
    const end = part.indexOf("\r\n\r\n");
    const head = part.slice(0, end).trim();
    const name = /name="([^"]*)"/.exec(head)?.[1] ?? "part";
    return make("section", {},
      make("h4", {}, name),
      code(`${head}\n\n${part.slice(end + 4).replace(/\r\n$/, "")}`));
  });
  return make("div", {}, found);
}

/** Bytes in rows of sixteen. */
export function hex(body) {
  const rows = [];
  for (let at = 0; at < Math.min(body.length, HEX); at += 16) {
    const row = body.subarray(at, at + 16);
    const digits = Array.from(row, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = Array.from(row, (byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·"));
    rows.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(48)} ${letters.join("")}`);
  }
  const rest = body.length - HEX;
  return make("div", {},
    code(rows.join("\n"), { class: "hex" }),
    rest > 0 ? make("p", { class: "hint" }, `${bytes(rest)} more are not shown.`) : null);
}
