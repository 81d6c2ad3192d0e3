//! Tunnels as endpoints: what `/api/endpoints` shows of them.

use percent_encoding::utf8_percent_encode;

use super::definition::{EndpointDefinition, INTERNAL, PUBLIC, is_internal_url, upstream};
use super::relay::{AppProtocol, LocalAddress};
use super::tunnels::{PATH_SEGMENT_CHARS, RunningTunnel};
use crate::api::local::endpoints::AgentEndpoint;
use crate::api::local::tunnels::AgentTunnelConfig;

impl RunningTunnel {
    /// The tunnel as an endpoint of the agent API.
    pub fn show_endpoint(&self) -> AgentEndpoint {
        let tunnel = self.show();
        let url = self.upstream_url();
        AgentEndpoint {
            id: tunnel.ID.unwrap_or_default(),
            uri: format!("/api/endpoints/{}", utf8_percent_encode(&self.name, PATH_SEGMENT_CHARS)),
            name: tunnel.name,
            url: tunnel.public_url.clone(),
            public_url: tunnel.public_url,
            proto: tunnel.proto,
            status: tunnel.status,
            bindings: vec![self.binding_name().to_owned()],
            pooling_enabled: tunnel.pooling_enabled,
            upstream: upstream(url.clone(), self.upstream_protocol()),
            config: AgentTunnelConfig { addr: url, ..tunnel.config },
            metrics: tunnel.metrics,
            description: Some(self.definition.description.clone()),
        }
    }

    /// Who can reach it.
    fn binding_name(&self) -> &'static str {
        let url = self.url().unwrap_or_default();
        if is_internal_url(&url) { INTERNAL } else { PUBLIC }
    }

    /// Where it forwards to; for requests as a URL.
    pub(super) fn upstream_url(&self) -> String {
        let address = &self.definition.address;
        match (&self.definition.public, address) {
            (EndpointDefinition::Tcp(_) | EndpointDefinition::Tls(_), LocalAddress::Tls { .. }) => {
                address.shown().replacen("https://", "tls://", 1)
            }
            (EndpointDefinition::Http { .. }, LocalAddress::Tcp { .. }) => {
                format!("http://{}", address.shown())
            }
            _ => address.shown(),
        }
    }

    /// What is spoken there, where that is requests.
    fn upstream_protocol(&self) -> Option<&'static str> {
        let protocol = match self.definition.app_protocol {
            AppProtocol::Http1 => "http1",
            AppProtocol::Http2 => "http2",
        };
        let is_http = matches!(self.definition.public, EndpointDefinition::Http { .. });
        is_http.then_some(protocol)
    }
}
