// Curl lines as people paste them: read as a shell of Unix or Windows and curl read them.

import { encode } from "./dom.js";

/** The words of a line; quotes are taken off. What stands behind a pipe or its like is left out. */
export function words(line) {
  if (/`\r?\n/.test(line)) throw new Error("This is a line for PowerShell. Copy it as cURL for bash or for cmd.");
  return isForWindows(line) ? wordsOfWindows(line) : wordsOfUnix(line);
}

/** The caret and doubled quotes of cmd.exe. In a line with single quotes they are text. */
function isForWindows(line) {
  const isCaret = /\^(?=\r?\n|"|$)/.test(line) || /%\^/.test(line);
  return (isCaret || /[^\s=]""[^\s]/.test(line)) && !/(?:^|\s)\$?'/.test(line);
}

/** The words of a line for cmd.exe, which takes carets off, and of a C program, which takes quotes and backslashes off. */
function wordsOfWindows(line) {
  const text = withoutCarets(line);
  const all = [];
  let word = null;
  let isQuoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const [, slashes, quote] = /^(\\*)("?)/.exec(text.slice(at, at + 1000));
    if (slashes) {
      // Backslashes count only before a quote: two of them are one.
      word = (word ?? "") + (quote ? "\\".repeat(slashes.length >> 1) : slashes);
      at += slashes.length - 1;
      if (quote && slashes.length % 2) {
        word += '"';
        at += 1;
      }
    } else if (quote && isQuoted && text[at + 1] === '"') {
      word += '"';
      at += 1;
    } else if (quote) {
      isQuoted = !isQuoted;
      word ??= "";
    } else if (!isQuoted && /\s/.test(text[at])) {
      if (word !== null) all.push(word);
      word = null;
    } else if (!isQuoted && word === null && /^(?:\|\|?|&&?|<|\d?>>?)(?=\s|$)/.test(text.slice(at, at + 4))) break;
    else word = (word ?? "") + text[at];
  }
  if (isQuoted) throw new Error("A quote is not closed.");
  if (word !== null) all.push(word);
  return all;
}

/**
 * The line without its carets. One before a line end joins lines, or is a line end if another one follows. Within plain
 * quotes a caret is text for cmd.exe, but browsers have written it there before signs, and after a percent sign.
 */
function withoutCarets(line) {
  return line.replace(/\^\r?\n(?:(\r?\n))?|\^?(%)\^(?=\w)|\^([^\w\s])|\^(?=\r?$)/g,
    (_, end, percent, sign) => (end !== undefined ? "\n" : percent ?? sign ?? " "));
}

function wordsOfUnix(line) {
  const all = [];
  const pattern = /\\\r?\n|\s+|"\$\(printf '([^']*)'\)"|\$'((?:[^'\\]|\\[^])*)'|'([^']*)'|"((?:[^"\\]|\\[^])*)"|\\([^])|((?:\|\|?|&&?|;|<)(?=\s|$)|\d?>>?\S*)|([^\s'"\\$]+|\$)/gy;
  let word = null;
  let end = 0;
  for (const [whole, format, ansi, single, double, escaped, operator, plain] of line.matchAll(pattern)) {
    if (operator !== undefined && word === null) {
      end = line.length;
      break;
    }
    end += whole.length;
    const text = format !== undefined ? printed(format)
      : ansi !== undefined ? unescape(ansi)
      : single ?? (double !== undefined ? double.replace(/\\\r?\n/g, "").replace(/\\(["\\$`])/g, "$1") : escaped ?? operator ?? plain);
    if (text === undefined || /^\\\r?\n$/.test(whole)) {
      if (word !== null) all.push(word);
      word = null;
    } else word = (word ?? "") + text;
  }
  if (end < line.length) throw new Error(`A quote is not closed: ${line.slice(end, end + 30)}`);
  if (word !== null) all.push(word);
  return all;
}

/** What printf prints, as copies of requests use it. */
const printed = (format) => unescape(format).replaceAll("%%", "%");

