// Lists of things and single things, for every resource alike.

import { deliveriesOf } from "./deliveries.js";
import { announce, button, make, say, time } from "./dom.js";
import { Form, flatten, openForm, shownOnce } from "./forms.js";
import { label, listAll, nameOf, PAGE, targetOf } from "./model.js";
import { moment } from "./moment.js";
import { openPolicy } from "./policy.js";
import { call } from "./session.js";
import { Table } from "./table.js";
import { badge, confirm, copyButton, empty, facts, toast } from "./ui.js";

/** How many things a list reads at once, and how many at most. */
const [FIRST, MOST] = [1000, 20_000];
/** The time between two looks at a list, in milliseconds, and the longest one after failures. */
const [PAUSE, MAX_PAUSE] = [5000, 60_000];
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const WEEK = 7 * 86_400_000;

/** The address of a view. */
export const at = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

const WORDS = {
  success: "good", alive: "good", draining: "warn", allow: "good", refused: "warn", deny: "warn", failed: "bad", lapsed: "bad",
};

/** A value in a few words, for a cell. */
export function short(name, value) {
  if (value == null || value === "") return make("span", { class: "hint" }, "–");
  if (typeof value === "boolean") return badge(value ? "yes" : "no", value ? "good" : "");
  if (name === "outcome" || name === "state" || name === "action") return badge(value, WORDS[value] ?? "");
  if (name.endsWith("_at") || name.startsWith("not_")) return name === "not_after" ? ending(value) : moment(value);
  if (name === "certificate_management_status") return certificate(value);
  if (name === "latency_ms") return time(value);
  if (name === "routes") return String(value.length);
  if (name === "target") return targetOf(value);
  if (Array.isArray(value)) return value.map((it) => it?.id ?? it?.type ?? (typeof it === "object" ? JSON.stringify(it) : it)).join(", ");
  if (value.backend) return value.backend.id;
  if (value.id && value.uri) return value.id;
  if (typeof value === "object") return Object.entries(value).map(([key, it]) => `${key}=${typeof it === "object" ? "…" : it}`).join(", ");
  return String(value);
}

/** When a certificate ends; soon is said in color and in words. */
function ending(text) {
  const left = Date.parse(text) - Date.now();
  if (left < 0) return badge("ended", "bad");
  return left < 3 * WEEK ? make("span", { class: "badge warn" }, "ends ", moment(text)) : moment(text);
}

function certificate({ renews_at, provisioning_job: job }) {
  if (job?.msg) return badge(job.error_code ? "failing" : "being obtained", job.error_code ? "bad" : "moved", { title: job.msg });
  return renews_at ? make("span", {}, "renews ", moment(renews_at)) : badge("none yet");
}

/** What stands for a secret, whatever the API says of it. */
const concealed = () => make("span", { class: "hint" }, "•••••• is kept");

/** A value with all it has, for the view of one thing. */
function whole(name, value, model, schema) {
  const field = model.plain(schema);
  if (field.format === "password") return concealed();
  if (field.properties && !value.id && name !== "certificate_management_status") return record(value, model, field);
  if (Array.isArray(value) && value.length && typeof value[0] !== "object") {
    return make("ul", { class: "plain" }, value.map((it) => make("li", {}, linked(String(it), model))));
  }
  if (Array.isArray(value) && value[0]?.type && !value[0].config) return make("ul", { class: "plain" }, value.map(({ type }) => make("li", {}, make("code", {}, type))));
  if (Array.isArray(value) && value[0]?.id) return make("ul", { class: "plain" }, value.map(({ id }) => make("li", {}, linked(id, model))));
  if (value?.id && value.uri) return linked(value.id, model);
  if (typeof value === "string" && value.includes("\n")) return make("pre", {}, value);
  if (typeof value === "string" && /_(id|ids)$/.test(name)) return linked(value, model);
  if (value && typeof value === "object" && name !== "certificate_management_status") return make("pre", {}, JSON.stringify(value, null, 2));
  return short(name, value);
}

