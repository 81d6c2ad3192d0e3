// Bodies as people read them: text in colour, forms as tables, pictures, sounds, bytes.

import { button, bytes, decode, encoded, make } from "./dom.js";
import { viewer } from "./viewer.js";

const IMAGES = ["png", "jpeg", "gif", "webp", "avif", "bmp"].map((kind) => `image/${kind}`);
const DEEPEST = 100;
const LONGEST = 512 * 1024;
const HEX = 64 * 1024;
/** How many rows, parts or lines are drawn. */
const MOST_ROWS = 2000;
/** How many characters a body has at most once it is laid out. */
const MOST_LAID_OUT = 4 * LONGEST;

/** The bytes of a body that is not text, without its content codings. */
export function content(part) {
  return decode(part.decoded ?? part.body);
}

/** The bytes to save of a body: text is saved as UTF-8. */
function saved(part) {
  return part.text === null ? content(part) : encoded(part.text);
}

/** Whether only the beginning of the body was kept. */
export function cut(part) {
  return part.length > part.kept;
}

/** What the body looks like. */
export function show(part) {
  if (part.hidden) return make("p", { class: "hint" }, unread(part));
  if (part.kind === "empty" || !part.size) return make("p", { class: "hint" }, part.length ? "The body was not kept." : part.coming ? "Nothing of the body has come yet." : "The body is empty.");
  const notes = part.masked ? ["Secrets are masked"] : [];
  notes.push(...part.notes);
  if (part.encoding) notes.push(`${bytes(part.size)} decoded size`);
  if (part.coming) notes.push("More of it may still come");
  if (cut(part)) notes.push(`✂ the first ${bytes(part.kept)} of ${bytes(part.length)}`);
  return make("div", {},
    notes.length ? make("p", { class: "hint" }, `${notes.join("; ")}.`) : null,
    drawn(part));
}

/** What stands for a body whose encoding cannot be taken off. */
export function unread(part) {
  return `${bytes(part.length)}, ${part.unread}: this cannot be read here and may hold secrets.`;
}

/** The kinds that are looked at or listened to. */
const PREVIEWS = ["image", "audio", "video"];

function drawn(part) {
  if (part.parts.length) return multipart(part.parts);
  const media = PREVIEWS.includes(part.kind) ? preview(part.media_type, content(part)) : null;
  if (media) return media;
  if (part.text === null) return binary(part.media_type, content(part));
  const tools = [save(part.media_type, () => saved(part))];
  if (part.text.length > LONGEST) return viewer(part.text, "text", tools);
  if (part.kind === "form") return pairs(part.pairs);
  return written(part.kind, part.text, tools);
}

/** Text of a kind. */
function written(kind, read, tools) {
  switch (kind) {
    case "json": return json(read, tools);
    case "json-lines": return jsonLines(read, tools);
    case "graphql": return viewer(read, "graphql", tools);
    case "xml": return xml(read, tools);
    case "html": return viewer(read, "markup", tools);
    default: return viewer(read, "text", tools);
  }
}

/** Bytes that nobody reads: as digits, and as a file. */
function binary(type, body) {
  return make("div", {},
    make("div", { class: "tools body-tools" }, make("span", { class: "hint" }, `${type || "Binary"}, ${bytes(body.length)}`), save(type, () => body)),
    hex(body));
}

const ENDINGS = { "application/json": "json", "application/pdf": "pdf", "image/svg+xml": "svg", "text/html": "html", "text/plain": "txt", "application/zip": "zip", "text/csv": "csv" };