const ESCAPES = { a: "\x07", b: "\b", e: "\x1b", E: "\x1b", f: "\f", n: "\n", r: "\r", t: "\t", v: "\v" };

/** ANSI-C quoting of shells. Bytes in a row are UTF-8. */
function unescape(text) {
  return text.replace(/((?:\\x[0-9a-f]{1,2}|\\[0-7]{1,3})+)|\\u([0-9a-f]{1,4})|\\U([0-9a-f]{1,8})|\\c([^])|\\([^])/gi, (_, run, unit, point, control, letter) => {
    if (run) {
      const codes = run.match(/\\x[0-9a-f]+|\\[0-7]+/gi).map((one) => (/x/i.test(one[1]) ? parseInt(one.slice(2), 16) : parseInt(one.slice(1), 8)));
      return new TextDecoder().decode(Uint8Array.from(codes));
    }
    if (unit ?? point) return String.fromCodePoint(parseInt(unit ?? point, 16));
    return control ? String.fromCharCode(control.charCodeAt(0) & 31) : ESCAPES[letter] ?? letter;
  });
}

/** The short options of curl that take a value, with their long names. */
const SHORT_VALUES = { A: "user-agent", b: "cookie", c: "cookie-jar", C: "continue-at", d: "data", D: "dump-header", e: "referer", E: "cert", F: "form", H: "header", K: "config", m: "max-time", o: "output", P: "ftp-port", Q: "quote", r: "range", t: "telnet-option", T: "upload-file", u: "user", U: "proxy-user", w: "write-out", x: "proxy", X: "request", y: "speed-time", Y: "speed-limit", z: "time-cond" };
/** Those without that change the request, or cannot be taken over. */
const SHORT_FLAGS = { G: "get", I: "head", ":": "next" };
/** What takes a value and changes nothing of the request itself. */
const VALUES = new Set((
  "abstract-unix-socket alt-svc cacert capath cert cert-type ciphers connect-timeout connect-to cookie-jar create-file-mode crlfile curves delegation dns-interface dns-ipv4-addr " +
  "dns-ipv6-addr dns-servers doh-url dump-header ech egd-file engine etag-save expect100-timeout ftp-account ftp-alternative-to-user ftp-method ftp-port ftp-ssl-ccc-mode " +
  "happy-eyeballs-timeout-ms haproxy-clientip hostpubmd5 hostpubsha256 hsts interface ip-tos ipfs-gateway keepalive-cnt keepalive-time key key-type krb libcurl limit-rate local-port " +
  "login-options mail-auth mail-from mail-rcpt max-filesize max-redirs max-time netrc-file noproxy output output-dir parallel-max parallel-max-host pass pinnedpubkey preproxy proto " +
  "proto-default proto-redir proxy proxy-cacert proxy-capath proxy-cert proxy-cert-type proxy-ciphers proxy-crlfile proxy-header proxy-key proxy-key-type proxy-pass proxy-pinnedpubkey " +
  "proxy-service-name proxy-tls13-ciphers proxy-tlsauthtype proxy-tlspassword proxy-tlsuser proxy-user proxy1.0 pubkey quote random-file rate resolve retry retry-delay retry-max-time " +
  "sasl-authzid service-name sigalgs socks4 socks4a socks5 socks5-gssapi-service socks5-hostname speed-limit speed-time stderr telnet-option tftp-blksize tls-max tls13-ciphers " +
  "tlsauthtype tlspassword tlsuser trace trace-ascii trace-config unix-socket upload-flags vlan-priority write-out").split(" "));
/** What a request that is composed here cannot do. */
const REFUSED = {
  "upload-file": "it reads a file", config: "it reads a file", next: "it begins another request", "aws-sigv4": "it signs the request", digest: "it asks for a challenge first",
  ntlm: "it asks for a challenge first", negotiate: "it asks for a challenge first", anyauth: "it asks for a challenge first", variable: "variables are not known here",
  "etag-compare": "it reads a file", "time-cond": "it may read a file", "continue-at": "it reads a file", "proxy-digest": "it asks for a challenge first",
};