/** The fields of a value that has some, also those of what is in it. */
function record(value, model, { properties }) {
  const fields = Object.entries(properties).filter(([name]) => value[name] != null && value[name] !== "");
  if (!fields.length) return make("span", { class: "hint" }, "nothing of its own");
  return facts(fields.map(([name, schema]) => [label(name), whole(name, value[name], model, schema)]));
}

/** An identifier leads to what it names, and says its name as soon as that is known. */
function linked(text, model) {
  const resource = /^[a-z]+_[0-9A-Za-z]{27}$/.test(text) && model?.kindOf(text);
  if (!resource?.list) return text;
  const link = make("a", { class: "mono", href: at(resource.name, text) }, text);
  call(resource.path(resource.get, [text])).then((thing) => {
    link.title = text;
    link.className = "";
    say(link, nameOf(thing));
  }).catch(() => {
    // It may be gone, or for others to see; then its identifier is all there is to say.
  });
  return link;
}

/** A sentence of a description, with code as code. */
export function prose(text) {
  return make("span", {}, (text ?? "").split("`").map((part, place) => (place % 2 ? make("code", {}, part) : part)));
}

const head = (title, hint, ...tools) => make("div", { class: "view-head" },
  make("div", {}, make("h1", {}, title), hint ? make("p", { class: "hint" }, prose(hint)) : null),
  make("div", { class: "tools" }, tools.flat()));

/** Things with what the console knows of them besides. */
const withFigures = (things, figures) => things.map((thing) => ({ ...thing, ...figures[thing.id] }));

// ── Lists ────────────────────────────────────────────────────────────────────────────────────