/** A link that saves the bytes that `read` returns as a file; nothing in it is run. */
export function save(type, read, name = `body.${ENDINGS[type] ?? "bin"}`) {
  return button("Save", () => {
    // Never as what a browser would run or draw in the name of this page.
    const url = URL.createObjectURL(new Blob([read()], { type: "application/octet-stream" }));
    make("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }, { class: "small quiet", "aria-label": `Save the body as ${name}` });
}

function code(content, attributes = {}) {
  return make("pre", { tabindex: "0", ...attributes }, content);
}

/** Names and values. */
export function pairs(values) {
  const rows = few([...values], ([name, value]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)),
  (rest) => make("tr", {}, make("td", { colspan: "2", class: "hint" }, rest)));
  if (!rows.length) return make("p", { class: "hint" }, "None.");
  return make("table", { class: "pairs" }, make("tbody", {}, rows));
}

/** The first ones of many as elements, and a last one that says how many more there are. */
export function few(all, draw, last) {
  const more = all.length - MOST_ROWS;
  const rows = all.slice(0, MOST_ROWS).map(draw);
  return more > 0 ? [...rows, last(`… ${more} more are not shown.`)] : rows;
}

// ── Pictures, sounds, films ──────────────────────────────────────────────────────────────────

/** What can be looked at or listened to; null where it cannot, or where it could run something. */
function preview(type, body) {
  if (IMAGES.includes(type)) return image(type, body);
  if (/^(audio|video)\//.test(type)) return player(type, body);
  return null;
}

function image(type, body) {
  const url = URL.createObjectURL(new Blob([body], { type }));
  const about = make("figcaption", {}, `${type}, ${bytes(body.length)}`);
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
  return make("figure", {}, picture, about, save(type, () => body));
}

const played = new FinalizationRegistry((url) => URL.revokeObjectURL(url));

function player(type, body) {
  const kind = type.startsWith("audio/") ? "audio" : "video";
  const url = URL.createObjectURL(new Blob([body], { type }));
  const about = make("figcaption", {}, `${type}, ${bytes(body.length)}`);
  const element = make(kind, {
    src: url, controls: true, preload: "metadata",
    "aria-label": `The ${kind} in the body`,
    error: () => about.append("; it cannot be played"),
  });
  // It may be asked for parts of the body as long as it is there.
  played.register(element, url);
  return make("figure", {}, element, about, save(type, () => body));
}

// ── Multipart ────────────────────────────────────────────────────────────────────────────────

/** Each part as what it is. */
function multipart(parts) {
  return make("div", {}, few(parts, (part) => {
    const about = [part.filename === null ? null : `“${part.filename}”`, part.media_type, bytes(part.size)].filter(Boolean);
    return make("section", { class: "multipart" },
      make("h4", {}, part.name ?? "part"), make("p", { class: "hint" }, about.join(", ")),
      make("details", {}, make("summary", {}, "Headers of the part"), code(part.head)), partBody(part));
  }, (rest) => make("p", { class: "hint" }, rest)));
}

function partBody(part) {
  const type = part.media_type;
  if (part.text === null) return (PREVIEWS.includes(part.kind) ? preview(type, decode(part.body)) : null) ?? binary(type, decode(part.body));
  if (!type || type === "text/plain") return code(part.text);
  return written(part.kind, part.text, [save(type, () => encoded(part.text))]);
}

/** JSON with a value in each line, one laid out below the other; a line that is none stays as it is. */
function jsonLines(read, tools) {
  const wrong = [];
  const shown = read.split("\n").map((line, at) => {
    // Where lines are parted by records of their own, a control character comes first.
    const value = line.replace(/^\u001e/, "").trim();
    if (!value) return null;
    if (mistake(value) === null) return lines(value);
    wrong.push(at + 1);
    return value;
  }).filter((line) => line !== null);
  const note = wrong.length ? `Not JSON: line${wrong.length > 1 ? "s" : ""} ${wrong.slice(0, 10).join(", ")}${wrong.length > 10 ? ", …" : ""}.` : null;
  return make("div", {}, note ? make("p", { class: "problem" }, note) : null, viewer(shown.join("\n"), "json", tools));
}

// ── JSON ─────────────────────────────────────────────────────────────────────────────────────

/** JSON with a line for each member; numbers keep every digit. */
export function json(read, tools = []) {
  const at = mistake(read);
  if (at === null) return graphql(read) ?? viewer(lines(read), "json", tools);
  const before = read.slice(0, at).split("\n");
  const what = at >= read.length ? "Unexpected end." : "Unexpected character.";
  return broken(read, "JSON", what, [before.length, before.at(-1).length + 1]);
}

/** A call of GraphQL in JSON, as it was written; null for other JSON. */
function graphql(read) {
  if (!/"query"/.test(read)) return null;
  const { query, variables, operationName } = JSON.parse(read) ?? {};
  if (typeof query !== "string" || !/^\s*(?:#[^\n]*\n\s*)*(?:query|mutation|subscription|fragment|\{)/.test(query)) return null;
  return make("div", {},
    operationName ? make("p", { class: "hint" }, `Operation ${operationName}`) : null,
    viewer(query, "graphql"),
    make("details", { open: variables != null }, make("summary", {}, "As JSON, with its variables"), code(lines(read))));
}

const BLANK = /[ \t\r\n]*/y;
const TOKEN = /[[\]{}:,]|"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

/**
 * Where the first mistake is in JSON; null when there is none. Browsers tell in words of their own,
 * some without the place.
 */
export function mistake(read) {
  const open = [];
  let expected = "value";
  TOKEN.lastIndex = 0;
  for (;;) {
    BLANK.lastIndex = TOKEN.lastIndex;
    BLANK.exec(read);
    const at = BLANK.lastIndex;
    if (at >= read.length) return expected === "end" ? null : at;
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(read);
    if (!found) return at;
    expected = after(found[0][0], expected, open);
    if (!expected) return at;
    if (expected === "more" && !open.length) expected = "end";
  }
}

/** What is expected after a token; nothing when it cannot stand here. */
function after(token, expected, open) {
  const isValue = !"]}:,".includes(token);
  switch (expected) {
    case "first":
    case "value":
      if (token === "]" && expected === "first" && open.at(-1) === "[") return open.pop() && "more";
      if (token === "[") return open.push("[") && "first";
      if (token === "{") return open.push("{") && "first key";
      return isValue && "more";
    case "first key":
    case "key":
      if (token === "}" && expected === "first key") return open.pop() && "more";
      return token === '"' && "colon";
    case "colon":
      return token === ":" && "value";
    case "more":
      if (token === ",") return open.at(-1) === "{" ? "key" : "value";
      if (token === "]" && open.at(-1) === "[") return open.pop() && "more";
      return token === "}" && open.at(-1) === "{" && open.pop() && "more";
    default:
      return false;
  }
}

/** The text with the place of a mistake marked. */
function broken(read, language, message, [line, column]) {
  const all = read.split("\n");
  const before = all.slice(0, line - 1).concat((all[line - 1] ?? "").slice(0, column - 1)).join("\n");
  const rest = read.slice(before.length);
  const problem = `This is not valid ${language}: line ${line}, column ${column}. ${message}`;
  return make("div", {},
    make("p", { class: "problem" }, `⚠ ${problem}`),
    code([before, make("mark", { title: problem }, rest.slice(0, 1) || "⏎"), rest.slice(1)].flat()));
}

/** Valid JSON, laid out; as it is where that would be much longer. */
export function lines(read) {
  let out = "";
  let depth = 0;
  let at = -1;
  const turn = () => `\n${"  ".repeat(Math.min(depth, DEEPEST))}`;
  const tokens = read.match(/"(?:[^"\\]|\\.)*"|[[\]{}:,]|[^\s[\]{}:,"]+/gs) ?? [];
  for (const token of tokens) {
    at += 1;
    if (out.length > MOST_LAID_OUT) return read;
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
  }
  return out;
}

const NAME = "[A-Za-z_:][\\w:.\\-]*";
const MARKUP = new RegExp(
  "<!--(?:(?!--)[^])*-->|<!\\[CDATA\\[[^]*?\\]\\]>|<\\?[^]*?\\?>|<!DOCTYPE(?:[^[>]|\\[[^\\]]*\\])*>" +
    `|<(${NAME})(?:\\s+${NAME}\\s*=\\s*(?:"[^"<]*"|'[^'<]*'))*\\s*(/?)>|</(${NAME})\\s*>` +
    `|(?:[^<&]|&(?:${NAME}|#\\d+|#x[0-9a-fA-F]+);)+`, "y");

/** Where the first mistake is in XML, and what it is; null when there is none. */
export function mistakeInXml(read) {
  const open = [];
  let roots = 0;
  for (MARKUP.lastIndex = 0; MARKUP.lastIndex < read.length;) {
    const at = MARKUP.lastIndex;
    const found = MARKUP.exec(read);
    if (!found) return [at, "Unexpected character."];
    const [token, opened, empty, closed] = found;
    if (opened) {
      roots += open.length ? 0 : 1;
      if (roots > 1) return [at, "There must be exactly one root element."];
      if (!empty) open.push(opened);
    } else if (closed) {
      const last = open.pop();
      if (last !== closed) return [at, last ? `${last} must be closed first.` : "There is no open element to close."];
    } else if (!open.length && !token.startsWith("<") && token.trim()) {
      return [at, "Text stands in an element."];
    }
  }
  if (open.length || !roots) return [read.length, open.length ? `${open.at(-1)} is not closed.` : "There is no root element."];
  return null;
}

function xml(read, tools) {
  const found = mistakeInXml(read);
  if (!found) return viewer(layOut(read), "markup", tools);
  const before = read.slice(0, found[0]).split("\n");
  return broken(read, "XML", found[1], [before.length, before.at(-1).length + 1]);
}

/** Valid XML with a line for each tag; text stays beside its tag. As it is where that would be much longer. */
function layOut(read) {
  const tokens = read.match(/<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[^>]*>|[^<]+/gs) ?? [];
  const out = [];
  let depth = 0;
  let length = 0;
  for (const token of tokens) {
    if (length > MOST_LAID_OUT) return read;
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
    length += out.at(-1).length;
    if (!closes && !token.endsWith("/>") && !/^<[!?]/.test(token)) depth += 1;
  }
  return out.join("\n");
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
