// A file of requests to pass on: one page that needs nothing else, runs nothing, and has no secrets.

import { bytes, make, time } from "./dom.js";
import { cut, unread } from "./body.js";
import { ask } from "./server.js";
import { marks } from "./list.js";
import { level } from "./ui.js";

/** Nothing is loaded and nothing is run, whatever was captured. */
const POLICY = "default-src 'none'; style-src 'unsafe-inline'";
const STYLE = `
:root { color-scheme: light dark; font: 14px/1.5 system-ui, sans-serif; --soft: #55615c; --edge: #dbe1de; --raised: #f5f7f6; --good: #17623a; --moved: #1d5480; --warn: #7d4e07; --bad: #a3261c; }
@media (prefers-color-scheme: dark) { :root { --soft: #a3afaa; --edge: #2c3633; --raised: #1a211f; --good: #85d6a2; --moved: #8fc4ee; --warn: #e9bd72; --bad: #ff9d92; } body { background: #121716; color: #e4eae7; } a { color: #6fd0b7; } }
body { max-width: 70rem; margin: 0 auto; padding: 1.2rem; overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; } h2 { font: 600 1.1rem ui-monospace, monospace; overflow-wrap: anywhere; margin: 0 0 .3rem; } h3 { font-size: 1rem; margin: 1rem 0 .3rem; }
article { border-top: 1px solid var(--edge); padding-top: 1rem; margin-top: 1.6rem; } .hint { color: var(--soft); }
.good { color: var(--good); } .moved { color: var(--moved); } .warn { color: var(--warn); } .bad { color: var(--bad); }
table { border-collapse: collapse; width: 100%; table-layout: fixed; } th, td { text-align: start; vertical-align: top; padding: .15rem .6rem .15rem 0; border-bottom: 1px solid var(--edge); overflow-wrap: anywhere; }
th { width: 30%; font-weight: 600; } td, pre, code { font-family: ui-monospace, monospace; font-size: .92em; }
pre { background: var(--raised); border: 1px solid var(--edge); border-radius: 5px; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere; }`;

/** The text of the file. Secrets are masked in it, also where the page shows them. */
export async function shared(ids) {
  const details = await Promise.all(ids.map((id) => ask(`/inspect/data/requests/${id}`)));
  const title = details.length === 1 ? `${details[0].method} ${details[0].target}` : `${details.length} requests`;
  const page = document.implementation.createHTMLDocument(title);
  page.documentElement.lang = "en";
  page.head.prepend(make("meta", { charset: "utf-8" }), make("meta", { "http-equiv": "Content-Security-Policy", content: POLICY }), make("meta", { name: "viewport", content: "width=device-width" }));
  page.body.append(make("main", {}, make("h1", {}, title),
    make("p", { class: "hint" }, "Captured by ginnel. Secrets that are known as such are masked."),
    details.length > 1 ? make("ol", {}, details.map((detail) => make("li", {}, make("a", { href: `#r${detail.id}` }, `${detail.method} ${detail.target}`)))) : null,
    details.map(article)));
  const written = new XMLSerializer().serializeToString(page.documentElement);
  // As text: an element with a style would be held against the policy of the page that makes it.
  return `<!doctype html>\n${written.replace("</head>", () => `<style>${STYLE}</style></head>`)}\n`;
}

function article(detail) {
  const status = detail.response?.line.split(" ").slice(1).join(" ") ?? "no response";
  const facts = [detail.start.replace("T", " "), time(detail.took), `tunnel ${detail.tunnel}`, `from ${detail.source}`, ...marks({ ...detail, note: null }).map(([, word]) => word)];
  return make("article", { id: `r${detail.id}` }, make("h2", {}, `${detail.method} ${detail.target}`),
    make("p", {}, make("strong", { class: level(detail.status) }, status), " ", make("span", { class: "hint" }, facts.filter(Boolean).join(" · "))),
    detail.error ? make("p", { class: "bad" }, detail.error) : null,
    detail.note ? make("p", {}, detail.note) : null,
    message("Request", detail.request), detail.response ? message("Response", detail.response) : null);
}

function message(name, part) {
  const rows = [...part.headers, ...part.trailers].map((header) => make("tr", {}, make("th", { scope: "row" }, header.name), make("td", {}, header.value)));
  return make("section", {}, make("h3", {}, name), make("p", {}, make("code", {}, part.line)),
    rows.length ? make("table", {}, make("tbody", {}, rows)) : null, body(part));
}

/** The characters that a document cannot have, as signs of their own. */
const printable = (words) => words.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)));

function body(part) {
  if (!part.length) return null;
  if (part.hidden) return make("p", { class: "hint" }, unread(part));
  const words = part.text ?? part.raw_text;
  if (words === null) return make("p", { class: "hint" }, `${bytes(part.length)} that are not text.`);
  return make("div", {}, make("pre", {}, printable(words)), cut(part) ? make("p", { class: "hint" }, `The first ${bytes(part.kept)} of ${bytes(part.length)}.`) : null);
}
