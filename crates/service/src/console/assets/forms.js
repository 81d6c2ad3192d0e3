// Forms made from the schemas of operations, with each problem at its field.

import { make, say } from "./dom.js";
import { Choice, isChoice } from "./choice.js";
import { fault, listed } from "./fields.js";
import { label, listAll, nameOf } from "./model.js";
import { dialog, unique } from "./ui.js";

const LONG = 255;
const SUGGESTED = 500;

/** What stands in quotes of a description, such as `allow`, are values that make sense. */
const quoted = (text) => [...new Set([...(text ?? "").matchAll(/`([\w.-]{1,40})`/g)].map(([, word]) => word))];

/** The things that a field names, as values and what people call them; null for a field that names none. */
function thingsFor(model, name) {
  const resources = [...model.resources.values()].filter((it) => it.list && it.fields?.test(name));
  return resources.length ? async () => {
    const found = await Promise.all(resources.map((it) => listAll(it, SUGGESTED).catch(() => ({ items: [] }))));
    return found.flatMap(({ items }) => items).map((thing) => [thing.id, nameOf(thing)]);
  } : null;
}

/** A list of values to choose from, filled when somebody comes to its field. */
function suggestions(read, control, id) {
  const options = make("datalist", { id });
  control.addEventListener("focus", async () => {
    const values = await read().catch(() => []);
    options.replaceChildren(...values.map(([value, text]) => make("option", { value }, text ?? "")));
  }, { once: true });
  return options;
}

/** What the API knows and this service does not have. */
const NOT_OFFERED = /\bnot offered by this service\b/;

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

/** How values of a kind are written in a control, and read from it. */
const KINDS = {
  text: { write: (value) => value, read: (text) => text },
  number: {
    write: String,
    read: (text) => {
      if (Number.isNaN(Number(text))) throw new Error("must be a number");
      return Number(text);
    },
  },
  truth: { write: String, read: (text) => text === "true" },
  list: { write: (value) => value.join("\n"), read: lines },
  // Things of which only one field need be said.
  records: {
    write: (value, schema) => value.map((it) => it[schema.only]).join("\n"),
    read: (text, schema) => lines(text).map((line) => ({ [schema.only]: line })),
  },
  map: {
    write: (value) => Object.entries(value).map(([key, it]) => `${key}=${it}`).join("\n"),
    read: (text, schema) => Object.fromEntries(lines(text).map((line) => {
      const at = line.indexOf("=");
      if (at < 1) throw new Error(`${line}: write name=value, one on each line`);
      const value = line.slice(at + 1).trim();
      return [line.slice(0, at).trim(), schema.additionalProperties.type === "integer" ? KINDS.number.read(value) : value];
    })),
  },
  json: {
    write: (value) => JSON.stringify(value, null, 2),
    read: (text) => {
      try {
        return JSON.parse(text);
      } catch (error) {
        throw new Error(`is not JSON: ${error.message}`);
      }
    },
  },
};

function kindOf(schema) {
  if (schema.type === "boolean") return "truth";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.only) return "records";
  if (schema.type === "array") return schema.items.type === "string" ? "list" : "json";
  if (schema.type === "object") return schema.additionalProperties ? "map" : "json";
  return "text";
}

/** The name of the one field that things in a list must have; null where there are several, or it is no text. */
function onlyField(model, { type, items }) {
  if (type !== "array" || !items.$ref) return null;
  const { required, properties } = model.plain(items);
  return required?.length === 1 && properties[required[0]].type === "string" ? required[0] : null;
}

const isSecret = ({ format }) => format === "password";
const HOW = { list: "One on each line.", records: "One on each line.", map: "name=value, one on each line.", json: "JSON." };