/** The list of a resource. */
export function listView(context, resource) {
  const { model, caller } = context;
  const count = make("span", { class: "hint", role: "status" });
  const filter = make("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${resource.title}`, spellcheck: "false" });
  const more = button("Load more", () => load(), { hidden: true });
  const place = make("div", { class: "list-place" });
  const shape = model.shape(resource);
  let [items, next] = [[], null];
  const link = (thing) => (resource.get ? at(resource.name, thing.id) : at("id", thing.id));
  const names = resource.columns ?? Object.keys(shape.properties).filter((name) => !["uri", "metadata"].includes(name)).slice(0, 6);
  const wide = (name) => ["hostports", "description", "public_url", "operation", "domain", "address", "labels", "backends", "name", "body", "acl", "resource_ids", "target", "sources", "destinations"].includes(name);
  const columns = names.map((name, index) => ({
    id: name, title: label(name), width: wide(name) ? 9 : 7.5, flex: wide(name), rank: index ? index : null,
    cell: (thing) => index ? short(name, thing[name]) : make("a", { href: link(thing), tabindex: "-1" }, short(name, thing[name] || thing.id)),
    sort: (thing) => (typeof thing[name] === "object" ? JSON.stringify(thing[name]) : thing[name]),
  }));
  const figures = async (things) => (resource.figures ? withFigures(things, await resource.figures().catch(() => ({}))) : things);
  const id = { id: "id", title: "Identifier", width: 22, rank: 90, off: true, cell: (thing) => thing.id, sort: (thing) => thing.id };
  if (!names.includes("id")) columns.push(id);

  const table = new Table({
    place, name: `console.${resource.name}`, label: resource.title, columns, key: (thing) => thing.id, href: link, newestFirst: true,
    choose: (key) => table.look(key),
    open: (key) => location.assign(at(resource.name, key)),
  });
  table.grid.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 }[event.key];
    if (step) {
      event.preventDefault();
      table.move(step);
    } else if (event.key === "Enter" && table.chosen && event.target === table.grid) table.open(table.chosen);
  });
  const nothing = make("div", {});
  const show = () => {
    const wanted = filter.value.trim().toLowerCase();
    const seen = wanted ? items.filter((thing) => JSON.stringify(thing).toLowerCase().includes(wanted)) : items;
    const shown = new Set(seen.map(({ id }) => id));
    table.drop([...table.rows.keys()].filter((id) => !shown.has(id)));
    table.put([...seen].reverse().filter((thing) => !same(thing, table.rows.get(thing.id))));
    say(count, `${seen.length === items.length ? "" : `${seen.length} of `}${items.length} ${next ? "loaded, there are more" : "in all"}`);
    place.style.setProperty("--rows", seen.length);
    more.hidden = !next;
    place.hidden = !seen.length;
    nothing.replaceChildren(...(seen.length ? [] : [items.length
      ? empty("Nothing matches the filter", `None of the ${items.length} has “${filter.value}” in it.`)
      : empty(resource.nothing ?? `No ${lower(resource.title)} yet`, resource.none ?? resource.about, resource.create ? create() : "")]));
  };
  const load = async () => {
    more.disabled = true;
    try {
      const page = await listAll(next ? { list: { path: next.split("?")[0] } } : resource, FIRST, undefined,
        next ? `&${next.split("?")[1].replace(/&?limit=\d+/, "")}` : "");
      items = items.concat(await figures(page.items)).slice(0, MOST);
      next = items.length < MOST ? page.next : null;
      show();
    } catch (error) {
      place.hidden = true;
      nothing.replaceChildren(empty(`${resource.title} cannot be shown`, error.message, error.status === 403 && !caller.admin ? "" : button("Try again", load)));
    }
    more.disabled = false;
  };
  /** Agents come and go, and other people change things. A list of several pages is read again by its reader. */
  const follow = async (pause) => {
    await new Promise((done) => { setTimeout(done, pause); });
    if (context.signal.aborted) return;
    let again = PAUSE;
    if (!document.hidden && !more.disabled && !next && items.length <= PAGE) {
      try {
        const page = await listAll(resource, PAGE, undefined, "", { inBackground: true });
        const read = await figures(page.items);
        if (context.signal.aborted) return;
        if (!same(read, items)) {
          [items, next] = [read, page.next];
          show();
        }
      } catch {
        // The bar says when the service is away; it is not asked more than it bears.
        again = Math.min(2 * pause, MAX_PAUSE);
      }
    }
    follow(again);
  };
  const create = () => button("Create…", () => createThing(context, resource), { class: "strong" });
  filter.addEventListener("input", show);
  load();
  follow(PAUSE);
  return make("div", { class: "view tall" },
    head(resource.title, resource.about, resource.create ? create() : null,
      resource.name === "nodes" && model.resources.get("configuration") ? button("Reload the configuration…", () => reload(context)) : null),
    make("div", { class: "tools list-tools" }, filter, count, more, table.columnMenu()), place, nothing);
}

function reload({ model }) {
  const [operation] = model.resources.get("configuration").actions;
  confirm("Reload the configuration", operation.summary, "Reload", async () => {
    const result = await call(operation.path, "POST");
    const restart = result.restart_needed?.length ? ` A restart is needed for: ${result.restart_needed.join(", ")}.` : "";
    toast(`${result.changed?.length ? `Changed: ${result.changed.join(", ")}.` : "Nothing has changed."}${restart}`);
  });
}

// ── Create, change, delete ───────────────────────────────────────────────────────────────────

const one = (title) => title.replace(/^(\w+)s (?=of )/, "$1 ").replace(/(?<! of .*)(ies|sses|s)$/, (end) => ({ ies: "y", sses: "ss" })[end] ?? "");
/** A title inside of a sentence; what is written in capitals stays so. */
const lower = (title) => (/^[A-Z]{2}/.test(title) ? title : title[0].toLowerCase() + title.slice(1));

/** What one of its things is called inside of a sentence; what is inside of another thing needs no "of". */
const nounOf = ({ title, outer }) => lower(one(outer ? title.replace(/ of .*/, "") : title));

