// What can be done, from the OpenAPI document of the service, and what `resources.js` adds to it.

import { NAMES, SECTIONS } from "./resources.js";
import { call } from "./session.js";

const titleOf = (name) => {
  const words = name.split(".").at(-1).replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
};

/** Verbs of summaries that do not become the past with "-ed". */
const PAST = { Set: "Set", Stop: "Stopped", Begin: "Began", Send: "Sent", Put: "Put" };

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

/** A field's name as a label. */
export const label = (name) => NAMES[name] ?? titleOf(name).replace(/\b(id|url|ip|tls|acl|pem|ca|os|cidr|cname|http|otlp)(s?)\b/gi, (word, it, s) => it.toUpperCase() + s)
  .replace(/(?<!^Client) IDs?$/, "").replace(/ at$/, "");

/** One kind of thing that the API has. */
class Resource {
  constructor(name, doc) {
    const [title, about] = doc.split(/(?<=^[^:.]*): /);
    Object.assign(this, { name, title: about ? title.replace(/ module$/, "") : titleOf(name), columns: null, inside: [], choices: {}, parts: new Map(), actions: [] });
    /** What it is, as a sentence. */
    this.about = sentence(about ?? doc);
  }

  /** Whether its things live at a path inside of another thing. */
  get isInside() {
    return this.list?.path.includes("{") ?? false;
  }

  /** The path of an operation for the thing with these identifiers, outermost first. */
  path(operation, ids = []) {
    const left = [...ids];
    return operation.path.replace(/\{[^}]+\}/g, () => encodeURIComponent(left.shift()));
  }
}

export class Model {
  constructor(document) {
    this.schemas = document.components.schemas;
    this.resources = new Map(document.tags.map(({ name, description }) => [name, new Resource(name, description)]));
    for (const [path, methods] of Object.entries(document.paths)) {
      for (const [method, { operationId, summary, parameters, requestBody, responses }] of Object.entries(methods)) {
        const at = operationId.lastIndexOf(".");
        const [resource, name] = [this.resources.get(operationId.slice(0, at)), operationId.slice(at + 1)];
        if (!resource) continue;
        const body = requestBody?.content["application/json"].schema;
        const result = Object.values(responses)[0].content?.["application/json"].schema;
        const operation = { name, path, method: method.toUpperCase(), summary, parameters, body, result };
        // An agent is updated by a POST: that changes nothing of its session.
        if (method === "post" && name !== "create") resource.actions.push(operation);
        else resource[name] = operation;
      }
    }
    this.nest();
    this.sections = this.arrange();
  }

  /** Finds what lives inside of other things: routes, and modules of edges and routes. */
  nest() {
    for (const resource of this.resources.values()) {
      const at = resource.name.lastIndexOf(".");
      const outer = this.resources.get(resource.name.slice(0, at));
      if (at < 0 || !outer) continue;
      resource.outer = outer;
      outer.parts.set(resource.name.slice(at + 1), resource);
      if (resource.replace) resource.isModule = true;
    }
  }

  /** The sections with their resources; what nothing is said of comes last. */
  arrange() {
    const left = new Set([...this.resources.values()].filter((it) => it.list && !it.outer && !it.isInside));
    const sections = Object.entries(SECTIONS).map(([title, entries]) => [title, Object.entries(entries).flatMap(([name, entry]) => {
      const resource = this.resources.get(name);
      if (!resource) return [];
      Object.assign(resource, entry, { columns: entry.columns.split(" ") });
      return left.delete(resource) ? [resource] : [];
    })]);
    return left.size ? [...sections, ["Other", [...left]]] : sections;
  }

  /** A schema without references and without "or null". */
  plain(schema) {
    const known = schema?.anyOf?.[0] ?? schema;
    const name = known?.$ref?.split("/").at(-1);
    return name ? { ...this.schemas[name], description: schema.description ?? known.description, name } : { ...known, description: schema?.description };
  }

  /** What the things of a resource look like. */
  shape(resource) {
    const result = this.plain((resource.get ?? resource.list).result);
    const list = Object.values(result.properties ?? {}).find(({ type }) => type === "array");
    return resource.get ? result : this.plain(list.items);
  }

  /** The secrets in a thing, outermost first: each with the label of its field. */
  secretsOf(thing, shape) {
    return Object.entries(shape.properties ?? {}).flatMap(([name, schema]) => {
      const field = this.plain(schema);
      if (thing?.[name] == null) return [];
      if (field.properties) return this.secretsOf(thing[name], field);
      return field.format === "password" ? [[name, thing[name]]] : [];
    });
  }

  /** What an operation has done, in words: its summary, as something that is over. */
  changeOf(operation) {
    const at = operation.lastIndexOf(".");
    const resource = this.resources.get(operation.slice(0, at));
    const name = operation.slice(at + 1);
    const summary = (resource?.[name] ?? resource?.actions.find((it) => it.name === name))?.summary;
    if (!summary) return titleOf(operation.replaceAll(".", " "));
    const [, verb, rest] = summary.match(/^(\w+)([^;:,.(]*)/);
    return `${PAST[verb] ?? verb.replace(/e?$/, "ed")}${rest}`;
  }

  /** Things have identifiers that begin with the name of their kind; which the description of that says. */
  kindOf(id) {
    const prefix = id.slice(0, id.lastIndexOf("_"));
    const things = [...this.resources.values()].filter((it) => it.get && !it.isModule);
    return things.find((it) => this.shape(it).properties?.id?.description?.includes(`\`${prefix}_\``));
  }
}

/** How many items a page has. */
export const PAGE = 100;

/** One page after the other, at most so many items. */
export async function listAll(resource, most, more = () => true, query = "", options = {}) {
  let path = `${resource.list.path}?limit=${PAGE}${query}`;
  const items = [];
  while (path && items.length < most) {
    const page = await call(path, "GET", undefined, options);
    const found = Object.values(page).find(Array.isArray);
    items.push(...found);
    if (!more(found)) break;
    const next = page.next_page_uri && new URL(page.next_page_uri).search;
    path = next ? resource.list.path + next : null;
  }
  return { items, next: path };
}

/** Where a destination of events leads to. */
export function targetOf(target) {
  const [kind, it] = Object.entries(target ?? {}).find(([, known]) => known) ?? [];
  return kind ? `${label(kind)} ${it.url ?? it.name ?? ""}` : "";
}

/** What a thing is called by people. */
export function nameOf(thing) {
  const own = thing.hostports?.join(", ") || thing.name || thing.domain || thing.cidr || thing.public_url || thing.address
    || thing.match || (thing.agent_version && thing.ip && `Agent at ${thing.ip}`) || thing.subject_common_name || thing.operation
    || thing.addr || thing.description || targetOf(thing.target) || thing.type;
  return own || thing.id || "";
}
