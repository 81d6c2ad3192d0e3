// How to reach the tunnels: addresses to copy, codes for a phone, a curl line, a first request.

import { make, say } from "./dom.js";
import { qrCode } from "./qr.js";
import { ask } from "./server.js";
import { copyButton } from "./ui.js";

const MOST = 8;
/** Addresses that no other machine reaches. */
const HERE = /^https?:\/\/(127\.|\[::1\]|([^/]+\.)?localhost\b)/;

/** The block above the list: open while nothing was captured, folded later. */
export class Start {
  constructor(place) {
    this.title = make("span", { class: "start-title" });
    this.addresses = make("span", { class: "start-addresses" });
    this.cards = make("div", { class: "start-cards" });
    this.box = make("details", { id: "start", toggle: () => this.fill() },
      make("summary", {}, this.title, this.addresses), this.cards);
    this.tunnels = [];
    this.isEmpty = null;
    place.append(this.box);
  }

  /** Reads the tunnels anew when their number or the session has changed. */
  async follow(number, state) {
    const key = `${number} ${state}`;
    if (this.key === key) return;
    this.key = key;
    const found = await ask("/api/tunnels").catch(() => null);
    if (!found || this.key !== key) return;
    this.tunnels = found.tunnels;
    this.draw();
  }

  /** Opens while there is nothing to look at, and folds when the first request comes. */
  setEmpty(isEmpty) {
    if (this.isEmpty === isEmpty) return;
    this.isEmpty = isEmpty;
    this.box.open = isEmpty;
    document.querySelector("main").classList.toggle("nothing", isEmpty);
    say(this.title, isEmpty ? "Waiting for the first request" : "Addresses");
  }

  /** Opens it for somebody who asks for it. */
  show() {
    this.box.open = true;
    this.box.querySelector("summary").focus();
  }

  draw() {
    const shown = this.tunnels.filter(({ public_url: url }) => url).slice(0, MOST);
    this.shown = shown;
    this.addresses.replaceChildren(...shown.slice(0, 3).map(({ public_url: url, config }) =>
      make("span", { class: "mono" }, `${url} → ${config?.addr ?? ""}`)));
    this.stale = true;
    this.fill();
  }

  fill() {
    if (!this.box.open || !this.stale) return;
    this.stale = false;
    const rest = this.tunnels.length - this.shown.length;
    this.cards.replaceChildren(
      ...(this.shown.length ? this.shown.map(card) : [none()]),
      rest > 0 ? make("p", { class: "hint" }, `${rest} more on the `, make("a", { href: "/status" }, "status page"), ".") : "");
  }
}

function none() {
  return make("div", { class: "empty" },
    make("p", { class: "empty-title" }, "No tunnel runs"),
    make("p", { class: "hint" }, "Start one on the ", make("a", { href: "/status" }, "status page"),
      ", or with ", make("code", {}, "ginnel http 8080"), "."));
}

function card({ name, public_url: url, proto, config }) {
  const isHttp = /^https?:\/\//.test(url);
  const curl = `curl -i '${url}/'`.replace("//'", "/'");
  return make("article", { class: "start-card", "aria-label": `Address of ${name || "the tunnel"}` },
    make("div", { class: "start-text" },
      make("p", { class: "hint" }, `${name || "(without a name)"} · ${proto} · leads to ${config?.addr ?? "?"}`),
      make("p", { class: "start-url" }, make("code", {}, url), copyButton(() => url, "Copy", { "aria-label": `Copy ${url}` })),
      isHttp ? make("p", { class: "start-curl" }, make("code", {}, curl), copyButton(() => curl, "Copy", { class: "small quiet", "aria-label": "Copy the curl line" })) : null,
      isHttp ? make("p", { class: "actions" },
        make("a", { class: "button strong", href: url, target: "_blank", rel: "noreferrer" }, "Send a test request ↗"),
        make("span", { class: "hint" }, "It opens the address in a new tab, and appears here.")) : null),
    isHttp ? code(url) : null);
}

function code(url) {
  const drawn = qrCode(url, `QR code of ${url}`);
  return drawn ? make("div", { class: "start-code" }, drawn, make("p", { class: "hint" }, HERE.test(url) ? "Only on this machine" : "For a phone")) : null;
}
