//! What a request meets on its way, and may need there.

use std::sync::{Arc, OnceLock};

use chrono::{DateTime, Utc};
use http::HeaderMap;

use crate::gateway::GatewayState;
use crate::gateway::events::RequestTrace;
use crate::gateway::http::error_response::{self, ErrorResponse};
use crate::gateway::http::head::{self, Origin};
use crate::gateway::http::upgrade;
use crate::gateway::modules::traffic_policy;
use crate::gateway::routing::internal::{self, MOST_HOPS};
use crate::gateway::routing::target::{RouteRef, Visitor};
use crate::gateway::routing::virtual_host::{Route, VirtualHost};
use crate::policy::{Connection, Endpoint};

/// What a request meets on its way.
pub(crate) struct RequestContext<'r> {
    pub gateway: &'r GatewayState,
    pub visitor: &'r Visitor,
    pub origin: &'r Origin,
    pub runtime: &'r upgrade::UpgradeContext,
    pub trace: &'r mut RequestTrace,
    /// The connection as rules see it.
    pub connection: &'r ConnectionAttributes,
    /// The route that the request came in by.
    pub route_ref: RouteRef,
    /// How many internal endpoints the request has come through.
    pub hops: usize,
}

/// A connection as rules see it; made when the first rule wants to see it.
pub(crate) struct ConnectionAttributes {
    since: DateTime<Utc>,
    known: OnceLock<Arc<Connection>>,
}

impl ConnectionAttributes {
    /// Describes somebody else on the same connection.
    pub(crate) fn again(&self) -> Self {
        Self { since: self.since, known: OnceLock::new() }
    }

    /// Describes a connection that has come now.
    pub(crate) fn new() -> Self {
        Self { since: Utc::now(), known: OnceLock::new() }
    }

    pub(crate) fn of(&self, visitor: &Visitor) -> Arc<Connection> {
        self.known.get_or_init(|| traffic_policy::connection(visitor, self.since)).clone()
    }
}

impl RequestContext<'_> {
    /// The connection as rules see it.
    pub(crate) fn connection(&self) -> Arc<Connection> {
        self.connection.of(self.visitor)
    }

    /// A route as rules see it, under the host that a request asks for.
    pub(crate) fn endpoint(&self, route: &Route, headers: &HeaderMap) -> Arc<Endpoint> {
        let id = if route.edge_id.is_empty() { &route.id } else { &route.edge_id };
        let (host, port) = head::host(headers).unwrap_or_default();
        let port = port.unwrap_or(if self.visitor.tls.is_some() { 443 } else { 80 });
        traffic_policy::endpoint(id, self.visitor.proto, &host, port)
    }

    /// The virtual host of an internal endpoint, for another hop.
    pub(crate) fn internal(&self, url: &str) -> Result<Arc<VirtualHost>, ErrorResponse> {
        if self.hops >= MOST_HOPS {
            return Err(error_response::TOO_MANY_HOPS);
        }
        internal::virtual_host(self.gateway, url).ok_or(error_response::NO_ENDPOINT)
    }
}
