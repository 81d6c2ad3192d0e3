// Groups of fields of which exactly one is there, such as the providers of a login.

import { make, say } from "./dom.js";
import { label } from "./model.js";
import { unique } from "./ui.js";

const EXACTLY_ONE = /\bexactly one of these\b/;

/** Whether exactly one field of a schema is there: its description in the API says so. */
export const isChoice = (model, { name }) => EXACTLY_ONE.test(model.schemas[name]?.description ?? "");

/** Which of them is there, and its own fields, none of which has to be written; `Form` makes the form of one. */
export class Choice {
  constructor(model, name, schema, isRequired, values, Form) {
    const initial = Object.keys(schema.properties).find((option) => values?.[option] != null) ?? "";
    Object.assign(this, { isRequired, before: initial, isGiven: Boolean(initial), forms: new Map() });
    const id = unique(`field-${name}`);
    this.problem = make("p", { class: "problem", id: `${id}-problem` });
    this.control = make("select", { id, name, "aria-describedby": `${id}-problem ${id}-hint`, "aria-required": isRequired || null, change: () => this.show() },
      make("option", { value: "" }, "Choose one"), ...Object.keys(schema.properties).map((option) => make("option", { value: option }, label(option))));
    this.control.value = initial;
    this.place = make("div", { class: "group" });
    this.element = make("div", {}, make("div", { class: "field" },
      make("label", { for: id }, label(name), isRequired ? make("span", { class: "hint" }, " (required)") : null),
      this.control, this.problem, make("p", { class: "hint", id: `${id}-hint` }, schema.description)), this.place);
    this.formOf = (option) => new Form(model, model.plain(schema.properties[option]), values?.[option] ?? {}, { isChange: values?.[option] != null });
    this.show();
  }

  /** The form of what is chosen; undefined where nothing is. */
  get form() {
    return this.forms.get(this.control.value);
  }

  get isChanged() {
    return this.control.value !== this.before || Boolean(this.form?.isChanged);
  }

  /** Shows the fields of what is chosen; what was written for another one is there again when that is. */
  show() {
    const chosen = this.control.value;
    if (chosen && !this.forms.has(chosen)) this.forms.set(chosen, this.formOf(chosen));
    this.place.hidden = !chosen;
    this.place.replaceChildren(...(chosen ? [this.form.element] : []));
    this.refuse("");
  }

  check() {
    if (!this.control.value && this.isRequired) {
      this.refuse("is required");
      return false;
    }
    return this.form?.check() ?? true;
  }

  /** One that is chosen is there, also where nothing is written in it. */
  readWhole() {
    return this.form ? { [this.control.value]: this.form.readWhole() } : {};
  }

  refuse(problem) {
    say(this.problem, problem);
    if (!problem) this.control.removeAttribute("aria-invalid");
    else {
      this.control.setAttribute("aria-invalid", "true");
      this.control.focus();
    }
    return true;
  }

  refuseAt([name, ...inner], problem) {
    if (name === this.control.value) return (inner.length > 0 && this.form.refuseAt(inner, problem)) || this.refuse(problem);
    return this.form?.refuseAt([name, ...inner], problem) ?? false;
  }
}
