// What the console says of each resource, and the only place that names them. A resource without an entry
// has a list and forms all the same: it stands in a section of its own, under the name that the API gives it.

import { data } from "./session.js";

/**
 * An entry: the title of the list, the columns of it, and as needed
 *
 * - `none`: what stands where there are no things yet, below `nothing` or, without it, "No … yet";
 * - `figures`: reads by identifier what the console knows of its things besides, as fields for columns;
 * - `admin`: only admins may see it;
 * - `fields`: the fields of any form that name things of this resource;
 * - `choices`: what a field may hold, by its name, as a promise of texts;
 * - `inside`: the tables in the view of one thing, as below;
 * - `picked`: the field of a new one for which one of its things must be chosen, and the field `unless` that would
 *   say the same in another way;
 * - `deliveries`: whether things wait to be delivered to one of it.
 *
 * A table has the things of `resource` whose field `by` names the thing, with `columns`; `add` is the field of
 * a new one that names the thing, and `none` is said where there are none. Without `by`, the things live at a path
 * inside of the thing, as types of events do.
 */
const agentFigures = () => data("agents", undefined, { inBackground: true }).then(({ agents }) => agents);
const eventTypes = () => data("event_types").then(({ types }) => types);
const DATED = "created_at";
const BACKEND = { fields: /^backend(_id|s)$/ };
const KEYS_OF_USER = [
  { resource: "api_keys", by: "owner_id", add: "owner_id", columns: `description ${DATED}`, none: "It can use no API." },
  { resource: "credentials", by: "owner_id", add: "owner_id", columns: `description acl ${DATED}`, none: "It can start no agent." },
];

/** Names that are written in their own way. */
export const NAMES = { github: "GitHub", gitlab: "GitLab", linkedin: "LinkedIn", latency_ms: "Latency" };

/** Sections of the navigation, and the resources in them. */
export const SECTIONS = {
  Traffic: {
    tunnel_sessions: {
      title: "Agents", columns: "ip agent_version tunnels latency_ms started_at os transport credential", figures: agentFigures,
      none: "Start one with: ginnel agent, or ginnel http 8080, and an authtoken of this service.",
      inside: [{ resource: "tunnels", by: "tunnel_session", columns: "public_url labels proto forwards_to started_at", none: "The agent is connected and has started none." }],
    },
    tunnels: { title: "Tunnels", columns: "public_url proto labels forwards_to tunnel_session started_at", none: "Tunnels appear as soon as an agent starts them." },
    endpoints: { title: "Endpoints", columns: `public_url type proto principal ${DATED}` },
  },
  Edges: {
    "edges.https": { title: "HTTPS edges", columns: `hostports description routes ${DATED}`, none: "An edge takes the traffic of host names and leads it, route by route, to backends." },
    "edges.tcp": { title: "TCP edges", columns: `hostports description backend ${DATED}` },
    "edges.tls": { title: "TLS edges", columns: `hostports description backend tls_termination ${DATED}` },
    "backends.tunnel_group": { title: "Tunnel groups", columns: `description labels tunnels ${DATED}`, ...BACKEND },
    "backends.failover": { title: "Failover", columns: `description backends ${DATED}`, ...BACKEND },
    "backends.weighted": { title: "Weighted", columns: `description backends ${DATED}`, ...BACKEND },
    "backends.static": { title: "Static addresses", columns: `address description ${DATED}`, ...BACKEND },
    "backends.http_response": { title: "Fixed responses", columns: `description status_code body ${DATED}`, ...BACKEND },
  },
  Policies: {
    ip_policies: {
      title: "IP policies", columns: `description ${DATED}`, fields: /^ip_policy_ids?$/,
      inside: [{ resource: "ip_policy_rules", title: "Rules", by: "ip_policy", add: "ip_policy_id", columns: "cidr action description", none: "A policy without rules lets nobody in." }],
    },
    ip_policy_rules: { title: "IP policy rules", columns: `cidr action ip_policy description ${DATED}` },
    ip_restrictions: { title: "IP restrictions", columns: `type enforced ip_policies description ${DATED}` },
    vaults: {
      title: "Vaults", columns: `name description created_by ${DATED}`, fields: /^vault_id$/,
      inside: [{ resource: "vault_secrets", title: "Secrets", by: "vault", add: "vault_id", columns: "name description updated_at", none: "Policies read secrets by the names of vault and secret." }],
    },
    vault_secrets: { title: "Secrets", columns: `name vault_name description updated_at ${DATED}`, picked: { field: "vault_id", unless: "vault_name" } },
  },
  Domains: {
    reserved_domains: { title: "Reserved domains", columns: `domain description certificate_management_status owner_id ${DATED}` },
    reserved_addrs: { title: "Reserved addresses", columns: `addr description owner_id ${DATED}` },
    tls_certificates: { title: "TLS certificates", columns: `subject_common_name not_after issuer_common_name description ${DATED}`, fields: /^certificate_id$/ },
    certificate_authorities: { title: "Client authorities", columns: `subject_common_name not_after description ${DATED}`, fields: /^certificate_authority_ids$/ },
  },
  Events: {
    event_destinations: {
      title: "Event destinations", columns: `description target ${DATED}`, admin: true, deliveries: true, fields: /^destination_ids$/,
      inside: [{ resource: "event_subscriptions", by: "destinations", add: "destination_ids", columns: "description sources", none: "Nothing is sent to a destination that no subscription names." }],
    },
    event_subscriptions: {
      title: "Event subscriptions", columns: `description sources destinations ${DATED}`, admin: true, choices: { sources: eventTypes },
      inside: [{ resource: "event_sources", title: "Types of events", columns: "type", none: "A subscription without types sends nothing." }],
    },
    event_sources: { title: "Types of events", columns: "type", admin: true, choices: { type: eventTypes } },
  },
  Access: {
    api_keys: { title: "API keys", columns: `description owner_id ${DATED}` },
    credentials: { title: "Agent credentials", columns: `description acl owner_id ${DATED}` },
    bot_users: { title: "Bot users", columns: `name active ${DATED}`, fields: /^owner_id$/, inside: KEYS_OF_USER },
    service_users: { title: "Service users", columns: `name active ${DATED}`, inside: KEYS_OF_USER },
    application_users: { title: "Visitors", columns: "name email provider_user_id last_active last_login", none: "Visitors appear when they log in at an endpoint that asks them to.", inside: [{ resource: "application_sessions", by: "application_user", columns: `public_url ${DATED} last_active expires_at`, none: "All of them have ended." }] },
    application_sessions: { title: "Visitor sessions", columns: `application_user public_url ${DATED} last_active expires_at`, none: "Sessions appear when visitors log in at an endpoint that asks them to." },
    audit_events: { title: "Audit", columns: `${DATED} operation outcome key_id address resource_ids error_code`, admin: true },
  },
  Service: { nodes: { title: "Nodes", columns: "name state own version sessions tunnels started_at", nothing: "This service runs alone", none: "Nodes are services that share a database." } },
};
