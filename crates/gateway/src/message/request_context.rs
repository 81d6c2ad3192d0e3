//! What a request meets on its way, and may need there.

use std::sync::{Arc, OnceLock};

use chrono::{DateTime, Utc};
use http::HeaderMap;

use ginnel_base::address::RequestHost;
use ginnel_policy::{Carried, EndpointFacts, VisitorConnection};

use crate::GatewayState;
use crate::message::error_response::{self, ErrorResponse};
use crate::message::events::RequestTrace;
use crate::message::forwarded::VisitorOrigin;
use crate::message::head;
use crate::message::upgrade;
use crate::modules::module::{ModuleAnswer, ModuleKind};
use crate::modules::traffic_policy::{self, PolicyExecution};
use crate::routing::internal::{self, InternalAddress, MOST_HOPS};
use crate::routing::virtual_host::{Rejection, Route, VirtualHost};
use crate::upstream::target::{RouteRef, Visitor};

/// What a request meets on its way.
pub struct RequestContext<'r> {
    pub gateway: &'r GatewayState,
    pub visitor: &'r Visitor,
    pub origin: &'r VisitorOrigin,
    pub runtime: &'r upgrade::UpgradeContext,
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

/// A connection as rules see it; made when the first rule wants to see it.
pub struct ConnectionAttributes {
    since: DateTime<Utc>,
    known: OnceLock<Arc<VisitorConnection>>,
}

impl ConnectionAttributes {
    /// Describes somebody else on the same connection.
    pub fn again(&self) -> Self {
        Self { since: self.since, known: OnceLock::new() }
    }

    /// Describes a connection that has come now.
    pub fn of_now() -> Self {
        Self { since: Utc::now(), known: OnceLock::new() }
    }

    pub fn of(&self, visitor: &Visitor, gateway: &GatewayState) -> &Arc<VisitorConnection> {
        let make = || traffic_policy::connection(visitor, self.since, gateway.address_lookup());
        self.known.get_or_init(make)
    }
}

impl<'r> RequestContext<'r> {
    /// What a request of this client meets that comes in by a route.
    pub fn new(
        gateway: &'r GatewayState,
        visitor: &'r Visitor,
        connection: &'r ConnectionAttributes,
        origin: &'r VisitorOrigin,
        runtime: &'r upgrade::UpgradeContext,
        trace: &'r mut RequestTrace,
        route_ref: RouteRef,
    ) -> Self {
        Self {
            gateway,
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
    pub fn within<'w>(&'w self, trace: &'w mut RequestTrace) -> RequestContext<'w> {
        let (visitor, route_ref) = (self.visitor, self.route_ref.clone());
        let connection = self.connection;
        let inner = RequestContext::new(
            self.gateway,
            visitor,
            connection,
            self.origin,
            self.runtime,
            trace,
            route_ref,
        );
        RequestContext { host: self.host, hops: self.hops, ..inner }
    }

    /// Notes that a module has decided on the request.
    pub fn decided_by(&mut self, module: ModuleKind) {
        self.trace.note(|it| it.module = Some(module.name()));
    }

    /// Notes how the backend has answered.
    pub fn sent(&mut self, answer: ModuleAnswer) -> ModuleAnswer {
        self.upstream_status = match &answer {
            Ok(response) => Some(response.status().as_u16()),
            Err(Rejection::Respond(error)) => Some(error.status),
            Err(Rejection::Elsewhere | Rejection::Close) => None,
        };
        answer
    }

    /// Whether another node has the host now, and this one has lost its agent.
    pub fn is_elsewhere(&self) -> bool {
        self.host.is_some_and(|(host, port)| self.gateway.is_elsewhere(host, port))
    }

    /// The connection as rules see it.
    pub fn connection(&self) -> Arc<VisitorConnection> {
        self.connection.of(self.visitor, self.gateway).clone()
    }

    /// What the visitor's connection has carried until now, also for requests before this one.
    pub fn carried(&self) -> Carried {
        self.runtime.activity.carried.load()
    }

    /// A route as rules see it, under the host that a request asks for; an internal one under its own.
    pub fn endpoint(&self, route: &Route, headers: &HeaderMap) -> Arc<EndpointFacts> {
        if let Some(InternalAddress { protocol, host, port }) = &self.internal {
            return traffic_policy::endpoint(route.owner_id(), protocol, host, *port);
        }
        let RequestHost { host, port } = head::host(headers).unwrap_or_default();
        let port = port.unwrap_or(if self.visitor.tls.is_some() { 443 } else { 80 });
        traffic_policy::endpoint(route.owner_id(), self.visitor.proto, &host, port)
    }

    /// The virtual host of an internal endpoint, for another hop.
    pub async fn internal(
        &self,
        url: &str,
    ) -> Result<(Arc<VirtualHost>, InternalAddress), ErrorResponse> {
        if self.hops >= MOST_HOPS {
            return Err(error_response::TOO_MANY_HOPS);
        }
        internal::virtual_host(self.gateway, url).await.ok_or(error_response::NO_ENDPOINT)
    }
}
