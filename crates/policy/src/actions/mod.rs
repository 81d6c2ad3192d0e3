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
    kind("add-headers", &[Request, Response], Never, add_headers::parse),
    authenticating("basic-auth", &[Request], Sometimes, basic_auth::parse),
    kind("circuit-breaker", &[Request], Sometimes, circuit_breaker::parse),
    kind("close-connection", &[Connect, Request], Always, close_connection::parse),
    kind("compress-response", &[Request, Response], Never, compress_response::parse),
    kind("custom-response", &[Request, Response], Always, custom_response::parse),
    kind("deny", &[Connect, Request], Always, deny::parse),
    kind("forward-internal", &[Connect, Request], Sometimes, forward_internal::parse),
    kind("http-request", &[Request, Response], Never, http_request::parse),
    authenticating("jwt-validation", &[Request], Sometimes, jwt_validation::parse),
    kind("log", &[Connect, Request, Response, Close], Never, log::parse),
    authenticating("oauth", &[Request], Sometimes, login::parse_oauth),
    authenticating("openid-connect", &[Request], Sometimes, login::parse_openid_connect),
    kind("rate-limit", &[Request], Sometimes, rate_limit::parse),
    kind("redirect", &[Request], Sometimes, redirect::parse),
    kind("remove-headers", &[Request, Response], Never, remove_headers::parse),
    kind("request-body-find-replace", &[Request], Never, body_find_replace::parse),
    kind("response-body-find-replace", &[Response], Never, body_find_replace::parse),
    kind("restrict-ips", &[Connect, Request, Response], Sometimes, restrict_ips::parse),
    kind("set-vars", &[Connect, Request, Response, Close], Never, set_vars::parse),
    kind(TERMINATE_TLS, &[Connect], Never, terminate_tls::parse),
    kind("url-rewrite", &[Request], Never, url_rewrite::parse),
    kind("verify-webhook", &[Request], Sometimes, verify_webhook::parse),
];

/// The type of a name.
pub(super) fn find(name: &str) -> Option<&'static ActionKind> {
    // What the vendor's guides call it.
    let name = if name == "webhook-validation" { "verify-webhook" } else { name };
    KINDS.iter().find(|kind| kind.name == name)
}

/// Why an action of the vendor does not work here, if it is one of those.
pub(super) fn unsupported(name: &str) -> Option<&'static str> {
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
