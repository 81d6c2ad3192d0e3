// Forms made from the schemas of operations, with each problem at its field.

import { make, say } from "./dom.js";
import { label, listAll, nameOf } from "./model.js";
import { dialog, unique } from "./ui.js";

const LONG = 255;
const SUGGESTED = 500;

/** What stands in quotes of a description, such as `allow`, are values that make sense. */
const quoted = (text) => [...new Set([...(text ?? "").matchAll(/`([\w.-]{1,40})`/g)].map(([, word]) => word))];

/** Which things a field names, by its own name. */
const NAMED = [
  [/^backend(_id|s)$/, (name) => name.startsWith("backends.")],
  [/^ip_policy_ids?$/, (name) => name === "ip_policies"],
  [/^certificate_authority_ids$/, (name) => name === "certificate_authorities"],
  [/^certificate_id$/, (name) => name === "tls_certificates"],
  [/^owner_id$/, (name) => name === "bot_users"],
];

/** A list of things to choose from, filled when somebody comes to its field. */
function suggestions(model, name, control, id) {
  const isNamed = NAMED.find(([pattern]) => pattern.test(name))?.[1];
  const options = make("datalist", { id });
  if (isNamed) {
    control.addEventListener("focus", async () => {
      const resources = [...model.resources.values()].filter((it) => it.list && isNamed(it.name));
      const found = await Promise.all(resources.map((it) => listAll(it, SUGGESTED).catch(() => ({ items: [] }))));
      options.replaceChildren(...found.flatMap(({ items }) => items)
        .map((thing) => make("option", { value: thing.id }, nameOf(thing))));
    }, { once: true });
  }
  return isNamed ? options : null;
}

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
  if (schema.type === "array") return schema.items.type === "string" ? "list" : "json";
  if (schema.type === "object") return schema.additionalProperties ? "map" : "json";
  return "text";
}

const HOW = { list: "One on each line.", map: "name=value, one on each line.", json: "JSON." };

function controlOf(name, schema, kind, attributes) {
  const area = (rows) => make("textarea", { rows, spellcheck: "false", class: "mono", ...attributes });
  if (kind === "truth") {
    return make("select", attributes, ...[["", "as it is by default"], ["true", "yes"], ["false", "no"]].map(([value, text]) => make("option", { value }, text)));
  }
  if (name.endsWith("_pem")) return area(6);
  if (kind === "json") return area(8);
  if (kind === "list" || kind === "map" || (schema.maxLength ?? 0) > LONG || name === "body") return area(3);
  return make("input", {
    type: schema.format === "password" ? "password" : "text", autocomplete: schema.format === "password" ? "new-password" : "off",
    inputmode: kind === "number" ? "decimal" : null, spellcheck: "false", ...attributes,
  });
}

/** One field: its control, what is wrong with it, and what it holds. */
class FormField {
  constructor(model, name, schema, required, value) {
    Object.assign(this, { name, schema, required, kind: kindOf(schema) });
    const id = unique(`field-${name}`);
    this.problem = make("p", { class: "problem", id: `${id}-problem` });
    const offered = quoted(schema.description);
    const isOffered = this.kind === "text" && !schema.format && offered.length > 1 && !(schema.maxLength > LONG);
    this.control = controlOf(name, schema, this.kind, { id, name, "aria-describedby": `${id}-problem ${id}-hint`, "aria-required": required || null });
    const list = suggestions(model, name, this.control, `${id}-list`)
      ?? (isOffered ? make("datalist", { id: `${id}-list` }, ...offered.map((word) => make("option", { value: word }))) : null);
    if (list && this.control.tagName === "INPUT") this.control.setAttribute("list", list.id);
    this.before = value == null ? "" : KINDS[this.kind].write(value);
    this.control.value = this.before;
    this.control.addEventListener("input", () => this.check());
    const hint = [schema.description?.replaceAll("`", ""), HOW[this.kind]].filter(Boolean).join(" ");
    const choices = list && this.control.tagName === "TEXTAREA" ? picker(this.control, list) : null;
    this.element = make("div", { class: "field" },
      make("label", { for: id }, label(name), required ? make("span", { class: "hint" }, " (required)") : null),
      this.control, choices ?? list, this.problem, make("p", { class: "hint", id: `${id}-hint` }, hint));
  }

  get text() {
    return this.control.value;
  }

  get isChanged() {
    return this.text !== this.before;
  }

  /** The value; undefined where nothing is written. */
  read() {
    return this.text.trim() === "" ? undefined : KINDS[this.kind].read(this.text, this.schema);
  }

  /** Says while somebody types what can be known here. */
  check(whole = false) {
    let problem = "";
    try {
      if (this.read() === undefined && this.required && whole) problem = "is required";
      const size = new TextEncoder().encode(this.text).length;
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
function picker(area, list) {
  const input = make("input", { type: "text", list: list.id, "aria-label": "Add to the list", placeholder: "Add…", autocomplete: "off" });
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
  constructor(model, schema, values = {}, { isChange = false, leaveOut = [] } = {}) {
    Object.assign(this, { isChange, fields: new Map(), groups: new Map() });
    const own = model.plain(schema);
    const required = new Set(own.required ?? []);
    const entries = Object.entries(own.properties ?? {}).filter(([name]) => !leaveOut.includes(name));
    // What must be there comes first, and free text last.
    const rank = ([name]) => (required.has(name) ? 0 : ({ description: 2, metadata: 3 })[name] ?? 1);
    this.element = make("div", { class: "form" }, entries.sort((a, b) => rank(a) - rank(b)).map(([name, it]) => {
      const plain = model.plain(it);
      if (!plain.properties) {
        const field = new FormField(model, name, plain, required.has(name) && !isChange, values[name]);
        this.fields.set(name, field);
        return field.element;
      }
      const group = new Form(model, plain, flatten(values[name]), { isChange: values[name] != null });
      this.groups.set(name, group);
      return make("details", { class: "group", open: values[name] != null },
        make("summary", {}, make("b", {}, label(name)), make("span", { class: "hint" }, ` ${plain.description?.replaceAll("`", "") ?? ""}`)), group.element);
    }));
  }

  get isChanged() {
    return [...this.fields.values(), ...this.groups.values()].some((it) => it.isChanged);
  }

  check() {
    const good = [...this.fields.values()].map((field) => field.check(true)).every(Boolean);
    const groups = [...this.groups.values()].filter((group) => group.isChanged);
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
    for (const [name, group] of this.groups) if (group.isChanged) values[name] = group.readWhole();
    return values;
  }

  /** Everything that is written: objects inside of others are replaced as a whole. */
  readWhole() {
    const written = [...this.fields].map(([name, field]) => [name, field.read()]).filter(([, value]) => value !== undefined);
    return Object.fromEntries(written);
  }

  /** Shows a refusal at the field that it names; false where it names none. */
  refuse(message) {
    const [, name, rest] = message.match(/^([a-z_]+)[^:\s]*: (.*)$/s) ?? [];
    const field = this.fields.get(name);
    if (field) {
      field.refuse(rest);
      field.control.focus();
      return true;
    }
    const group = this.groups.get(name);
    if (group) group.element.closest("details").open = true;
    return [...this.groups.values()].some((it) => it.refuse(rest ?? message));
  }

  focusProblem() {
    this.element.querySelector("[aria-invalid='true']")?.focus();
  }
}

const empty = (kind) => ({ list: [], map: {}, json: null, number: null, truth: null })[kind] ?? "";

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
  return dialog(title, make("div", {},
    make("p", {}, text),
    make("pre", { class: "secret", tabindex: "0" }, secret), copy), [], { close: "I have kept it" });
}

