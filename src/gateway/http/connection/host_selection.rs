//! Which virtual host a request is for, by the listener and by the host that it names.

use std::fmt::Display;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode};

use super::HttpConnection;
use crate::gateway::http::error_response::{self, ErrorResponse};
use crate::gateway::http::fast_path::RequestRouting;
use crate::gateway::http::response_body::ResponseBody;
use crate::gateway::routing::internal::is_internal;
use crate::gateway::routing::virtual_host::VirtualHost;
use crate::gateway::tls::policy::TlsPolicy;
use crate::gateway::upstream::forward::Upstream;

/// What is served behind a listener.
#[derive(Clone)]
pub(crate) enum HostSelection {
    /// One virtual host has the listener to itself.
    Single(Arc<ArcSwap<VirtualHost>>),
    /// The host decides; a virtual host with a TLS policy is for those who came by it.
    ByHost(Option<Arc<TlsPolicy>>),
    /// The same for a visitor of another node, who has ended TLS: the host is here or nowhere.
    Relayed,
}

impl HostSelection {
    /// What has the listener to itself.
    pub(crate) fn own(&self) -> Option<Arc<ArcSwap<VirtualHost>>> {
        match self {
            Self::Single(virtual_host) => Some(virtual_host.clone()),
            Self::ByHost(_) | Self::Relayed => None,
        }
    }
}

/// Where a host is served.
pub(super) enum HostMatch {
    VirtualHost(Arc<VirtualHost>),
    /// At another address.
    Redirect(String),
    /// At another node.
    Node(Upstream),
}

impl HttpConnection {
    /// The port of the endpoint that a request is for: the one that is listened on stands for the usual
    /// one, and so does a load balancer's.
    pub(super) fn endpoint_port(&self, port: Option<u16>) -> u16 {
        let visitor = self.visitor();
        let is_secure = visitor.tls.is_some();
        let is_shared = |port: u16| {
            port == visitor.local.port() || Some(port) == self.gateway.public_port(is_secure)
        };
        let usual = if is_secure { 443 } else { 80 };
        port.filter(|port| !is_shared(*port)).unwrap_or(usual)
    }

    /// The virtual host of the host that a request names.
    pub(super) fn virtual_host(
        &self,
        host: String,
        port: Option<u16>,
        uri: impl Display,
    ) -> Result<HostMatch, ErrorResponse> {
        let passed = match &self.host_selection {
            HostSelection::ByHost(passed) => passed.as_ref(),
            HostSelection::Single(_) | HostSelection::Relayed => None,
        };
        let visitor = self.visitor();
        let is_secure = visitor.tls.is_some();
        let port = self.endpoint_port(port);
        if is_internal(&host) {
            return Err(error_response::NO_ENDPOINT);
        }
        if let Some(tls) = &visitor.tls
            && !tls.sni.is_empty()
            && tls.sni != host
        {
            return Err(error_response::MISDIRECTED);
        }
        let found = self.gateway.hosts.find_ranked(&host, port);
        let may_be_elsewhere = self.gateway.has_remote_hosts() && !self.is_relayed();
        if may_be_elsewhere
            && let Some(node) = self.gateway.remote_host(&host, port, found.as_ref())
        {
            // What the visitor has shown here, that node has not seen.
            if passed.is_some() {
                return Err(error_response::MOVED);
            }
            return Ok(HostMatch::Node(node));
        }
        // A wildcard of this node, which may be somebody else's, is not for the visitors of that name.
        if may_be_elsewhere && self.gateway.is_cut_off(&host, port, found.as_ref()) {
            return Err(error_response::CUT_OFF);
        }
        let (claim, _) = found.ok_or(error_response::NO_ENDPOINT)?;
        let virtual_host = claim.virtual_host.load_full();
        if virtual_host.carries_bytes {
            return Err(error_response::NO_ENDPOINT);
        }
        if !is_secure
            && claim.port != port
            && self.gateway.https.get().is_some()
            && let Some(url) = self.gateway.url_of(&host, true)
        {
            return Ok(HostMatch::Redirect(format!("{url}{uri}")));
        }
        // The handshake may have named nobody, another port's virtual host, or what the virtual host was before.
        let passes = |tls_policy: &Arc<TlsPolicy>| match passed {
            Some(passed) => Arc::ptr_eq(passed, tls_policy),
            None => !is_secure && !tls_policy.requires_certificate,
        };
        if !virtual_host.tls_policy.as_ref().is_none_or(passes) {
            return Err(error_response::MISDIRECTED);
        }
        Ok(HostMatch::VirtualHost(virtual_host))
    }
}

/// Sends a visitor elsewhere, with method and body.
pub(super) fn redirect(url: String) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    if let Ok(url) = HeaderValue::try_from(url) {
        response.headers_mut().insert(LOCATION, url);
    }
    response
}
