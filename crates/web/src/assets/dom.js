// Makes elements. Whatever was captured becomes text, never markup.

/** An element; attributes that are false, null or undefined are left out, functions are listeners. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** The same for drawings. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    // Those are words, also where they are false.
    else if (name.startsWith("aria-") && value != null) element.setAttribute(name, String(value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** The element with this identifier. */
export const byId = (id) => document.getElementById(id);

/** A button. */
export function button(text, click, attributes = {}) {
  return make("button", { type: "button", click, ...attributes }, text);
}

/** Changes text only where it is different, so that nothing is announced twice. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Tells those who do not see the page. */
export function announce(text) {
  say(byId("announcer"), text);
}

const UNITS = ["B", "kB", "MB", "GB"];

/** A number of bytes with its unit. */
export function bytes(count) {
  let unit = 0;
  let number = count;
  while (number >= 1000 && unit < UNITS.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? number : number.toPrecision(3)} ${UNITS[unit]}`;
}

/** Milliseconds with a unit that fits. */
export function time(milliseconds) {
  if (milliseconds == null) return "";
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds < 1000) return `${milliseconds.toFixed(0)} ms`;
  return `${(milliseconds / 1000).toFixed(2)} s`;
}

/** The bytes of base64. */
export function decode(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}

/** The base64 of bytes. */
export function encode(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return btoa(text);
}

/** The bytes of text, as UTF-8. */
export function encoded(text) {
  return new TextEncoder().encode(text);
}

/** How long ago something was, in one word. */
export function age(start, now = Date.now()) {
  const seconds = Math.max(0, (now - start) / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}