/** A text that is no name of a file. */
function literal(value, option) {
  if (/^[@<]/.test(value)) throw new Error(`--${option} ${value} names a file, which the page cannot read.`);
  return value;
}

/** What options with a value do to a request that is being read. */
const TAKES = {
  request: (request, value) => { request.method = value; },
  url: (request, value) => {
    if (request.url) throw new Error(`The curl line has two addresses, ${request.url} and ${value}.`);
    request.url = value;
  },
  "request-target": (request, value) => { request.target = value; },
  header: (request, value) => {
    const [, name, sign, rest] = /^([^:;]+)([:;])([^]*)$/.exec(literal(value, "header")) ?? [];
    // Without a value a colon takes a header of curl away, and a semicolon sends an empty one.
    if (name && (sign === ";" ? !rest.trim() : rest.trim())) request.headers.push([name.trim(), rest.trim()]);
  },
  data: (request, value) => request.data.push(["&", literal(value, "data")]),
  "data-ascii": (request, value) => request.data.push(["&", literal(value, "data-ascii")]),
  "data-binary": (request, value) => request.data.push(["&", value === "@-" && request.piped !== null ? request.piped : literal(value, "data-binary")]),
  "data-raw": (request, value) => request.data.push(["&", value]),
  "data-urlencode": (request, value) => request.data.push(["&", urlEncoded(value, "data-urlencode")]),
  "url-query": (request, value) => request.query.push(value.startsWith("+") ? value.slice(1) : urlEncoded(value, "url-query")),
  json: (request, value) => {
    request.data.push(["", literal(value, "json")]);
    request.type = "application/json";
  },
  form: (request, value) => request.parts.push(part(value)),
  "form-string": (request, value) => request.parts.push({ ...named(value), type: "", filename: null }),
  user: (request, value) => request.own.push(["Authorization", `Basic ${encode(new TextEncoder().encode(value.includes(":") ? value : `${value}:`))}`]),
  "oauth2-bearer": (request, value) => request.own.push(["Authorization", `Bearer ${value}`]),
  "user-agent": (request, value) => request.own.push(["User-Agent", value]),
  cookie: (request, value) => {
    if (!value.includes("=")) throw new Error(`--cookie ${value} names a file, which the page cannot read.`);
    request.own.push(["Cookie", value]);
  },
  referer: (request, value) => request.own.push(["Referer", value]),
  range: (request, value) => request.own.push(["Range", `bytes=${value}`]),
};

function urlEncoded(value, option) {
  const at = value.search(/[=@]/);
  if (at >= 0 && value[at] === "@") throw new Error(`--${option} ${value} names a file, which the page cannot read.`);
  return at < 0 ? encodeURIComponent(value) : `${value.slice(0, at)}${at ? "=" : ""}${encodeURIComponent(value.slice(at + 1))}`;
}

function named(value) {
  const at = value.indexOf("=");
  if (at < 1) throw new Error(`--form ${value} is not written as name=value.`);
  return { name: value.slice(0, at), content: value.slice(at + 1) };
}

