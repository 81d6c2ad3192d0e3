// Components that pages share: dialogs, menus, tabs, toasts, badges, copy buttons, empty states.

import { announce, button, byId, make, say } from "./dom.js";

const TOAST = 5000;
const COPIED = 2000;

/** What kind of status this is, as a class of a badge. */
export function level(status) {
  return ["", "", "good", "moved", "warn", "bad"][Math.floor((status ?? 0) / 100)] ?? "";
}

/** A word with a quiet ground; `kind` is "", "good", "moved", "warn", "bad" or "accent". */
export function badge(text, kind = "", attributes = {}) {
  return make("span", { class: `badge ${kind}`.trim(), ...attributes }, text);
}

/** A sign, and its word for those who do not see it. */
export function sign(character, word) {
  return make("span", { class: "mark", title: word },
    make("span", { "aria-hidden": "true" }, character),
    make("span", { class: "unseen" }, word));
}

/** What stands where nothing is yet: a title, what it means, and what to do. */
export function empty(title, text, ...actions) {
  return make("div", { class: "empty" },
    make("p", { class: "empty-title" }, title), text ? make("p", { class: "hint" }, text) : null, ...actions);
}

let labels = 0;

/** An identifier that no other element has. */
export function unique(word) {
  labels += 1;
  return `${word}-${labels}`;
}

/** A control with its label, and a hint below. */
export function field(label, control, hint) {
  control.id ||= unique("field");
  if (hint) control.setAttribute("aria-describedby", `${control.id}-hint`);
  return make("div", { class: "field" }, make("label", { for: control.id }, label), control,
    hint ? make("p", { class: "hint", id: `${control.id}-hint` }, hint) : null);
}

/** A box with its label after it. */
export function check(label, change, attributes = {}) {
  const box = make("input", { type: "checkbox", change: () => change(box.checked), ...attributes });
  return make("label", { class: "check" }, box, make("span", {}, label));
}

/** Facts as pairs of name and value; what is null is left out. */
export function facts(pairs, attributes = {}) {
  return make("dl", { class: "facts", ...attributes }, pairs.filter(Boolean).map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// ── Dialogs ──────────────────────────────────────────────────────────────────────────────────

/**
 * Shows a dialog that leaves the page with `close`, not with the event after it: what is
 * opened next is alone.
 */
export function showModal(box) {
  const close = box.close.bind(box);
  box.close = () => {
    close();
    box.remove();
  };
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

/**
 * Opens a dialog. `actions` are `[text, act, class]`: `act` may fail, and the dialog says why and stays
 * open. Returns the dialog; its `close` event comes whichever way it is closed.
 */
export function dialog(title, content, actions = [], { close = actions.length ? "Cancel" : "Close", className = "" } = {}) {
  const id = unique("dialog");
  const problem = make("p", { class: "problem", role: "alert" });
  const box = make("dialog", { "aria-labelledby": id, class: className });
  const act = async (work) => {
    say(problem, "");
    try {
      await work();
      box.close();
    } catch (error) {
      say(problem, error.message);
    }
  };
  const [first, ...others] = actions;
  const form = make("form", {
    method: "dialog",
    submit: (event) => {
      event.preventDefault();
      if (first) act(first[1]);
      else box.close();
    },
  },
  make("h2", { id }, title), content, problem,
  make("div", { class: "actions" },
    first ? make("button", { class: first[2] ?? "strong" }, first[0]) : null,
    others.map(([text, work, kind]) => button(text, () => act(work), { class: kind })),
    button(close, () => box.close())));
  box.append(form);
  showModal(box);
  return box;
}

/** Says that something did not work. */
export function notice(message, title = "The action failed") {
  return dialog(title, make("p", { class: "problem" }, message));
}

/** Asks before something that cannot be undone. */
export function confirm(title, text, action, act) {
  return dialog(title, make("p", {}, text), [[action, act, "danger"]]);
}

// ── Menus ────────────────────────────────────────────────────────────────────────────────────

/**
 * A button with a list of actions below it. `items` returns `[text, act, attributes]`, elements, or
 * null for a line between groups; it is asked each time the menu opens.
 */
export function menu(label, items, attributes = {}) {
  const id = unique("menu");
  const panel = make("div", { id, popover: true, class: "menu", role: "group", "aria-label": attributes["aria-label"] ?? label });
  const opener = button(label, null, { popovertarget: id, "aria-haspopup": "true", "aria-expanded": "false", ...attributes, class: `menu-opener ${attributes.class ?? ""}` });
  const entry = (item) => {
    if (!item) return make("hr");
    if (!Array.isArray(item)) return item;
    const [text, act, more] = item;
    return button(text, () => {
      panel.hidePopover();
      act();
    }, more);
  };
  panel.addEventListener("beforetoggle", (event) => {
    if (event.newState !== "open") return;
    panel.replaceChildren(...items().map(entry));
    const { left, bottom } = opener.getBoundingClientRect();
    panel.style.top = `${bottom + 4}px`;
    panel.style.left = `${left}px`;
  });
  panel.addEventListener("toggle", (event) => {
    const open = event.newState === "open";
    opener.setAttribute("aria-expanded", open);
    if (!open) return;
    const { width, height, top } = panel.getBoundingClientRect();
    panel.style.left = `${Math.max(4, Math.min(parseFloat(panel.style.left), innerWidth - width - 4))}px`;
    if (top + height > innerHeight) panel.style.top = `${Math.max(4, innerHeight - height - 4)}px`;
    // Whoever was quicker than this event is somewhere in it already.
    if (!panel.contains(document.activeElement)) panel.querySelector("button, input, a")?.focus();
  });
  panel.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...panel.querySelectorAll("button:not(:disabled), input, a")];
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length]?.focus();
  });
  return make("span", { class: "menu-place" }, opener, panel);
}

