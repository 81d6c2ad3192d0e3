//! The actions, one per file: what each can be told, checked and ready to run.
//!
//! Traffic policy sheet, section 3. A new action is a file here, and a line in the table below.

pub mod add_headers;
pub mod basic_auth;
pub mod body_find_replace;
pub mod change;
pub mod circuit_breaker;
pub mod close_connection;
pub mod compress_response;
pub mod custom_response;
pub mod deny;
pub mod forward_internal;
pub mod http_request;
pub mod jwt_validation;
pub mod log;
pub mod login;
mod nginx;
mod prelude;
pub mod rate_limit;
pub mod redirect;
pub mod remove_headers;
pub mod restrict_ips;
pub mod set_vars;
pub mod terminate_tls;
pub mod url_rewrite;
pub mod verify_webhook;

use super::action::Ends::{self, Always, Never, Sometimes};
use super::action::{ActionKind, Parse};
use super::phase::Phase::{self, Close, Connect, Request, Response};

/// The one that is done before there is a connection to run rules for.
pub(super) const TERMINATE_TLS: &str = "terminate-tls";

/// All types of action that are built.
///
/// Traffic policy sheet, section 3.
pub const KINDS: &[ActionKind] = &[
    kind("add-headers", &[Request, Response], Never, add_headers::parse_config),
    authenticating("basic-auth", &[Request], Sometimes, basic_auth::parse_config),
    kind("circuit-breaker", &[Request], Sometimes, circuit_breaker::parse_config),
    kind("close-connection", &[Connect, Request], Always, close_connection::parse_config),
    kind("compress-response", &[Request, Response], Never, compress_response::parse_config),
    kind("custom-response", &[Request, Response], Always, custom_response::parse_config),
    kind("deny", &[Connect, Request], Always, deny::parse_config),
    kind("forward-internal", &[Connect, Request], Sometimes, forward_internal::parse_config),
    kind("http-request", &[Request, Response], Never, http_request::parse_config),
    authenticating("jwt-validation", &[Request], Sometimes, jwt_validation::parse_config),
    kind("log", &[Connect, Request, Response, Close], Never, log::parse_config),
    authenticating("oauth", &[Request], Sometimes, login::parse_oauth),
    authenticating("openid-connect", &[Request], Sometimes, login::parse_openid_connect),
    kind("rate-limit", &[Request], Sometimes, rate_limit::parse_config),
    kind("redirect", &[Request], Sometimes, redirect::parse_config),
    kind("remove-headers", &[Request, Response], Never, remove_headers::parse_config),
    kind("request-body-find-replace", &[Request], Never, body_find_replace::parse_config),
    kind("response-body-find-replace", &[Response], Never, body_find_replace::parse_config),
    kind("restrict-ips", &[Connect, Request, Response], Sometimes, restrict_ips::parse_config),
    kind("set-vars", &[Connect, Request, Response, Close], Never, set_vars::parse_config),
    kind(TERMINATE_TLS, &[Connect], Never, terminate_tls::parse_config),
    kind("url-rewrite", &[Request], Never, url_rewrite::parse_config),
    kind("verify-webhook", &[Request], Sometimes, verify_webhook::parse_config),
];

/// The type of a name.
pub(super) fn find_kind(name: &str) -> Option<&'static ActionKind> {
    // What the vendor's guides call it.
    let name = if name == "webhook-validation" { "verify-webhook" } else { name };
    KINDS.iter().find(|kind| kind.name == name)
}

/// Why an action of the vendor does not work here, if it is one of those.
pub(super) fn unsupported_reason(name: &str) -> Option<&'static str> {
    Some(match name {
        "ai-gateway" => "needs language models that are not part of this service",
        "oidc" => "is called openid-connect",
        "saml" => "is not supported yet: use openid-connect",
        "owasp-crs-request" | "owasp-crs-response" => {
            "needs a rule set that is not part of this service"
        }
        "sse-find-replace" => "is not supported",
        _ => return None,
    })
}

const fn kind(
    name: &'static str,
    phases: &'static [Phase],
    ends: Ends,
    parse: Parse,
) -> ActionKind {
    ActionKind { name, phases, ends, authenticates: false, parse }
}

const fn authenticating(
    name: &'static str,
    phases: &'static [Phase],
    ends: Ends,
    parse: Parse,
) -> ActionKind {
    ActionKind { name, phases, ends, authenticates: true, parse }
}
