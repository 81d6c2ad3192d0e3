// The first view: how the service is, what is wrong, and what happened last.

import { bytes, make, say, time } from "./dom.js";
import { listAll } from "./model.js";
import { TimePlot, brief } from "./plot.js";
import { data } from "./session.js";
import { badge, empty } from "./ui.js";
import { moment } from "./moment.js";
import { at, short } from "./views.js";

const PAUSE = 10_000;
const [LAST, SOON] = [8, 21 * 86_400_000];
const share = (part, whole) => (whole ? (100 * part) / whole : null);
const percent = (value) => `${+value.toPrecision(2)} %`;

const tile = (title, href) => {
  const [value, hint] = [make("span", { class: "tile-value" }, "–"), make("span", { class: "hint" })];
  return { value, hint, element: make(href ? "a" : "div", { class: "tile", href }, make("span", { class: "tile-title" }, title), value, hint) };
};

/** How many things a resource has; more than a page is "100+". */
async function count(resource) {
  const { items, next } = await listAll(resource, 100);
  return `${items.length}${next ? "+" : ""}`;
}

export async function overviewView({ model, caller, signal }) {
  const resource = (name) => model.resources.get(name);
  const tiles = {
    agents: tile("Agents online", at("tunnel_sessions")), tunnels: tile("Tunnels", at("tunnels")), edges: tile("Edges", at("edges.https")),
    rate: tile("Requests per second", caller.admin ? "#/traffic" : null), errors: tile("Server errors"), duration: tile("Duration, p95"),
  };
  const rate = new TimePlot({ title: "Requests", unit: "per second", series: [{ name: "requests", kind: "accent" }] });
  const errors = new TimePlot({ title: "Errors", unit: "% of requests", series: [{ name: "server", kind: "bad" }, { name: "client", kind: "warn" }] });
  const duration = new TimePlot({ title: "Duration", unit: "", format: time, series: [{ name: "p50", kind: "accent" }, { name: "p95", kind: "moved" }, { name: "p99", kind: "warn" }] });
  const volume = new TimePlot({ title: "Bytes", unit: "per second", format: (value) => bytes(Math.round(value)), series: [{ name: "to visitors", kind: "accent" }, { name: "from visitors", kind: "moved" }] });
  const plots = make("div", { class: "plots" }, rate.element, errors.element, duration.element, volume.element);
  const figures = make("p", { class: "hint" });
  const problems = make("ul", { class: "problem-list" });
  const wrong = make("section", { class: "card" }, make("h2", {}, "What is wrong"), problems);
  const events = make("div", {});
  let certificates = [];

  const showProblems = (found) => {
    const items = [
      ...found.map(({ is_severe: severe, text, edge_id: edge }) => make("li", {}, badge(severe ? "problem" : "warning", severe ? "bad" : "warn"),
        make("span", {}, text, edge ? make("span", {}, " ", make("a", { href: at("edges.tcp", edge) }, "Show the edge")) : null))),
      ...certificates.map((it) => make("li", {}, badge("certificate", Date.parse(it.not_after) < Date.now() ? "bad" : "warn"),
        make("span", {}, make("a", { href: at(it.kind, it.id) }, it.subject_common_name || it.id), " ends ", moment(it.not_after)))),
    ];
    problems.replaceChildren(...(items.length ? items : [make("li", { class: "fine" }, make("span", { class: "good", "aria-hidden": "true" }, "✓"), " Nothing: the service is ready, and no certificate ends soon.")]));
  };

  const show = (overview) => {
    const { samples, interval } = overview;
    const at = samples.map((it) => it.time * 1000);
    const last = samples.slice(-6);
    const sum = (name) => last.reduce((total, it) => total + it[name], 0);
    const requests = sum("requests");
    say(tiles.agents.value, brief(overview.agents));
    say(tiles.agents.hint, overview.node ? `on ${overview.node}` : "");
    say(tiles.tunnels.value, brief(overview.tunnels));
    say(tiles.tunnels.hint, overview.node ? `and ${overview.remote_tunnels} on other nodes` : "");
    say(tiles.rate.value, last.length ? brief(requests / (last.length * interval)) : "–");
    say(tiles.rate.hint, "last minute");
    say(tiles.errors.value, requests ? percent(share(sum("server_errors"), requests)) : "–");
    say(tiles.errors.hint, "last minute");
    tiles.errors.value.classList.toggle("bad", sum("server_errors") > 0);
    say(tiles.duration.value, time(last.findLast((it) => it.p95_ms != null)?.p95_ms) || "–");
    say(tiles.duration.hint, "last 10 s with requests");
    plots.hidden = samples.length < 2;
    const minutes = Math.round((samples.length * interval) / 60);
    const past = minutes >= 60 ? "The last hour" : minutes > 1 ? `The last ${minutes} minutes` : "The last minute";
    rate.show(at, [samples.map((it) => it.requests / interval)]);
    errors.show(at, ["server_errors", "client_errors"].map((name) => samples.map((it) => share(it[name], it.requests))));
    duration.show(at, ["p50_ms", "p95_ms", "p99_ms"].map((name) => samples.map((it) => it[name])));
    volume.show(at, ["sent", "received"].map((name) => samples.map((it) => it[name] / interval)));
    volume.element.hidden = !overview.counts_always;
    say(figures, [
      plots.hidden ? "Plots begin after half a minute." : `${past}${overview.node ? ` of ${overview.node}` : ""}, in steps of ${interval} s.`,
      overview.counts_always ? "" : "Counted only while somebody is logged in: with the setting admin_addr the service counts all the time.",
    ].filter(Boolean).join(" "));
    showProblems(overview.problems);
  };

  const rest = async () => {
    const soon = async (kind) => (await listAll(resource(kind), 1000)).items.filter((it) => it.not_after && Date.parse(it.not_after) - Date.now() < SOON).map((it) => ({ ...it, kind }));
    const [https, tcp, tls] = await Promise.all(["https", "tcp", "tls"].map((kind) => count(resource(`edges.${kind}`))));
    say(tiles.edges.value, [https, tcp, tls].filter((it) => it !== "0").join(" + ") || "0");
    say(tiles.edges.hint, `${https} HTTPS, ${tcp} TCP, ${tls} TLS`);
    certificates = (await Promise.all([soon("tls_certificates"), soon("certificate_authorities")])).flat();
    await changes();
  };

  /** What happened last, in words: who logs in changes nothing. */
  const changes = async () => {
    if (!caller.admin) return events.replaceChildren(make("p", { class: "hint" }, "Only admins see the audit trail."));
    const { items } = await listAll({ list: { path: "/audit_events" } }, 1);
    const changed = items.filter(({ operation }) => !operation.startsWith("console."));
    return events.replaceChildren(changed.length ? make("ol", { class: "plain events" }, changed.slice(0, LAST).map((it) => make("li", {},
      make("a", { href: at("audit_events", it.id), title: it.operation }, model.changeOf(it.operation)), it.outcome === "success" ? null : short("outcome", it.outcome), make("span", { class: "hint" }, " ", moment(it.created_at)))))
      : empty("No changes yet", "Every call that changes something appears here."));
  };

  const first = await data("overview");
  await rest().catch((error) => events.replaceChildren(make("p", { class: "problem" }, error.message)));
  show(first);
  const again = setInterval(async () => {
    try {
      show(await data("overview", undefined, { inBackground: true }));
    } catch (error) {
      problems.replaceChildren(make("li", {}, badge("not known", "warn"), make("span", {}, `How the service is now cannot be read: ${error.message}`)));
    }
  }, PAUSE);
  signal.addEventListener("abort", () => clearInterval(again));
  return make("div", { class: "view" }, make("div", { class: "view-head" }, make("h1", {}, "Overview")),
    make("div", { class: "tiles" }, Object.values(tiles).map(({ element }) => element)),
    make("div", { class: "cards two" }, wrong, make("section", { class: "card" }, make("h2", {}, "Last changes"), events)),
    make("section", {}, make("h2", {}, "Traffic"), figures, plots));
}
