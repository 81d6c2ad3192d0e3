//! Internal endpoints: nobody but policies leads to them, and they have no ports.

use std::sync::Arc;

use http::{Request, Response};

use ginnel_base::address::{Authority, Scheme};
use ginnel_policy::path::AmbiguousPaths;

use crate::message::BoxFuture;
use crate::message::error_response::{ErrorResponse, Rejection};
use crate::message::forwarded_head::SelectedPath;
use crate::message::request_body::RequestBody;
use crate::message::request_context::{InternalAddress, RequestContext};
use crate::message::request_services::{HostDirectory, InternalHost, InternalRoute};
use crate::message::response_body::ResponseBody;
use crate::routing::agent_return::AgentReturn;
use crate::routing::endpoint_spec::{EndpointSpec, Proto};
use crate::routing::route::Route;
use crate::routing::route_table::RouteTable;
use crate::routing::virtual_host::{RouteMatch, VirtualHost};

/// How the names of internal endpoints end.
const INTERNAL: &str = ".internal";

/// Whether only policies lead to a host.
pub fn is_internal(host: &str) -> bool {
    host.ends_with(INTERNAL)
}

/// The name and port of an internal endpoint that carries bytes; none when it is to have a port of
/// the service.
pub fn name_of(spec: &EndpointSpec) -> Option<(String, u16)> {
    let (name, port) = match spec.proto {
        Proto::Tls => (spec.host.as_deref()?.to_ascii_lowercase(), 443),
        Proto::Tcp => {
            let place = spec.listen_address().ok()??;
            (place.host.to_string(), place.port)
        }
        Proto::Http | Proto::Https => return None,
    };
    is_internal(&name).then_some((name, port))
}

/// The virtual host of an internal endpoint, with the table that its requests take targets from.
struct TableHost {
    table: Arc<RouteTable>,
    virtual_host: Arc<VirtualHost>,
}

/// A route of an internal endpoint, with the table that its requests take targets from.
struct TableRoute {
    table: Arc<RouteTable>,
    route: Arc<Route>,
}

impl HostDirectory for Arc<RouteTable> {
    fn select_internal_host<'a>(
        &'a self,
        url: &'a str,
    ) -> BoxFuture<'a, Option<(Box<dyn InternalHost>, InternalAddress)>> {
        Box::pin(async move {
            let mut address = parse_internal_url(url, &[Scheme::Http, Scheme::Https])?;
            // The port decides about the protocol.
            match address.port {
                80 => address.protocol = "http",
                443 => address.protocol = "https",
                _ => {}
            }
            let find = || {
                Some(self.hosts.find_claim(&address.host, address.port)?.virtual_host.load_full())
            };
            let (table, virtual_host) = (self.clone(), find_online(self, find).await?);
            let host: Box<dyn InternalHost> = Box::new(TableHost { table, virtual_host });
            Some((host, address))
        })
    }

    fn is_elsewhere(&self, host: &str, port: u16) -> bool {
        self.as_ref().is_elsewhere(host, port)
    }
}

impl InternalHost for TableHost {
    fn route_request(
        &self,
        path: &str,
        ambiguous: AmbiguousPaths,
    ) -> Result<(Box<dyn InternalRoute>, SelectedPath), ErrorResponse> {
        let RouteMatch { route, path } = self.virtual_host.route_request(path, ambiguous)?;
        Ok((Box::new(TableRoute { table: self.table.clone(), route: route.clone() }), path))
    }
}

impl InternalRoute for TableRoute {
    fn run_modules<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> BoxFuture<'a, Result<Response<ResponseBody>, Rejection>> {
        Box::pin(self.route.run_modules(&self.table.targets, context, request))
    }
}

/// Returns the route at the URL of an internal endpoint that carries bytes, if its agent is there or comes
/// back in a moment.
pub async fn find_stream(table: &RouteTable, url: &str) -> Option<(Arc<Route>, InternalAddress)> {
    let address = parse_internal_url(url, &[Scheme::Tls, Scheme::Tcp])?;
    let (name, port) = (&address.host, address.port);
    let find = || {
        let claim = table.streams.find_claim(name, port).filter(|claim| claim.port == port)?;
        Some(claim.virtual_host.load_full())
    };
    let route = find_online(table, find).await?.route_for_path("").cloned()?;
    Some((route, address))
}

async fn find_online(
    table: &RouteTable,
    find: impl Fn() -> Option<Arc<VirtualHost>>,
) -> Option<Arc<VirtualHost>> {
    let mut agent_return = AgentReturn::new(&table.targets.waiting_places);
    loop {
        // Nobody can show a certificate on a way that has no TLS.
        let found = find().filter(|virtual_host| !virtual_host.requires_certificate())?;
        let Some(lost) = found.offline_since() else { return Some(found) };
        if !agent_return.wait(lost, None).await {
            return None;
        }
    }
}

/// Parses the URL of an internal endpoint.
fn parse_internal_url(url: &str, schemes: &[Scheme]) -> Option<InternalAddress> {
    let (authority, _) = Authority::split_url(url).ok()?;
    let scheme = schemes.iter().find(|scheme| **scheme == authority.scheme)?;
    let host = authority.host.name()?.to_string();
    let (protocol, port) = (scheme.name(), authority.port);
    is_internal(&host).then_some(InternalAddress { protocol, host, port })
}
