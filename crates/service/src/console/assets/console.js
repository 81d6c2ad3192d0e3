// The console: who is logged in, which view is shown, and the way between views.

import { announce, button, byId, make, say } from "./dom.js";
import { Model } from "./model.js";
import { overviewView } from "./overview.js";
import { policyView } from "./policy.js";
import { call, logIn, logOut, onEnd, onReach, watch, whoami } from "./session.js";
import { trafficView } from "./traffic.js";
import { empty, field, menu, toast } from "./ui.js";
import { at, listView, thingView } from "./views.js";

let model = null;
let caller = null;
let showing = new AbortController();

const main = byId("main");
const sections = byId("sections");

// ── Login ────────────────────────────────────────────────────────────────────────────────────

function showLogin(reason = "") {
  showing.abort();
  caller = null;
  document.querySelectorAll("dialog").forEach((box) => box.close());
  sections.hidden = true;
  byId("account").replaceChildren();
  document.title = "Log in – ginnel console";
  const problem = make("p", { class: "problem", role: "alert" }, reason);
  const key = make("input", { type: "password", name: "key", autocomplete: "current-password", required: true, spellcheck: "false" });
  const enter = make("button", { class: "strong" }, "Log in");
  const submit = async (event) => {
    event.preventDefault();
    enter.disabled = true;
    say(problem, "");
    try {
      caller = await logIn(key.value.trim());
      await begin();
    } catch (error) {
      say(problem, error.message);
      key.select();
    }
    enter.disabled = false;
  };
  main.replaceChildren(make("form", { class: "login card", submit }, make("h1", {}, "Console"),
    make("p", { class: "hint" }, "Log in with an API key of this service. The key is sent once; the session ends after an hour without use, and after twelve at the latest."),
    field("API key", key), problem, enter,
    make("details", {}, make("summary", {}, "No key?"),
      make("p", {}, "Whoever runs the service makes one: ", make("code", {}, "ginnel admin-key new"), " for the first, or one for you under API keys here."))));
  key.focus();
}

// ── Navigation ───────────────────────────────────────────────────────────────────────────────

const OWN = [["overview", "Overview"], ["traffic", "Live traffic"], ["policy", "Try a policy"]];

/** The links, by section. What only admins may see is for them alone. */
function entries() {
  const own = (name) => [`#/${name}`, OWN.find(([known]) => known === name)[1]];
  const isSeen = ({ admin }) => caller.admin || !admin;
  const all = model.sections.map(([title, resources]) => [title, resources.filter(isSeen).map((it) => [at(it.name), it.title])]);
  for (const [title, links] of all) {
    if (title === "Traffic" && caller.admin) links.unshift(own("traffic"));
    if (title === "Policies") links.push(own("policy"));
  }
  return [[null, [own("overview")]], ...all];
}

function drawSections() {
  const here = location.hash.split("?")[0];
  const isHere = (href) => here === href || here.startsWith(`${href}/`);
  const list = entries().map(([title, links]) => make("div", { class: "section" },
    title ? make("h2", {}, title) : null,
    make("ul", {}, links.map(([href, text]) => make("li", {}, make("a", { href, "aria-current": isHere(href) ? "page" : null }, text))))));
  const wide = matchMedia("(min-width: 60rem)").matches;
  const current = entries().flatMap(([, links]) => links).find(([href]) => isHere(href))?.[1] ?? "Menu";
  sections.replaceChildren(make("details", { open: wide }, make("summary", {}, make("span", { class: "unseen" }, "Sections: "), current), make("div", { class: "section-list" }, list)));
  sections.hidden = false;
}

/** What stands where a view cannot be shown. */
function failure(title, text, ...actions) {
  return make("div", { class: "view empty failure" }, make("h1", {}, title), make("p", {}, text),
    make("div", { class: "actions" }, actions, make("a", { class: "button", href: "#/overview" }, "Overview")));
}

const NOT_FOUND = () => failure("There is no such view", "The address may be of another version of the service.");

/** The view at an address. */
async function viewOf(context, parts) {
  const [name, ...ids] = parts;
  if (name === "overview") return overviewView(context);
  if (name === "traffic") return trafficView(context);
  if (name === "policy") return policyView(context);
  if (name === "id") {
    const found = model.kindOf(ids[0] ?? "");
    return found?.list ? thingView(context, found, ids) : NOT_FOUND();
  }
  const resource = model.resources.get(name);
  if (!resource || resource.isInside) return NOT_FOUND();
  if (!ids.length) return resource.list ? listView(context, resource) : NOT_FOUND();
  const [id, part, partId] = ids;
  if (!part) return resource.get ? thingView(context, resource, [id]) : NOT_FOUND();
  const inner = resource.parts.get(part);
  return inner && partId ? thingView(context, inner, [id, partId]) : NOT_FOUND();
}

async function show() {
  if (!caller) return;
  const [path, search] = location.hash.slice(2).split("?");
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  if (!parts.length) {
    location.replace("#/overview");
    return;
  }
  showing.abort();
  const own = new AbortController();
  showing = own;
  drawSections();
  const context = { model, caller, signal: own.signal, parameters: new URLSearchParams(search), refresh: () => show() };
  let view;
  try {
    view = await viewOf(context, parts);
  } catch (error) {
    const gone = error.status === 404;
    view = failure(gone ? "It is not there" : "This cannot be shown", gone ? "It may have been deleted." : error.message, button("Try again", show));
  }
  if (own.signal.aborted || !caller) return;
  main.replaceChildren(view);
  main.dataset.view = path;
  const title = main.querySelector("h1")?.textContent ?? "Console";
  document.title = `${title} – ginnel console`;
  announce(title);
}

// ── Start ────────────────────────────────────────────────────────────────────────────────────

async function begin() {
  model ??= new Model(await call("/openapi.json"));
  byId("account").replaceChildren(menu(caller.admin ? "Admin" : "Bot user", () => [
    make("p", { class: "title" }, "Owner"), make("p", { class: "mono entry" }, caller.owner_id),
    make("p", { class: "title" }, "Key"), make("p", { class: "mono entry" }, caller.key_id), null,
    ["Log out", async () => {
      await logOut().catch(() => {});
      showLogin();
    }],
  ], { "aria-label": "Account" }));
  say(byId("place"), location.host);
  await show();
  main.focus();
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
let away = null;
/** When the service was back after it had been away; a session that ends with it has ended because of that. */
let back = 0;

onReach((since) => {
  const trouble = byId("trouble");
  document.body.classList.toggle("away", Boolean(since));
  trouble.hidden = !since;
  say(trouble, since ? `The service cannot be reached since ${clock.format(since)}. What is shown is from before; this page goes on trying.` : "");
  if (away && !since) {
    back = Date.now();
    toast(`The service is back. It could not be reached from ${clock.format(away)} to ${clock.format(back)}.`);
    if (caller && main.querySelector(".failure")) show();
  }
  away = since;
});
onEnd(() => caller && showLogin(Date.now() - back < 5000
  ? "The service is back, but has forgotten the session, as it does when it is started anew. Log in again."
  : "The session is over. Log in again: then this view is shown again."));
watch(() => caller !== null);
addEventListener("hashchange", async () => {
  await show();
  main.scrollTop = 0;
  main.focus({ preventScroll: true });
  // On narrow screens all of the page scrolls.
  scrollTo(0, 0);
});
matchMedia("(min-width: 60rem)").addEventListener("change", () => caller && drawSections());

try {
  caller = await whoami();
  if (caller) await begin();
  else showLogin();
} catch (error) {
  main.replaceChildren(empty("The console cannot start", error.message, button("Try again", () => location.reload())));
}
