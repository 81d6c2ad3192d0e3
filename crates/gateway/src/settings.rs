//! How public traffic is taken: what is decided at the start, and what may change while the gateway runs.

use std::num::NonZeroU16;
use std::sync::Arc;

use ginnel_api::Origin;
use ginnel_http1::HeadLimits;
use ginnel_net::ConnectionCaps;
use ginnel_net::descriptors::{self, DescriptorLimit};
use ginnel_policy::path::AmbiguousPaths;
use ginnel_policy::{AddressDatabase, CODE_PREFIX, DEFAULT_IPV6_PREFIX};

use super::timeouts::Timeouts;
use super::trusted_proxies::TrustedProxies;

/// How public traffic is taken.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// The name or address to listen on.
    pub host: String,
    /// The port for HTTP that all hosts share; 0 picks a free port, none disables it.
    pub http_port: Option<u16>,
    /// The port for HTTPS that all hosts share; 0 picks a free port, none disables it.
    pub https_port: Option<u16>,
    /// The port for HTTP in public addresses, where a load balancer listens at another one.
    pub public_http_port: Option<NonZeroU16>,
    /// As `public_http_port`, for HTTPS.
    pub public_https_port: Option<NonZeroU16>,
    /// True when who comes before [`Gateway::open`](super::Gateway::open) waits for it.
    pub opens_later: bool,
    /// The domain below which endpoints get names on the shared ports; without one, each gets a
    /// port of its own.
    pub base_domain: Option<String>,
    /// True when the ports of endpoints that ask for HTTPS speak TLS.
    pub tls_endpoints: bool,
    /// What stands before the number of an error code.
    pub code_prefix: String,
    /// The proxies in front of the service.
    pub trusted_proxies: TrustedProxies,
    /// True when connections of these begin with a header of the PROXY protocol, version 2.
    pub proxy_protocol: bool,
    /// What becomes of requests with ambiguous paths where routes or rules look at paths.
    pub ambiguous_paths: AmbiguousPaths,
    /// The length of the IPv6 prefix that is one visitor to rate limits by `conn.client_ip`.
    pub ipv6_prefix: u8,
    /// How many connections are held at once; none for what the file descriptors of the process
    /// leave. More are closed at once.
    pub connections: Option<usize>,
    /// How many of them one address may hold; none for a quarter, at least 500 and at most 1,024
    /// where there is room.
    pub connections_per_address: Option<usize>,
    /// How long others may take.
    pub timeouts: Timeouts,
    /// How many requests a visitor's connection may carry at once with HTTP/2.
    pub http2_streams: u32,
    /// How large the head of a visitor's request may be: at most what agents take.
    pub head: HeadLimits,
    /// How many connections to one upstream may wait for another request, for each way. With fewer than
    /// visitors who send at once, each of their bursts would end in connections closed and opened again.
    pub upstream_idle_connections: usize,
    /// Whether IP restrictions refuse anybody; else they only warn.
    pub enforce_ip_restrictions: bool,
    /// Whether policies of agents may have issuers and sources of keys at private addresses.
    pub private_issuers: bool,
    /// What is known of the addresses of visitors; none where the operator has no files.
    pub addresses: Option<Arc<dyn AddressDatabase>>,
    /// Where the names of endpoints come from that ask for none.
    pub origin: Origin,
    /// Whether traffic is counted for a scrape.
    pub metrics: bool,
    /// Whether each request gets a name, which visitor and upstream see as `X-Request-Id`. Requests take
    /// the full path then.
    pub request_ids: bool,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            http_port: Some(0),
            https_port: Some(0),
            public_http_port: None,
            public_https_port: None,
            opens_later: false,
            base_domain: None,
            tls_endpoints: false,
            code_prefix: CODE_PREFIX.to_owned(),
            trusted_proxies: TrustedProxies::default(),
            proxy_protocol: false,
            ambiguous_paths: AmbiguousPaths::default(),
            ipv6_prefix: DEFAULT_IPV6_PREFIX,
            connections: None,
            connections_per_address: None,
            timeouts: Timeouts::default(),
            http2_streams: 128,
            enforce_ip_restrictions: true,
            private_issuers: false,
            addresses: None,
            head: HeadLimits::default(),
            upstream_idle_connections: 1024,
            origin: Origin::default(),
            metrics: false,
            request_ids: false,
        }
    }
}

impl GatewaySettings {
    pub(super) fn connection_caps(&self) -> ConnectionCaps {
        let total = self.connections.unwrap_or_else(|| DescriptorLimit::now().visitors());
        let per_address = self.connections_per_address;
        let per_address = per_address.unwrap_or_else(|| descriptors::visitors_per_address(total));
        ConnectionCaps { total, per_address, reserved: 0 }
    }

    pub(super) fn live(&self) -> LiveGatewaySettings {
        LiveGatewaySettings {
            trusted_proxies: self.trusted_proxies.clone(),
            ambiguous_paths: self.ambiguous_paths,
            ipv6_prefix: self.ipv6_prefix,
            timeouts: self.timeouts,
            http2_streams: self.http2_streams,
            head: self.head,
        }
    }
}

/// What may change while the gateway runs; a connection keeps what it began with.
#[derive(Debug)]
pub struct LiveGatewaySettings {
    pub trusted_proxies: TrustedProxies,
    pub ambiguous_paths: AmbiguousPaths,
    pub ipv6_prefix: u8,
    pub timeouts: Timeouts,
    pub http2_streams: u32,
    pub head: HeadLimits,
}