function createThing(context, resource, ids = [], values = {}) {
  const { model, refresh } = context;
  const titles = Object.fromEntries([...resource.parts].map(([name, part]) => [name, part.title]));
  const form = new Form(model, resource.create.body, values, { leaveOut: POLICIES, titles, choices: resource.choices, picked: resource.picked });
  openForm(`New ${nounOf(resource)}`, resource.create.summary, form, "Create", async (body) => {
    const thing = await call(resource.path(resource.create, ids), "POST", body);
    announce(`Created ${nameOf(thing)}`);
    showSecrets(context, resource, thing, [body]);
    if (resource.outer && !resource.list) location.assign(at(resource.outer.name, ...ids, resource.name.split(".").at(-1), thing.id));
    else if (Object.keys(values).length || ids.length) refresh();
    else location.assign(at(resource.name, thing.id));
  });
}

/** Shows this once what the service has made for it and does not tell again. */
function showSecrets({ model }, resource, thing, known) {
  const shape = model.shape(resource);
  const old = known.flatMap((it) => model.secretsOf(it, shape)).map(([, secret]) => secret);
  const token = thing.token ? [["token", thing.token, "It is shown this once: the service keeps only a hash of it. Whoever has it can use it until it is deleted."]] : [];
  const made = model.secretsOf(thing, shape).filter(([name, secret]) => name !== "token" && !old.includes(secret))
    .map((it) => [...it, "The service has made it, and shows it this once. Keep it where it is needed."]);
  for (const [name, secret, text] of [...token, ...made]) {
    const word = label(name).toLowerCase();
    shownOnce(`The ${word} of the new ${nounOf(resource)}`, text, secret, copyButton(() => secret, `Copy the ${word}`, { class: "strong" }));
  }
}

function changeThing(context, resource, ids, thing) {
  const modules = [...resource.parts].filter(([, part]) => part.isModule).map(([name]) => name);
  const form = new Form(context.model, resource.update.body, flatten(thing), { isChange: true, leaveOut: modules, choices: resource.choices });
  openForm(`Change ${nameOf(thing)}`, resource.update.summary, form, "Save", async (values) => {
    if (!Object.keys(values).length) throw new Error("Nothing is changed yet.");
    const changed = await call(resource.path(resource.update, ids), "PATCH", values);
    toast("Saved");
    showSecrets(context, resource, changed, [values, thing]);
    context.refresh();
  });
}

function deleteThing(resource, ids, thing, after) {
  confirm(`Delete ${nameOf(thing)}?`, `${resource.delete.summary} This cannot be undone.`, "Delete", async () => {
    await call(resource.path(resource.delete, ids), "DELETE");
    toast(`Deleted ${nameOf(thing)}`);
    location.assign(after);
  });
}

// ── One thing ────────────────────────────────────────────────────────────────────────────────

