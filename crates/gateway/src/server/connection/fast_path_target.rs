//! Which requests of a connection go on as the bytes that they came in.

use std::sync::Arc;
use std::time::Duration;

use ginnel_base::address::RequestHost;
use ginnel_http1::{RequestHead, is_forwarded};
use ginnel_policy::head_change::HeadChange;
use ginnel_policy::head_view::HeadView;
use ginnel_policy::login::is_login_path;
use ginnel_policy::{is_canonical_authority, path};

use super::{HostMatch, HttpConnection, Requester};
use crate::Ingress;
use crate::login;
use crate::message::connection_activity::ActiveRequest;
use crate::message::error_response;
use crate::message::forwarded::VisitorOrigin;
use crate::message::visitor::{RouteRef, Visitor};
use crate::modules::module::Modules;
use crate::request_phase::RequestPhase;
use crate::routing::backend::BackendKind;
use crate::routing::hosts::HostSelection;
use crate::server::fast_path::{FastPathTarget, RequestRouting};
use crate::upstream::target::{ConnectionReuse, Target, UpstreamProtocol};

impl HttpConnection {
    /// What modules change about a request that they let pass by its head alone; none where they want to
    /// see more, or where they want to know for whom a proxy comes.
    fn head_changes(
        &self,
        modules: &Modules,
        head: &RequestHead<'_, '_>,
        host: &str,
    ) -> Option<Vec<Arc<HeadChange>>> {
        let Requester { visitor, attributes, origin } = &self.client;
        let client_ip = origin.peer.to_str().ok().filter(|_| !self.is_proxy)?;
        // What visitors say that only proxies may say is removed before a rule sees the request.
        if head.fields.iter().any(|field| is_forwarded(field.name.as_bytes())) {
            return None;
        }
        if !is_canonical_authority(host, visitor.proto) {
            return None;
        }
        modules.head_changes(&HeadView {
            method: head.method,
            target: head.target,
            host,
            scheme: visitor.proto,
            fields: head.fields,
            connection: attributes.visitor_connection(visitor, &self.gateway.services),
            client_ip,
        })
    }

    /// Whether an IP restriction may refuse a request of the connection.
    fn is_restricted(&self) -> bool {
        let (restrictions, peer) = (&self.gateway.restrictions, self.client.visitor.peer.ip());
        !restrictions.is_open(Ingress::Endpoints)
            && (self.is_proxy || !restrictions.allows_address(Ingress::Endpoints, peer))
    }
}

impl RequestRouting for HttpConnection {
    fn visitor(&self) -> &Visitor {
        &self.client.visitor
    }

    fn trusts_peer(&self) -> bool {
        self.is_proxy
    }

    fn origin(&self) -> &VisitorOrigin {
        &self.client.origin
    }

    fn track_request(&self) -> ActiveRequest {
        self.activity.track_request()
    }

    fn response_timeout(&self) -> Option<Duration> {
        self.runtime.response_timeout
    }

    fn dial_timeout(&self) -> Duration {
        self.runtime.dial_timeout
    }

    fn count_rejection(&self, phase: RequestPhase) {
        self.gateway.services.count_rejection(phase);
    }

    fn code_prefix(&self) -> &str {
        &self.gateway.services.settings.code_prefix
    }

    fn fast_path_target(
        &self,
        head: &RequestHead<'_, '_>,
        host: &str,
        path: &str,
    ) -> Option<FastPathTarget> {
        if self.gateway.events.has_subscribers() || self.gateway.request_ids.is_some() {
            return None;
        }
        if self.is_restricted() {
            return None;
        }
        let challenges = self.gateway.authority.challenges();
        let virtual_host = match &self.host_selection {
            HostSelection::Single(slot) => slot.load_full(),
            HostSelection::ByHost(_) if challenges.http_answer(path).is_some() => return None,
            HostSelection::ByHost(_) | HostSelection::Relayed => {
                let RequestHost { host, port } = RequestHost::parse(host).ok()?;
                match self.select_host((&host, port), self.client.origin.scheme, path, &[]) {
                    Ok(HostMatch::VirtualHost(virtual_host)) => virtual_host,
                    Ok(HostMatch::Node(upstream)) => {
                        let (route_ref, changes, metrics) = (RouteRef::none(), Vec::new(), None);
                        return Some(FastPathTarget { upstream, route_ref, changes, metrics });
                    }
                    _ => return None,
                }
            }
        };
        if login::is_carried_by(head) || is_login_path(path) {
            return None;
        }
        if self.client.without_foreign_certificate(&virtual_host).is_some() {
            return None;
        }
        let route = virtual_host.find_plain(path)?;
        if route.host_header.is_some() {
            return None;
        }
        let backend = route.backend.load();
        let BackendKind::Upstream(upstream) = &backend.kind else { return None };
        if !takes_fast_path(upstream.target.as_ref()) {
            return None;
        }
        let changes = match &route.modules {
            Some(modules) if path::is_plain(path) => self.head_changes(modules, head, host)?,
            Some(_) => return None,
            None => Vec::new(),
        };
        let (upstream, route_ref) = (upstream.clone(), route.route_ref());
        let metrics = route.metrics.clone();
        Some(FastPathTarget { upstream, route_ref, changes, metrics })
    }

    fn has_another_place(&self, host: &str, key: &str) -> bool {
        let RequestHost { host, port } = RequestHost::parse(host).unwrap_or_default();
        match self.select_host((&host, port), self.client.origin.scheme, "", &[key.to_owned()]) {
            Ok(HostMatch::Node(node)) => node.target.key() != key,
            // Those that have it may be back in a moment.
            Err(error) => error == error_response::CUT_OFF,
            Ok(_) => true,
        }
    }
}

/// Whether a target takes requests as the bytes that they came in.
fn takes_fast_path(target: &dyn Target) -> bool {
    target.reuse() != ConnectionReuse::Nobody && target.protocol() == UpstreamProtocol::Http1
}