// ── Tabs ─────────────────────────────────────────────────────────────────────────────────────

/**
 * Tabs with arrow keys. `entries` are `[title, show]`, where `show` makes the panel's content when it is
 * chosen; `select` gets what was chosen.
 */
export function tabs(name, entries, chosen, select = () => {}) {
  const panel = make("div", { role: "tabpanel", id: `${name}-panel`, tabindex: "-1" });
  const bar = make("div", { role: "tablist", "aria-label": name });
  const choose = (title, focus) => {
    select(title);
    for (const tab of bar.children) {
      const is = tab.dataset.title === title;
      tab.setAttribute("aria-selected", is);
      tab.tabIndex = is ? 0 : -1;
      if (is && focus) tab.focus();
      if (is) panel.setAttribute("aria-labelledby", tab.id);
    }
    panel.replaceChildren(entries.find(([known]) => known === title)[1]());
  };
  bar.append(...entries.map(([title, , note], at) => button(title, () => choose(title), {
    role: "tab",
    id: `${name}-${title}`,
    "data-title": title,
    "aria-controls": panel.id,
    keydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      choose(entries[(at + step + entries.length) % entries.length][0], true);
    },
  })));
  entries.forEach(([, , note], at) => note != null && bar.children[at].append(make("span", { class: "note" }, ` ${note}`)));
  choose(entries.some(([title]) => title === chosen) ? chosen : entries[0][0]);
  return make("div", { class: "tabs" }, bar, panel);
}

// ── Toasts and copies ────────────────────────────────────────────────────────────────────────

/** Says for some seconds what happened; `action` is `[text, act]`. */
export function toast(text, action) {
  let place = byId("toasts");
  if (!place) {
    place = make("div", { id: "toasts", role: "region", "aria-label": "What happened" });
    document.body.append(place);
  }
  const box = make("div", { class: "toast" }, make("span", {}, text),
    action ? button(action[0], () => {
      box.remove();
      action[1]();
    }) : null);
  place.append(box);
  announce(text);
  setTimeout(() => box.remove(), TOAST);
}

/** Puts text on the clipboard; where that is closed to the page, people copy for themselves. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied");
    return true;
  } catch {
    const area = make("textarea", { rows: "12", readonly: true, "aria-label": "The text to copy", spellcheck: "false" });
    area.value = text;
    dialog("Copy", area);
    area.select();
    return false;
  }
}

/** A button that copies what `text` returns, and says so for two seconds. */
export function copyButton(text, label = "Copy", attributes = {}) {
  const face = make("span", {}, label);
  const element = button(face, async () => {
    if (!await copyText(await text())) return;
    say(face, "Copied ✓");
    setTimeout(() => say(face, label), COPIED);
  }, attributes);
  return element;
}

// ── Panes ────────────────────────────────────────────────────────────────────────────────────

/** A bar between two panes that is moved by pointer and keys; it keeps the share of the first pane. */
export function splitter(panes, key, { least = 20, most = 80, first = 50 } = {}) {
  const bar = make("div", {
    class: "splitter", role: "separator", tabindex: "0", "aria-orientation": "vertical",
    "aria-label": "Width of the list", "aria-valuemin": least, "aria-valuemax": most,
  });
  const set = (share, keep) => {
    const now = Math.min(Math.max(share, least), most);
    panes.style.setProperty("--split", `${now}%`);
    bar.setAttribute("aria-valuenow", Math.round(now));
    if (keep) remember(key, now);
  };
  set(recall(key, first));
  bar.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    bar.setPointerCapture(event.pointerId);
    const move = ({ clientX }) => {
      const { left, width } = panes.getBoundingClientRect();
      set(((clientX - left) / width) * 100);
    };
    bar.addEventListener("pointermove", move);
    bar.addEventListener("pointerup", () => {
      bar.removeEventListener("pointermove", move);
      remember(key, Number(bar.getAttribute("aria-valuenow")));
    }, { once: true });
  });
  bar.addEventListener("dblclick", () => set(first, true));
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -2, ArrowRight: 2, Home: -100, End: 100 }[event.key];
    if (!step) return;
    event.preventDefault();
    set(Number(bar.getAttribute("aria-valuenow")) + step, true);
  });
  return bar;
}

/** What was kept in this browser under a name. */
export function recall(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`ginnel.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Keeps a value in this browser, where that is allowed. */
export function remember(name, value) {
  try {
    localStorage.setItem(`ginnel.${name}`, JSON.stringify(value));
  } catch {
    // Private windows may refuse; then it holds until the page is closed.
  }
}