function controlOf(name, schema, kind, attributes, words) {
  const area = (rows) => make("textarea", { rows, spellcheck: "false", class: "mono", ...attributes });
  const select = (...options) => make("select", attributes, ...options.map(([value, text]) => make("option", { value }, text)));
  if (kind === "truth") return select(["", "as it is by default"], ["true", "yes"], ["false", "no"]);
  if (words) return select(["", attributes["aria-required"] ? "Choose one" : "as it is by default"], ...words.map((word) => [word, word.replaceAll("_", " ")]));
  if (name.endsWith("_pem") || name === "ca") return area(6);
  if (kind === "json" || (name === "value" && !isSecret(schema))) return area(8);
  // A secret may have several lines, such as a key.
  if (name === "value") return make("textarea", { rows: 3, spellcheck: "false", autocomplete: "off", ...attributes, class: "mono concealed" });
  if (["list", "records", "map"].includes(kind) || (schema.maxLength ?? 0) > LONG || name === "body") return area(3);
  return make("input", {
    type: isSecret(schema) ? "password" : "text", autocomplete: isSecret(schema) ? "new-password" : "off",
    inputmode: kind === "number" ? "decimal" : null, spellcheck: "false", ...attributes,
  });
}

/** A choice among things by their names, which come later than the field. */
function selectOf(read, value, attributes) {
  const option = ([id, text]) => make("option", { value: id }, text || id);
  const select = make("select", attributes, option(["", "…"]), value ? option([value, value]) : null);
  read().then((things) => {
    const chosen = select.value;
    const kept = chosen && !things.some(([id]) => id === chosen) ? [[chosen, chosen]] : [];
    select.replaceChildren(option(["", things.length ? "Choose one" : "There is none yet"]), ...[...kept, ...things].map(option));
    select.value = chosen;
  });
  return select;
}

/** One field: its control, what is wrong with it, and what it holds. */
class FormField {
  constructor(model, name, plain, required, value, choices, isPicked) {
    const schema = { ...plain, only: onlyField(model, plain) };
    // What is secret does not go back into a page.
    Object.assign(this, { name, schema, required, kind: kindOf(schema), kept: isSecret(schema) ? value : undefined });
    const id = unique(`field-${name}`);
    this.problem = make("p", { class: "problem", id: `${id}-problem` });
    const offered = quoted(schema.description);
    const isOffered = this.kind === "text" && !schema.format && !name.endsWith("url") && offered.length > 1 && !(schema.maxLength > LONG);
    const attributes = { id, name, "aria-describedby": `${id}-problem ${id}-hint`, "aria-required": (required && !this.kept) || null };
    const read = choices ? async () => (await choices()).map((it) => [it]) : thingsFor(model, name);
    const words = isOffered && !read ? listed(schema.description) : [];
    const isWord = words.length > 0 && (value == null || value === "" || words.includes(value));
    this.control = isPicked ? selectOf(read, value, attributes) : controlOf(name, schema, this.kind, attributes, isWord ? words : null);
    const list = isPicked || isWord ? null : read ? suggestions(read, this.control, `${id}-list`)
      : (isOffered ? make("datalist", { id: `${id}-list` }, ...offered.map((word) => make("option", { value: word }))) : null);
    if (list && this.control.tagName === "INPUT") this.control.setAttribute("list", list.id);
    this.before = value == null || isSecret(schema) ? "" : KINDS[this.kind].write(value, schema);
    this.control.value = this.before;
    this.control.addEventListener("input", () => this.check());
    const hint = [schema.description?.replaceAll("`", "").replace(/(?<=[^.])$/, "."), HOW[this.kind], this.isKept ? "Left empty, it stays." : ""].filter(Boolean).join(" ");
    const adder = list && this.control.tagName === "TEXTAREA" ? picker(this.control, list, label(name)) : null;
    this.element = make("div", { class: "field" },
      make("label", { for: id }, label(name), required && !this.isKept ? make("span", { class: "hint" }, " (required)") : null),
      this.control, adder ?? list, this.problem, make("p", { class: "hint", id: `${id}-hint` }, hint));
  }

  get text() {
    return this.control.value;
  }

  /** Whether there is a secret that stays unless another one is written. */
  get isKept() {
    return Boolean(this.kept);
  }

