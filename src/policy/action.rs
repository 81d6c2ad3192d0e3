//! Actions: what a rule does.
//!
//! The table below lists them all. A new action is a file in [`actions`](super::actions) and a
//! line here.

use std::fmt::Debug;

use super::Phase;
use super::actions::{
    add_headers, basic_auth, body_find_replace, circuit_breaker, close_connection,
    compress_response, custom_response, deny, forward_internal, http_request, jwt_validation, log,
    rate_limit, redirect, remove_headers, restrict_ips, set_vars, url_rewrite, verify_webhook,
};
use super::config::Config;
use super::run::{Failure, Flow, Turn};

/// A configured action.
pub trait Action: Debug + Send + Sync {
    /// The IP policies that the action looks at.
    fn ip_policies(&self) -> &[String] {
        &[]
    }

    /// Does it.
    ///
    /// What it needs from outside it asks for before it changes anything, because it runs again
    /// from the start when that is there.
    fn run(&self, turn: &mut Turn<'_>) -> Result<Flow, Failure>;

    /// Whether it keeps visitors out, so that a response may not pass when it fails.
    fn guards(&self) -> bool {
        false
    }

    /// Whether nothing comes after the action as it is configured.
    ///
    /// Asked of actions that end their phase only sometimes.
    fn always_ends(&self) -> bool {
        false
    }
}

/// Whether an action ends its phase, so that no later action or rule runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// It never does.
    Never,
    /// It depends on the traffic or on the configuration.
    Sometimes,
    /// It always does.
    Always,
}

/// A type of action.
#[derive(Debug)]
pub struct Kind {
    /// Its name in a document.
    pub name: &'static str,
    /// The phases it can run in.
    pub phases: &'static [Phase],
    /// Whether it ends its phase.
    pub ends: Ends,
    /// Whether it decides who the visitor is; a rule may have one such action.
    pub authenticates: bool,
    /// Reads its configuration.
    parse: Parse,
}

/// An action of a rule.
#[derive(Debug)]
pub struct Step {
    /// Its type.
    pub kind: &'static Kind,
    /// Its configuration.
    pub action: Box<dyn Action>,
}

use Ends::{Always, Never, Sometimes};
use Phase::{Close, Connect, Request, Response};

/// All types of action that are built.
///
/// Traffic policy sheet, section 3.
pub const KINDS: &[Kind] = &[
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
    kind("rate-limit", &[Request], Sometimes, rate_limit::parse),
    kind("redirect", &[Request], Sometimes, redirect::parse),
    kind("remove-headers", &[Request, Response], Never, remove_headers::parse),
    kind("request-body-find-replace", &[Request], Never, body_find_replace::parse),
    kind("response-body-find-replace", &[Response], Never, body_find_replace::parse),
    kind("restrict-ips", &[Connect, Request, Response], Sometimes, restrict_ips::parse),
    kind("set-vars", &[Connect, Request, Response, Close], Never, set_vars::parse),
    kind("url-rewrite", &[Request], Never, url_rewrite::parse),
    kind("verify-webhook", &[Request], Sometimes, verify_webhook::parse),
];

/// The type of a name.
pub(super) fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

impl Kind {
    /// Reads the configuration of an action of this type.
    pub(super) fn configure(&'static self, mut config: Config<'_>) -> Step {
        let action = (self.parse)(&mut config);
        config.close();
        Step { kind: self, action }
    }

    /// Whether the action can run in some phase of traffic that is HTTP, or that is not.
    pub(super) fn supports(&self, is_http: bool) -> bool {
        self.phases.iter().any(|phase| phase.is_http() == is_http)
    }
}

impl Step {
    /// Whether nothing comes after the action.
    pub fn always_ends(&self) -> bool {
        self.kind.ends == Always || self.kind.ends == Sometimes && self.action.always_ends()
    }
}

type Parse = fn(&mut Config<'_>) -> Box<dyn Action>;

const fn kind(name: &'static str, phases: &'static [Phase], ends: Ends, parse: Parse) -> Kind {
    Kind { name, phases, ends, authenticates: false, parse }
}

const fn authenticating(
    name: &'static str,
    phases: &'static [Phase],
    ends: Ends,
    parse: Parse,
) -> Kind {
    Kind { name, phases, ends, authenticates: true, parse }
}