/** A part of a form, with what stands behind its value. */
function part(value) {
  const found = { ...named(value), type: "", filename: null };
  if (/^[@<]/.test(found.content)) throw new Error(`--form ${value} names a file, which the page cannot read.`);
  for (;;) {
    const [, before, key, text] = /^([^]*);\s*(type|filename)="?([^";]*)"?$/.exec(found.content) ?? [];
    if (!key) break;
    found.content = before;
    found[key] = text;
  }
  const quoted = /^"((?:[^"\\]|\\[^])*)"$/.exec(found.content);
  if (quoted) found.content = quoted[1].replace(/\\(["\\])/g, "$1");
  return found;
}

function multipart(parts) {
  let boundary = "------------------------form";
  while (parts.some(({ content }) => content.includes(boundary))) boundary += "x";
  const quote = (text) => text.replace(/"/g, "%22").replace(/[\r\n]/g, " ");
  const body = parts.map(({ name, content, type, filename }) =>
    `--${boundary}\r\nContent-Disposition: form-data; name="${quote(name)}"${filename === null ? "" : `; filename="${quote(filename)}"`}\r\n${type ? `Content-Type: ${type}\r\n` : ""}\r\n${content}\r\n`).join("");
  return { body: `${body}--${boundary}--\r\n`, type: `multipart/form-data; boundary=${boundary}` };
}

/** What a curl line would send: method, target, headers as pairs, body. Fails with what it cannot take over. */
export function fromCurl(line) {
  // Copies of requests have comments, and bodies that printf writes.
  const [, format, command] = /^(?:#.*\r?\n)*(?:printf '([^']*)' \| )?([^]*)$/.exec(line.trim());
  const all = words(command);
  if (!/^(?:.*[\\/])?curl(?:\.exe)?$/.test(all.shift() ?? "")) throw new Error("This is not a curl line.");
  const request = { method: null, url: null, target: null, headers: [], own: [], data: [], parts: [], query: [], type: null, piped: format === undefined ? null : printed(format) };
  const option = (name, written, value) => {
    if (Object.hasOwn(REFUSED, name)) throw new Error(`${written} cannot be taken over: ${REFUSED[name]}.`);
    if (name === "get" || name === "head") request[name] = true;
    else if (Object.hasOwn(TAKES, name)) TAKES[name](request, value());
    else if (VALUES.has(name)) value();
  };
  let isOptions = true;
  while (all.length) {
    const word = all.shift();
    const next = (written) => () => {
      if (!all.length) throw new Error(`${written} has no value.`);
      return all.shift();
    };
    if (!isOptions || !/^-./.test(word)) TAKES.url(request, word);
    else if (word === "--") isOptions = false;
    else if (word.startsWith("--")) option(word.slice(2), word, next(word));
    else cluster(word, option, next);
  }
  return complete(request);
}

/** Short options in one word; the rest behind one that takes a value is that value. */
function cluster(word, option, next) {
  for (let at = 1; at < word.length; at += 1) {
    const written = `-${word[at]}`;
    const name = SHORT_VALUES[word[at]];
    const rest = word.slice(at + 1);
    if (!name) option(SHORT_FLAGS[word[at]] ?? "", written);
    else {
      option(name, written, rest ? () => rest : next(written));
      return;
    }
  }
}

function complete(request) {
  if (!request.url) throw new Error("The curl line has no address.");
  let url;
  try {
    url = new URL(/^[a-z][a-z0-9+.-]*:\/\//i.test(request.url) ? request.url : `${location.protocol}//${request.url}`);
  } catch {
    throw new Error(`${request.url} is not an address.`);
  }
  if (request.parts.length && request.data.length) throw new Error("A curl line has either --data or --form.");
  let { type } = request;
  let body = request.data.length ? request.data.reduce((sum, [joint, text], at) => (at ? sum + joint + text : text), "") : null;
  const query = [...request.query];
  if (request.get && body !== null) {
    query.push(body);
    body = null;
  }
  if (request.parts.length) ({ body, type } = multipart(request.parts));
  else if (body !== null) type ??= "application/x-www-form-urlencoded";
  const has = (name) => request.headers.some(([known]) => known.toLowerCase() === name.toLowerCase());
  // A header that is given counts more than what an option makes.
  const own = request.own.filter(([name], at) => !has(name) && !request.own.slice(at + 1).some(([later]) => later === name));
  const headers = [...request.headers, ...own];
  if (body !== null && !has("content-type")) headers.push(["Content-Type", type]);
  const target = request.target ?? url.pathname + url.search + (query.length ? `${url.search ? "&" : "?"}${query.join("&")}` : "");
  return { method: request.method ?? (request.head ? "HEAD" : body === null ? "GET" : "POST"), target, headers, body: body ?? "" };
}
