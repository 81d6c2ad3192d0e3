//! Tunnels as endpoints: what `/api/endpoints` shows of them, and how one is replaced.

use std::sync::Arc;

use percent_encoding::utf8_percent_encode;

use ginnel_api::local::endpoints::{AgentEndpoint, Replace, Start};
use ginnel_api::local::tunnels::AgentTunnelConfig;
use ginnel_base::address::{EndpointUrl, Host, Scheme, UpstreamAddress};

use super::definition::{
    Definition, EndpointDefinition, INTERNAL, PUBLIC, endpoint_upstream, is_internal_url,
};
use super::inner::AgentInner;
use super::relay::AppProtocol;
use super::session::StartError;
use super::tunnels::{PATH_SEGMENT_CHARS, RunningTunnel};
use super::unix_sockets::UnixSocketRoots;

impl RunningTunnel {
    /// The tunnel as an endpoint of the agent API.
    pub fn show_endpoint(&self) -> AgentEndpoint {
        let tunnel = self.to_agent_tunnel();
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
            upstream: endpoint_upstream(url.clone(), self.upstream_protocol()),
            config: AgentTunnelConfig { addr: url, ..tunnel.config },
            metrics: tunnel.metrics,
            description: Some(self.definition.description.clone()),
            inspect: Some(self.is_inspected()),
            traffic_policy: self.definition.policy_text(),
        }
    }

    /// Its public URL as an endpoint may ask for it: without the port of the service where names tell
    /// endpoints apart, and without an address, whose port HTTP and TLS cannot ask for.
    fn url_to_keep(&self) -> Option<String> {
        let url = self.public_url()?;
        let Ok(public) = EndpointUrl::parse(&url) else { return Some(url) };
        let scheme = public.scheme.name();
        Some(match public {
            EndpointUrl { scheme: Scheme::Tcp, .. } => url,
            EndpointUrl { host: Host::Name(_), .. } => {
                format!("{scheme}://{}", public.host_pattern())
            }
            EndpointUrl { .. } => format!("{scheme}://"),
        })
    }

    /// Who can reach it.
    fn binding_name(&self) -> &'static str {
        let url = self.public_url().unwrap_or_default();
        if is_internal_url(&url) { INTERNAL } else { PUBLIC }
    }

    /// Where it forwards to; for requests as a URL.
    pub(super) fn upstream_url(&self) -> String {
        let address = &self.definition.address;
        match (&self.definition.public, address) {
            (
                EndpointDefinition::Tcp(_) | EndpointDefinition::Tls(_),
                UpstreamAddress::Tls(place),
            ) => {
                format!("tls://{place}")
            }
            (EndpointDefinition::Http { .. }, UpstreamAddress::Tcp(place)) => {
                format!("http://{place}")
            }
            _ => address.to_string(),
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

/// Returns the definition of the endpoint that replaces `old`.
///
/// # Errors
/// If fields are unusable, one line for each.
pub(super) fn replacement_definition(
    replace: Replace,
    old: Option<&RunningTunnel>,
    roots: &UnixSocketRoots,
) -> Result<Definition, Vec<String>> {
    let own = format!("/api/endpoints/{}", utf8_percent_encode(&replace.name, PATH_SEGMENT_CHARS));
    if let Some(other) = replace.uri.filter(|uri| !uri.is_empty() && *uri != own) {
        return Err(vec![format!("uri: {other:?} is not {own:?}")]);
    }
    let running = old.and_then(RunningTunnel::public_url);
    // The URL as it is listed may have a port that cannot be asked for.
    let url = replace.url.filter(|url| !url.is_empty() && running.as_ref() != Some(url));
    let start = Start {
        upstream: replace.upstream,
        url: url.or_else(|| old.and_then(RunningTunnel::url_to_keep)),
        name: Some(replace.name),
        metadata: replace.metadata,
        description: replace.description,
        bindings: replace.bindings,
        inspect: replace.inspect,
        pooling_enabled: replace.pooling_enabled,
        traffic_policy: replace.traffic_policy,
        agent_tls_termination: replace.agent_tls_termination,
    };
    Definition::from_endpoint(start, roots)
}
/// Why a tunnel was not replaced, and what became of the one before.
#[derive(Debug)]
pub(super) struct ReplaceError {
    pub problem: StartError,
    /// For a line of its own.
    pub outcome: String,
}

impl AgentInner {
    /// Starts a tunnel in the place of one that runs, which is started again where that fails.
    pub(super) async fn replace_tunnel(
        &self,
        old: &RunningTunnel,
        definition: Definition,
    ) -> Result<Arc<RunningTunnel>, ReplaceError> {
        let name = &old.name;
        let failed = |problem, outcome| ReplaceError { problem, outcome };
        if let Err(problem) = self.online_sessions() {
            return Err(failed(problem, format!("the endpoint {name:?} is as before")));
        }
        self.stop_tunnel(name).await;
        let problem = match self.start_tunnel(definition).await {
            Ok(tunnel) => return Ok(tunnel),
            Err(problem) => problem,
        };
        Err(match self.start_again(old).await {
            Ok(tunnel) => {
                let url = tunnel.public_url().unwrap_or_default();
                failed(
                    problem,
                    format!("the endpoint {name:?} before it was started again at {url}"),
                )
            }
            Err(error) => {
                let outcome =
                    format!("the endpoint {name:?} before it cannot be started again: {error}");
                failed(problem, outcome)
            }
        })
    }
}