/** One thing, with what is in it and what can be done with it. */
export async function thingView(context, resource, ids) {
  const { model } = context;
  const read = await call(resource.path(resource.get, ids));
  const figures = resource.figures ? (await resource.figures().catch(() => ({})))[read.id] : null;
  const thing = { ...read, ...figures };
  const outer = resource.outer && !resource.list ? at(resource.outer.name, ids[0]) : at(resource.name);
  const acts = resource.actions.map((operation) => button(`${label(operation.name)}…`, () => confirm(
    `${label(operation.name)} ${nameOf(thing)}?`, operation.summary, label(operation.name), async () => {
      await call(resource.path(operation, ids), "POST", {});
      toast(`Done: ${operation.summary}`);
      if (operation.name === "stop") location.assign(outer);
    }), { class: operation.name === "stop" ? "danger" : null }));
  const parts = [...resource.parts.keys()];
  const hidden = new Set(["id", "uri", "token", ...parts, "routes"]);
  const inside = resource.inside.map((table) => ({ ...table, things: model.resources.get(table.resource) })).filter(({ things }) => things?.list);
  for (const { things } of inside) if (things.isInside) hidden.add(things.list.path.split("/").at(-1));
  const { properties } = model.shape(resource);
  const shown = Object.entries(properties).filter(([name]) => !hidden.has(name) && thing[name] != null && thing[name] !== "");
  const more = Object.keys(figures ?? {}).filter((name) => !(name in properties)).map((name) => [label(name), short(name, thing[name])]);
  const [long, brief] = [shown.filter(([name]) => isLong(thing[name])), shown.filter(([name]) => !isLong(thing[name]))];
  return make("div", { class: "view" },
    make("nav", { "aria-label": "Path", class: "crumbs" }, make("a", { href: outer }, resource.outer && !resource.list ? `${one(resource.outer.title)}` : resource.title)),
    head(nameOf(thing), null,
      resource.update ? button("Change…", () => changeThing(context, resource, ids, thing)) : null, acts,
      resource.name.startsWith("edges.") ? make("a", { class: "button", href: `#/traffic?edge=${encodeURIComponent(ids.at(-1))}` }, "Traffic") : null,
      resource.delete ? button("Delete…", () => deleteThing(resource, ids, thing, outer), { class: "danger" }) : null),
    make("p", { class: "identifier" }, make("code", {}, thing.id), copyButton(() => thing.id, "Copy", { class: "quiet small", "aria-label": "Copy the identifier" })),
    facts([...brief.map(([name]) => [label(name), whole(name, thing[name], model, properties[name])]), ...more]),
    long.map(([name]) => make("section", {}, make("h2", {}, label(name)), whole(name, thing[name], model, properties[name]))),
    resource.deliveries ? await deliveriesOf(context, thing) : null,
    await Promise.all(inside.map((table) => insideOf(context, table, ids, thing))),
    parts.map((name) => resource.parts.get(name)).filter((part) => !part.isModule).map((part) => routesOf(context, part, ids, thing)),
    modulesOf(context, resource, ids, thing));
}

const isLong = (value) => (typeof value === "string" && (value.includes("\n") || value.length > 80)) || (typeof value === "object" && !Array.isArray(value) && !value.uri);

function tableOf(caption, titles, rows) {
  return make("table", { class: "list" }, make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, titles.map((title) => make("th", { scope: "col" }, title)))),
    make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map((cell) => make("td", {}, cell))))));
}

/** The routes of an edge: longest first, as they are tried. */
function routesOf(context, part, ids, thing) {
  const name = part.name.split(".").at(-1);
  const things = thing[name] ?? [];
  const link = (it) => make("a", { href: at(part.outer.name, ...ids, name, it.id) }, nameOf(it));
  const set = (it) => [...part.parts.keys()].filter((module) => it[module]).map((module) => badge(part.parts.get(module).title, it[module].enabled === false ? "" : "accent"));
  return make("section", {}, make("div", { class: "section-head" }, make("h2", {}, label(name)), button("Add a route…", () => createThing(context, part, ids))),
    things.length ? tableOf(label(name), ["Path", "Match", "Modules", "Description"], things.map((it) => [link(it), it.match_type ?? "", make("div", { class: "tools" }, set(it)), it.description ?? ""]))
      : empty("No routes yet", "Without a route, visitors of this edge get 404.", button("Add a route…", () => createThing(context, part, ids), { class: "strong" })));
}

const withArticle = (word) => `${/^[aeiou]/i.test(word) ? "an" : "a"} ${word}`;

/** A table of what belongs to a thing, as `resources.js` declares it. */
async function insideOf(context, { things, title = things.title, by, add, columns, none }, ids, thing) {
  const own = things.isInside ? Object.values(await call(things.path(things.list, ids))).find(Array.isArray)
    : (await listAll(things, MOST)).items.filter((it) => [it[by]].flat().some((named) => (named?.id ?? named) === thing.id));
  const values = add ? { [add]: add.endsWith("_ids") ? [thing.id] : thing.id } : {};
  const create = (attributes) => (things.create && (add || things.isInside)
    ? button(`Add ${withArticle(lower(one(title)))}…`, () => createThing(context, things, things.isInside ? ids : [], values), attributes) : null);
  const key = things.isInside ? things.get.path.match(/\{(\w+)\}$/)[1] : "id";
  const remove = things.isInside && things.delete;
  const names = columns.split(" ").filter((name, index) => !index || own.some((it) => !isNothing(it[name])));
  const cell = (it, name, index) => (index || things.isInside ? short(name, it[name]) : make("a", { href: at(things.name, it.id) }, isNothing(it[name]) ? nameOf(it) : it[name]));
  const rows = own.map((it) => [...names.map((name, index) => cell(it, name, index)),
    ...(remove ? [button("Remove…", () => removeInside(context, things, [...ids, it[key]], it[key]), { class: "small danger", "aria-label": `Remove ${it[key]}` })] : [])]);
  return make("section", {}, make("div", { class: "section-head" }, make("h2", {}, title), own.length ? create({}) : null),
    own.length ? tableOf(title, [...names.map(label), ...(remove ? ["Actions"] : [])], rows) : empty(`No ${lower(title)} yet`, none, create({ class: "strong" })));
}