  get isChanged() {
    return this.text !== this.before;
  }

  /** The value; undefined where nothing is written. */
  read() {
    return this.text.trim() === "" ? this.kept : KINDS[this.kind].read(this.text, this.schema);
  }

  /** Says while somebody types what can be known here. */
  check(whole = false) {
    let problem = "";
    try {
      if (this.read() === undefined && this.required && whole) problem = "is required";
      const size = new TextEncoder().encode(this.text).length;
      // What is sent is for the service to decide.
      if (!whole) problem = fault(this.name, this.read());
      if (size > this.schema["x-max-bytes"]) problem = `has ${size} bytes, the limit is ${this.schema["x-max-bytes"]}`;
    } catch (error) {
      problem = error.message;
    }
    this.refuse(problem);
    return !problem;
  }

  refuse(problem) {
    say(this.problem, problem);
    if (problem) this.control.setAttribute("aria-invalid", "true");
    else this.control.removeAttribute("aria-invalid");
  }
}

/** A field that adds what is chosen to the lines of an area. */
function picker(area, list, title) {
  const input = make("input", { type: "text", list: list.id, "aria-label": `Add to ${title}`, placeholder: "Add…", autocomplete: "off" });
  input.addEventListener("focus", () => area.dispatchEvent(new Event("focus")), { once: true });
  input.addEventListener("change", () => {
    if (!input.value) return;
    area.value = [area.value.trimEnd(), input.value].filter(Boolean).join("\n");
    input.value = "";
    area.dispatchEvent(new Event("input"));
  });
  return make("div", {}, input, list);
}

