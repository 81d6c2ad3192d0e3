// What can be done, from the OpenAPI document of the service: no resource is described here again.

import { call } from "./session.js";

/** Sections, the resources in them, and which of their fields a list shows; others come by themselves. */
const SECTIONS = [
  ["Traffic", { tunnel_sessions: ["Agents", "ip agent_version os transport credential started_at"], tunnels: ["Tunnels", "public_url proto labels forwards_to tunnel_session started_at"] }],
  ["Edges", {
    "edges.https": ["HTTPS edges", "hostports description routes created_at"],
    "edges.tcp": ["TCP edges", "hostports description backend created_at"],
    "edges.tls": ["TLS edges", "hostports description backend tls_termination created_at"],
    "backends.tunnel_group": ["Tunnel groups", "description labels tunnels created_at"],
    "backends.failover": ["Failover", "description backends created_at"],
    "backends.weighted": ["Weighted", "description backends created_at"],
    "backends.static": ["Static addresses", "address description created_at"],
    "backends.http_response": ["Fixed responses", "description status_code body created_at"],
  }],
  ["Policies", { ip_policies: ["IP policies", "description created_at"], ip_policy_rules: ["IP policy rules", "cidr action ip_policy description created_at"] }],
  ["Domains", {
    reserved_domains: ["Reserved domains", "domain description certificate_management_status owner_id created_at"],
    tls_certificates: ["TLS certificates", "subject_common_name not_after issuer_common_name description created_at"],
    certificate_authorities: ["Client authorities", "subject_common_name not_after description created_at"],
  }],
  ["Access", {
    api_keys: ["API keys", "description owner_id created_at"],
    credentials: ["Agent credentials", "description acl owner_id created_at"],
    bot_users: ["Bot users", "name active created_at"],
    audit_events: ["Audit", "created_at operation outcome key_id address resource_ids error_code"],
  }],
  ["Service", { nodes: ["Nodes", "name state own version sessions tunnels started_at"] }],
];

const titleOf = (name) => {
  const words = name.split(".").at(-1).replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
};

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

/** A field's name as a label. */
export const label = (name) => titleOf(name).replace(/\b(id|url|ip|tls|acl|pem|ca|os|cidr|cname)(s?)\b/gi, (word, it, s) => it.toUpperCase() + s)
  .replace(/ IDs?$/, "").replace(/ at$/, "");

/** One kind of thing that the API has. */
class Resource {
  constructor(name, doc) {
    const [title, about] = doc.split(/(?<=^[^:.]*): /);
    Object.assign(this, { name, title: about ? title.replace(/ module$/, "") : titleOf(name), columns: null, parts: new Map(), actions: [] });
    /** What it is, as a sentence. */
    this.about = sentence(about ?? doc);
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

  arrange() {
    const left = new Set([...this.resources.values()].filter((it) => it.list && !it.outer));
    const sections = SECTIONS.map(([title, entries]) => [title, Object.entries(entries).flatMap(([name, [own, columns]]) => {
      const resource = this.resources.get(name);
      if (!resource) return [];
      left.delete(resource);
      return [Object.assign(resource, { title: own, columns: columns.split(" ") })];
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

/** What a thing is called by people. */
export function nameOf(thing) {
  const own = thing.hostports?.join(", ") || thing.name || thing.domain || thing.cidr || thing.public_url || thing.address
    || thing.match || (thing.agent_version && thing.ip && `Agent at ${thing.ip}`) || thing.subject_common_name || thing.operation || thing.description;
  return own || thing.id || "";
}
