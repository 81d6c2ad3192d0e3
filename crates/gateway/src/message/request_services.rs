//! What requests on their way need of the gateway, and the endpoints that policies send them to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::ArcSwap;
use http::{Request, Response};

use ginnel_net::Reach;
use ginnel_policy::login::{LoginOutcome, LoginRequest};
use ginnel_policy::path::AmbiguousPaths;
use ginnel_policy::{AddressLookup, PhaseDecision, VisitorConnection};

use crate::message::BoxFuture;
use crate::message::error_response::{ErrorResponse, Rejection};
use crate::message::forwarded_head::SelectedPath;
use crate::message::request_body::RequestBody;
use crate::message::request_context::{InternalAddress, RequestContext};
use crate::message::response_body::ResponseBody;
use crate::message::visitor::RouteRef;
use crate::metrics::GatewayMetrics;
use crate::published::KeySets;
use crate::request_phase::RequestPhase;
use crate::settings::GatewaySettings;
use crate::timeouts::Timeouts;

/// What requests on their way need of the gateway.
pub struct RequestServices {
    /// The settings that the gateway was started with.
    pub settings: Arc<GatewaySettings>,
    /// The settings that may change while the gateway runs.
    pub live: Arc<ArcSwap<GatewaySettings>>,
    /// Counters. `None` if nobody scrapes.
    pub metrics: Option<Arc<GatewayMetrics>>,
    /// The keys that issuers publish.
    pub key_sets: Arc<KeySets>,
    /// The logins of visitors.
    pub logins: Box<dyn VisitorLogins>,
    /// The hosts of this node and of others.
    pub hosts: Box<dyn HostDirectory>,
    /// If true, the rules that act on requests are noted. No agent has asked for them before.
    pub notes_rules: AtomicBool,
}

/// Lets visitors log in.
pub trait VisitorLogins: Send + Sync {
    /// Returns who has sent a request, or the response to it. An issuer out of reach is not called.
    fn answer_login<'a>(
        &'a self,
        request: LoginRequest,
        reach: Reach,
        place: &'a (dyn Fn() -> LoginPlace + Send + Sync),
    ) -> BoxFuture<'a, LoginOutcome>;
}

/// The connection of a visitor who logs in, and the route that asks for it.
pub struct LoginPlace {
    pub connection: Arc<VisitorConnection>,
    pub route_ref: RouteRef,
}

/// Finds hosts for requests on their way.
pub trait HostDirectory: Send + Sync {
    /// Returns the virtual host at the URL of an internal endpoint, which only policies lead to, if its agent
    /// is there or comes back in a moment.
    fn select_internal_host<'a>(
        &'a self,
        url: &'a str,
    ) -> BoxFuture<'a, Option<(Box<dyn InternalHost>, InternalAddress)>>;

    /// Returns true if another node that can be reached has a host now, and this one has not.
    fn is_elsewhere(&self, host: &str, port: u16) -> bool;
}

/// The virtual host of an internal endpoint.
pub trait InternalHost: Send + Sync {
    /// Returns the route of a path, and the path that the request goes on with.
    ///
    /// # Errors
    /// If the path is ambiguous and a route depends on it.
    fn route_request(
        &self,
        path: &str,
        ambiguous: AmbiguousPaths,
    ) -> Result<(Box<dyn InternalRoute>, SelectedPath), ErrorResponse>;
}

/// A route of an internal endpoint.
pub trait InternalRoute: Send + Sync {
    /// Takes a request through the modules of the route to its backend, and the response back.
    fn run_modules<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> BoxFuture<'a, Result<Response<ResponseBody>, Rejection>>;
}

impl RequestServices {
    /// The timeouts as they are now.
    pub fn timeouts(&self) -> Timeouts {
        self.live.load().timeouts
    }

    /// The prefix of error codes.
    pub fn code_prefix(&self) -> &str {
        &self.settings.code_prefix
    }

    /// Looks up what is known of the addresses of visitors.
    pub fn address_lookup(&self) -> AddressLookup {
        AddressLookup::from_database(self.settings.addresses.clone())
    }

    /// Returns true if the rules that act on requests are noted.
    pub fn notes_rules(&self) -> bool {
        self.notes_rules.load(Relaxed)
    }

    /// Counts a rejection by the gateway itself.
    pub fn count_rejection(&self, phase: RequestPhase) {
        if let Some(metrics) = &self.metrics {
            metrics.rejected(phase);
        }
    }

    /// Counts the decision of a policy.
    pub fn count_decision(&self, decision: Option<&PhaseDecision>) {
        if let (Some(metrics), Some(decision)) = (&self.metrics, decision) {
            metrics.count_decision(decision.action);
        }
    }
}
