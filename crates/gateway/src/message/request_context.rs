//! The state of one request on its way.

use std::sync::Arc;

use http::{HeaderMap, Request, Response};

use ginnel_base::address::RequestHost;
use ginnel_policy::head_change::RuleNotePair;
use ginnel_policy::{Carried, EndpointFacts, Exchange, VisitorConnection};

use crate::message::error_response::{self, ErrorResponse, Rejection};
use crate::message::events::RequestTrace;
use crate::message::forwarded::VisitorOrigin;
use crate::message::forwarded_head;
use crate::message::request_body::RequestBody;
use crate::message::request_services::{InternalHost, InternalRoute, RequestServices};
use crate::message::response_body::ResponseBody;
use crate::message::upgrade::UpgradeContext;
use crate::message::variables::{ConnectionAttributes, endpoint_variables};
use crate::message::visitor::{RouteRef, Visitor};

/// The number of internal endpoints that a request may go through.
pub const MAX_INTERNAL_HOPS: usize = 5;

/// The address of an internal endpoint.
pub struct InternalAddress {
    pub protocol: &'static str,
    pub host: String,
    pub port: u16,
}

/// The state of one request on its way.
pub struct RequestContext<'r> {
    pub services: &'r RequestServices,
    pub visitor: &'r Visitor,
    pub origin: &'r VisitorOrigin,
    pub runtime: &'r UpgradeContext,
    pub trace: &'r mut RequestTrace,
    /// The connection as rules see it.
    pub connection: &'r ConnectionAttributes,
    /// The route that the request came in by.
    pub route_ref: RouteRef,
    /// The host and the port that the request has come to; none where a listener serves one endpoint alone.
    pub host: Option<(&'r str, u16)>,
    /// Where the internal endpoint is that a policy has sent the request to; none at the first endpoint.
    pub internal: Option<InternalAddress>,
    /// Whether it may go to another node that has the agent of the host.
    pub may_move: bool,
    /// Set where nobody serves the host here, whatever modules make of that.
    pub has_no_agent: bool,
    /// How many internal endpoints the request has come through.
    pub hops: usize,
    /// True where a module shall see errors as the answers that visitors get.
    pub shows_errors: bool,
    /// How the backend has answered; none where it was not asked.
    pub upstream_status: Option<u16>,
    /// What the rules of one module leave to those of the next.
    pub execution: Option<Box<PolicyExecution>>,
}

/// A request on its way through policies, and what their rules know of it.
pub struct PolicyExecution {
    pub exchange: Exchange,
    pub body: RequestBody,
    /// The notes for agents of the rules that have acted.
    pub notes: Vec<RuleNotePair>,
    /// If true, the policy is that of the endpoint that the request goes to.
    pub is_own: bool,
    /// If true, rules may compress the response.
    pub is_compressed: bool,
}

impl<'r> RequestContext<'r> {
    /// What a request of this client meets that comes in by a route.
    pub fn new(
        services: &'r RequestServices,
        visitor: &'r Visitor,
        connection: &'r ConnectionAttributes,
        origin: &'r VisitorOrigin,
        runtime: &'r UpgradeContext,
        trace: &'r mut RequestTrace,
        route_ref: RouteRef,
    ) -> Self {
        Self {
            services,
            visitor,
            origin,
            runtime,
            trace,
            connection,
            route_ref,
            host: None,
            internal: None,
            may_move: false,
            has_no_agent: false,
            hops: 0,
            shows_errors: false,
            upstream_status: None,
            execution: None,
        }
    }
}

impl RequestContext<'_> {
    /// What a request meets that an action sends on behalf of this one, of which others are told by `trace`.
    pub fn with_trace<'w>(&'w self, trace: &'w mut RequestTrace) -> RequestContext<'w> {
        let (visitor, route_ref) = (self.visitor, self.route_ref.clone());
        let connection = self.connection;
        let inner = RequestContext::new(
            self.services,
            visitor,
            connection,
            self.origin,
            self.runtime,
            trace,
            route_ref,
        );
        RequestContext { host: self.host, hops: self.hops, ..inner }
    }

    /// Notes how the backend has answered.
    pub fn record_answer(
        &mut self,
        answer: Result<Response<ResponseBody>, Rejection>,
    ) -> Result<Response<ResponseBody>, Rejection> {
        self.upstream_status = match &answer {
            Ok(response) => Some(response.status().as_u16()),
            Err(Rejection::Respond(error)) => Some(error.status),
            Err(Rejection::Elsewhere | Rejection::Close) => None,
        };
        answer
    }

    /// Returns true if another node has the host now, and this one has lost its agent.
    pub fn is_elsewhere(&self) -> bool {
        self.host.is_some_and(|(host, port)| self.services.hosts.is_elsewhere(host, port))
    }

    /// The connection as rules see it.
    pub fn visitor_connection(&self) -> Arc<VisitorConnection> {
        self.connection.visitor_connection(self.visitor, self.services).clone()
    }

    /// What the visitor's connection has carried until now, also for requests before this one.
    pub fn carried_bytes(&self) -> Carried {
        self.runtime.activity.carried.load()
    }

    /// Returns the variables of an endpoint, under the host of a request. An internal endpoint has its own host.
    pub fn endpoint_facts(&self, owner_id: Arc<str>, headers: &HeaderMap) -> Arc<EndpointFacts> {
        if let Some(InternalAddress { protocol, host, port }) = &self.internal {
            return endpoint_variables(owner_id, protocol, host, *port);
        }
        let RequestHost { host, port } = forwarded_head::request_host(headers).unwrap_or_default();
        let port = port.unwrap_or(if self.visitor.tls.is_some() { 443 } else { 80 });
        endpoint_variables(owner_id, self.visitor.proto, &host, port)
    }

    /// Takes a request that a policy has sent to an internal endpoint through the modules of its route.
    pub async fn run_internal(
        &mut self,
        route: &dyn InternalRoute,
        address: InternalAddress,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Rejection> {
        let outer = self.internal.replace(address);
        self.hops += 1;
        let served = route.run_modules(self, request).await;
        self.hops -= 1;
        self.internal = outer;
        served
    }

    /// Returns the virtual host of an internal endpoint, for another hop.
    pub async fn select_internal_host(
        &self,
        url: &str,
    ) -> Result<(Box<dyn InternalHost>, InternalAddress), ErrorResponse> {
        if self.hops >= MAX_INTERNAL_HOPS {
            return Err(error_response::TOO_MANY_HOPS);
        }
        let selected = self.services.hosts.select_internal_host(url).await;
        selected.ok_or(error_response::NO_ENDPOINT)
    }
}