/** The fields of a schema; those of an object stand in a group. */
export class Form {
  constructor(model, schema, values = {}, { isChange = false, leaveOut = [], choices = {}, titles = {}, picked = null } = {}) {
    Object.assign(this, { isChange, fields: new Map(), groups: new Map() });
    const own = model.plain(schema);
    const required = new Set([...own.required ?? [], picked?.field]);
    const entries = Object.entries(own.properties ?? {}).filter(([name, { description }]) => !leaveOut.includes(name) && name !== picked?.unless && !NOT_OFFERED.test(description));
    // What must be there comes first, and free text last.
    const rank = ([name]) => (required.has(name) ? 0 : ({ description: 2, metadata: 3 })[name] ?? 1);
    this.element = make("div", { class: "form" }, entries.sort((a, b) => rank(a) - rank(b)).map(([name, it]) => {
      const plain = model.plain(it);
      if (!plain.properties) {
        const field = new FormField(model, name, plain, required.has(name) && !isChange, values[name], choices[name], name === picked?.field);
        this.fields.set(name, field);
        return field.element;
      }
      if (isChoice(model, plain)) {
        const choice = new Choice(model, name, plain, required.has(name), values[name], Form);
        this.groups.set(name, choice);
        return choice.element;
      }
      const group = new Form(model, plain, flatten(values[name]), { isChange: values[name] != null });
      group.isGiven = values[name] != null;
      this.groups.set(name, group);
      return make("details", { class: "group", open: values[name] != null || required.has(name) },
        make("summary", {}, make("b", {}, titles[name] ?? label(name)), make("span", { class: "hint" }, ` ${plain.description?.replaceAll("`", "") ?? ""}`)), group.element);
    }));
  }

  get isChanged() {
    return [...this.fields.values(), ...this.groups.values()].some((it) => it.isChanged);
  }

  check() {
    const good = [...this.fields.values()].map((field) => field.check(true)).every(Boolean);
    const groups = [...this.groups.values()].filter((group) => group.isChanged || group.isRequired);
    return groups.map((group) => group.check()).every(Boolean) && good;
  }

  /** What is to be sent: for a change, only what is another value now. */
  read() {
    const values = {};
    for (const [name, field] of this.fields) {
      const value = field.read();
      if (!this.isChange && value !== undefined) values[name] = value;
      else if (this.isChange && field.isChanged) values[name] = value ?? empty(field.kind);
    }
    // What replaces a whole has also what stays as it is.
    const groups = this.isChange ? [...this.groups].filter(([, group]) => group.isChanged) : this.groups;
    return { ...values, ...wholes(groups) };
  }

  /** Everything that is written: objects inside of others are replaced as a whole. */
  readWhole() {
    const written = [...this.fields].map(([name, field]) => [name, field.read()]).filter(([, value]) => value !== undefined);
    return { ...Object.fromEntries(written), ...wholes(this.groups) };
  }

  /** Shows a refusal at the field that it names; false where it names none. */
  refuse(message) {
    const [, path, problem] = message.match(/^([a-z_][\w.[\]]*): (.*)$/s) ?? [];
    return Boolean(path) && this.refuseAt(path.split(/[.[\]]+/), problem);
  }

  refuseAt([name, ...inner], problem) {
    const field = this.fields.get(name);
    if (field) {
      field.refuse(problem);
      field.element.closest("details")?.setAttribute("open", "");
      field.control.focus();
      return true;
    }
    const group = this.groups.get(name);
    if (group) {
      group.element.closest("details")?.setAttribute("open", "");
      return inner.length ? group.refuseAt(inner, problem) : group.refuse(problem);
    }
    // A module names its own fields alone.
    return [...this.groups.values()].some((it) => it.refuseAt([name, ...inner], problem));
  }

  focusProblem() {
    this.element.querySelector("[aria-invalid='true']")?.focus();
  }
}

/** The values of groups that have some, or that are there without any. */
function wholes(groups) {
  const all = [...groups].map(([name, group]) => [name, group.readWhole(), group.isGiven && !group.isChanged]);
  return Object.fromEntries(all.filter(([, values, stays]) => stays || Object.keys(values).length).map(([name, values]) => [name, values]));
}

const empty = (kind) => ({ list: [], records: [], map: {}, json: null, number: null, truth: null })[kind] ?? "";

/** References as the identifiers that requests have in their place. */
export function flatten(value) {
  if (value == null) return {};
  const flat = { ...value };
  for (const [name, it] of Object.entries(value)) {
    if (it?.id && it.uri) flat[`${name}_id`] = it.id;
    else if (Array.isArray(it) && it[0]?.id && it[0].uri) flat[`${name.replace(/ies$/, "y").replace(/s$/, "")}_ids`] = it.map(({ id }) => id);
    else if (it && typeof it === "object" && !Array.isArray(it)) flat[name] = flatten(it);
  }
  return flat;
}

/** Opens a form in a dialog; `send` gets the values, and its refusal is shown where it belongs. */
export function openForm(title, hint, form, verb, send, extra = []) {
  const box = dialog(title, make("div", {}, hint ? make("p", { class: "hint" }, hint.replaceAll("`", "")) : null, form.element), [[verb, async () => {
    if (!form.check()) {
      form.focusProblem();
      throw new Error("Some fields are not right yet.");
    }
    try {
      await send(form.read());
    } catch (error) {
      if (form.refuse(error.message)) throw new Error("The service refuses a field.");
      throw error;
    }
  }, "strong"], ...extra]);
  box.querySelector(".form input, .form textarea, .form select")?.focus();
  return box;
}

/** A button that shows a secret which is in a field of its own. */
export function shownOnce(title, text, secret, copy) {
  const problem = make("p", { class: "problem", role: "alert" });
  const box = dialog(title, make("div", {},
    make("p", {}, text),
    make("pre", { class: "secret", tabindex: "0" }, secret), copy, problem), [], { close: "I have kept it" });
  const stay = (event) => {
    event.preventDefault();
    say(problem, "It is not shown again: copy it, then choose “I have kept it”.");
  };
  box.setAttribute("closedby", "none");
  box.addEventListener("cancel", stay);
  // A second Esc closes whatever the first one was told.
  box.addEventListener("keydown", (event) => event.key === "Escape" && stay(event));
  return box;
}