const isNothing = (value) => value == null || value === "" || (typeof value === "object" && !Object.keys(value).length);

function removeInside(context, things, ids, name) {
  confirm(`Remove ${name}?`, things.delete.summary, "Remove", async () => {
    await call(things.path(things.delete, ids), "DELETE");
    toast(`Removed ${name}`);
    context.refresh();
  });
}

/** The modules of an edge or a route, in the order in which traffic meets them. */
function modulesOf(context, resource, ids, thing) {
  const modules = [...resource.parts].filter(([, part]) => part.isModule);
  if (!modules.length) return null;
  const state = (value) => (value ? badge(value.enabled === false ? "off" : "on", value.enabled === false ? "" : "good") : badge("not set"));
  const detail = (part, value) => Object.entries(value ?? {}).filter(([name, it]) => name !== "enabled" && it != null)
    .map(([name, it]) => make("span", { class: "part" }, make("span", { class: "hint" }, `${label(name)}: `), name === "inbound" || name === "outbound" ? `${it.length} ${it.length === 1 ? "rule" : "rules"}` : whole(name, it, context.model, context.model.shape(part).properties[name])));
  const otherOf = (name) => POLICIES.find((it) => it !== name);
  const isExcluded = (name) => POLICIES.includes(name) && !thing[name] && Boolean(thing[otherOf(name)]);
  return make("section", {}, make("h2", {}, "Modules"),
    tableOf("Modules", ["Module", "State", "Settings", "Actions"], modules.map(([name, part]) => [
      make("span", {}, make("b", {}, part.title), make("span", { class: "hint block" }, prose(part.about))),
      state(thing[name]), make("div", { class: "parts" }, detail(part, thing[name])),
      make("div", { class: "tools" },
        isExcluded(name) ? make("span", { class: "hint" }, `${resource.parts.get(otherOf(name)).title} is set instead`) : button(thing[name] ? "Change…" : "Set…", () => setModule(context, part, ids, thing, name), { class: "small", "aria-label": `${thing[name] ? "Change" : "Set"} ${part.title}` }),
        thing[name] ? button("Remove…", () => removeModule(context, part, ids), { class: "small danger", "aria-label": `Remove ${part.title}` }) : null),
    ])));
}

/** The two forms of a traffic policy, of which a thing has one. */
const POLICIES = ["policy", "traffic_policy"];

function setModule(context, part, ids, thing, name) {
  const save = async (values) => {
    await call(part.path(part.replace, ids), "PUT", values);
    toast(`Saved: ${part.title}`);
    context.refresh();
  };
  if (POLICIES.includes(name)) return openPolicy(name, part.title, thing[name], /^edges\.t(cp|ls)/.test(part.name) ? "tcp" : "https", save);
  const form = new Form(context.model, part.replace.body, flatten(thing[name]));
  return openForm(part.title, part.about, form, "Save", save);
}

function removeModule(context, part, ids) {
  confirm(`Remove ${part.title}?`, part.delete.summary, "Remove", async () => {
    await call(part.path(part.delete, ids), "DELETE");
    toast(`Removed: ${part.title}`);
    context.refresh();
  });
}
