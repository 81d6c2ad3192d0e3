// A request from scratch, or from a curl line that was pasted.

import { button, encode, make, say } from "./dom.js";
import { methodInput } from "./forms.js";
import { linesOf, valuesOf } from "./headers.js";
import { ask } from "./server.js";
import { dialog, field } from "./ui.js";

/** The words of a shell line; quotes are taken off. */
export function words(line) {
  const all = [];
  const pattern = /\\\r?\n|\s+|\$'((?:[^'\\]|\\[^])*)'|'([^']*)'|"((?:[^"\\]|\\[^])*)"|\\([^])|([^\s'"\\$]+|\$)/gy;
  let word = null;
  for (const [whole, ansi, single, double, escaped, plain] of line.matchAll(pattern)) {
    const text = ansi !== undefined ? unescape(ansi) : single ?? (double !== undefined ? double.replace(/\\(["\\$`])/g, "$1").replace(/\\\r?\n/g, "") : escaped ?? plain);
    if (text === undefined || /^\\\r?\n$/.test(whole)) {
      if (word !== null) all.push(word);
      word = null;
    } else word = (word ?? "") + text;
  }
  if (word !== null) all.push(word);
  return all;
}

const ESCAPES = { n: "\n", r: "\r", t: "\t", 0: "\0" };

function unescape(text) {
  return text.replace(/\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|([^]))/gi, (_, byte, unit, letter) =>
    (byte ?? unit) ? String.fromCharCode(parseInt(byte ?? unit, 16)) : ESCAPES[letter] ?? letter);
}

const WITH_VALUE = { "-X": "method", "--request": "method", "-H": "header", "--header": "header", "-d": "data", "--data": "data", "--data-raw": "raw", "--data-ascii": "data", "--data-binary": "raw", "--data-urlencode": "form", "--json": "json", "-u": "user", "--user": "user", "-A": "agent", "--user-agent": "agent", "-b": "cookie", "--cookie": "cookie", "-e": "referer", "--referer": "referer", "--url": "url" };
/** Options with a value that change nothing of the request itself. */
const IGNORED = ["-o", "--output", "-m", "--max-time", "--connect-timeout", "-w", "--write-out", "--retry", "--cacert", "--resolve", "-x", "--proxy"];

/** What a curl line would send: method, target, headers as pairs, body. Fails with what it cannot read. */
export function fromCurl(line) {
  const all = words(line.trim());
  if (all.shift() !== "curl") throw new Error("This is not a curl line.");
  const request = { method: null, url: null, headers: [], body: null };
  const add = (part) => {
    request.body = request.body === null ? part : `${request.body}&${part}`;
  };
  const has = (name) => request.headers.some(([known]) => known.toLowerCase() === name);
  const takes = {
    method: (value) => { request.method = value; },
    url: (value) => { request.url = value; },
    header: (value) => {
      const at = value.indexOf(":");
      if (at > 0) request.headers.push([value.slice(0, at).trim(), value.slice(at + 1).trim()]);
    },
    data: (value) => add(file(value).replace(/[\r\n]/g, "")),
    raw: (value) => add(file(value)),
    form: (value) => {
      const at = value.indexOf("=");
      add(at < 0 ? encodeURIComponent(value) : `${value.slice(0, at)}${at ? "=" : ""}${encodeURIComponent(value.slice(at + 1))}`);
    },
    json: (value) => {
      add(file(value));
      if (!has("content-type")) request.headers.push(["Content-Type", "application/json"]);
    },
    user: (value) => request.headers.push(["Authorization", `Basic ${encode(new TextEncoder().encode(value))}`]),
    agent: (value) => request.headers.push(["User-Agent", value]),
    cookie: (value) => request.headers.push(["Cookie", value]),
    referer: (value) => request.headers.push(["Referer", value]),
  };
  while (all.length) {
    let word = all.shift();
    const short = /^-[XHdubAe](?=.)/.exec(word);
    if (short && !word.startsWith("--")) {
      all.unshift(word.slice(2));
      word = short[0];
    }
    if (word in WITH_VALUE) takes[WITH_VALUE[word]](all.shift() ?? "");
    else if (IGNORED.includes(word)) all.shift();
    else if (word === "-I" || word === "--head") request.method ??= "HEAD";
    else if (word === "-G" || word === "--get") request.get = true;
    else if (/^-(F|-form|T|-upload-file|K|-config)/.test(word)) throw new Error(`${word} cannot be taken over: it reads files.`);
    else if (!word.startsWith("-")) request.url = word;
  }
  return complete(request, has);
}

function file(value) {
  if (value.startsWith("@")) throw new Error(`${value} names a file, which the page cannot read.`);
  return value;
}

function complete(request, has) {
  if (!request.url) throw new Error("The curl line has no address.");
  const url = new URL(/^[a-z]+:\/\//i.test(request.url) ? request.url : `${location.protocol}//${request.url}`);
  let target = url.pathname + url.search;
  let { body } = request;
  if (request.get && body !== null) {
    target += `${url.search ? "&" : "?"}${body}`;
    body = null;
  }
  if (body !== null && !has("content-type")) request.headers.push(["Content-Type", "application/x-www-form-urlencoded"]);
  return { method: request.method ?? (body === null ? "GET" : "POST"), target, headers: request.headers, body: body ?? "" };
}

/** Opens the composer; `sent` is called with the identifier of the new request. */
export async function compose(sent) {
  const { tunnels } = await ask("/api/tunnels");
  const input = (value, attributes) => {
    const element = make("input", { autocomplete: "off", spellcheck: "false", class: "mono", ...attributes });
    element.value = value;
    return element;
  };
  const area = (rows, attributes = {}) => make("textarea", { rows, spellcheck: "false", class: "mono", ...attributes });
  const names = tunnels.filter(({ proto }) => /^https?$/.test(proto)).map(({ name }) => name);
  if (!names.length) throw new Error("No HTTP tunnel runs: start one first.");
  const tunnel = make("select", {}, names.map((name) => make("option", { value: name }, name || "(without a name)")));
  const method = methodInput("GET", { required: true });
  const target = input("/", { required: true });
  const headers = area("4");
  const body = area("7");
  const file = make("input", { type: "file" });
  const addr = input("", { placeholder: "where the tunnel leads" });
  const curl = area("3", { placeholder: "curl -X POST shop.example/hook -H 'Content-Type: application/json' -d '{}'" });
  const problem = make("p", { class: "problem", role: "alert" });
  const take = () => {
    try {
      const request = fromCurl(curl.value);
      method.control.value = request.method;
      target.value = request.target;
      headers.value = linesOf(request.headers);
      body.value = request.body;
      say(problem, "");
      method.control.focus();
    } catch (error) {
      say(problem, error.message);
    }
  };
  dialog("Compose a request", make("div", {},
    make("p", { class: "hint" }, "It goes straight to the local service: the rules of edges are not applied."),
    make("details", {}, make("summary", {}, "From a curl line"), field("A curl line", curl), button("Take it over", take), problem),
    make("div", { class: "fields line-fields" }, field("Method", method.control), field("Path and query", target)), method.list,
    field("Headers, one on each line", headers, "Host and the length of the body are added."),
    field("Body", body),
    make("details", {}, make("summary", {}, "Tunnel, address, file"),
      make("div", { class: "fields" }, field("Tunnel", tunnel), field("Address", addr, "Another place on this machine, such as localhost:8081, or the address of one of the tunnels.")),
      field("Body from a file", file))),
  [["Send", async () => {
    const request = {
      method: method.control.value, target: target.value, tunnel_name: tunnel.value, headers: valuesOf(headers.value),
      ...(addr.value.trim() ? { addr: addr.value.trim() } : {}),
    };
    if (file.files.length) request.body_base64 = encode(new Uint8Array(await file.files[0].arrayBuffer()));
    else if (body.value) request.body = body.value;
    const { id } = await ask("/api/requests/send", { method: "POST", body: request });
    sent(id);
  }]], { className: "editor" });
  method.control.focus();
}
