//! How public traffic is taken: what is decided at the start, and what may change while the gateway runs.

use std::num::NonZeroU16;
use std::sync::Arc;

use ginnel_api::Origin;
use ginnel_base::address::HostName;
use ginnel_http1::{HeadLimits, MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
use ginnel_net::ConnectionCaps;
use ginnel_net::descriptors::{self, DescriptorLimit};
use ginnel_policy::path::AmbiguousPaths;
use ginnel_policy::{AddressDatabase, CODE_PREFIX, DEFAULT_IPV6_PREFIX};
use ginnel_settings::{ByteSize, settings};

use super::timeouts::Timeouts;
use super::trusted_proxies::TrustedProxies;

/// The connections that a gateway holds by default.
const ALL_THAT_IS_LEFT: &str = "what the limit of open files leaves, at most 16,384";

settings! {
    /// How public traffic is taken. A connection keeps the limits that it began with.
    #[derive(Debug, Clone)]
    pub struct GatewaySettings {
        /// If true, visitors who come before [`Gateway::open_to_visitors`](super::Gateway::open_to_visitors) wait for it.
        pub opens_later: bool = false,
        /// The maximum times that others may take.
        pub timeouts: Timeouts = Timeouts::default(),
        /// Facts about the addresses of visitors, from files of the operator.
        pub addresses: Option<Arc<dyn AddressDatabase>> = None,
        /// The source of names of endpoints that ask for none.
        pub origin: Origin = Origin::default(),
        /// If true, traffic is counted for a scrape.
        pub metrics: bool = false,
        /// If true, each request gets a name, which visitor and upstream see as `X-Request-Id`. Requests take
        /// the full path then.
        pub request_ids: bool = false,
    }

    /// The settings of listeners.
    listeners {
        host: String = "127.0.0.1".to_owned(),
            "edge_host", "HOST",
            "The host name or address for public traffic",
            listed_in_help(), with_keyword();
        http_port: Option<u16> = Some(0),
            "http_port", "PORT",
            "The port for public HTTP; 0 picks a free port, none disables it",
            listed_in_help(), with_keyword();
        https_port: Option<u16> = Some(0),
            "https_port", "PORT",
            "The port for public HTTPS; 0 picks a free port, none disables it",
            listed_in_help(), with_keyword();
        public_http_port: Option<NonZeroU16> = None,
            "public_http_port", "N",
            "The port for HTTP in addresses that visitors get, if a load balancer listens at another one",
            when_unset("`http_port`");
        public_https_port: Option<NonZeroU16> = None,
            "public_https_port", "N",
            "The port for HTTPS in addresses that visitors get, if a load balancer listens at another one",
            when_unset("`https_port`");
        base_domain: Option<String> = None,
            "base_domain", "DOMAIN",
            "The domain below which tunnels get host names; without it, each gets a port",
            listed_in_help(), with_keyword();
    }

    /// The settings of proxies and paths.
    visitors {
        trusted_proxies: TrustedProxies = TrustedProxies::default(),
            "trusted_proxies", "CIDR",
            "Proxies whose X-Forwarded-For header is trusted: addresses or CIDRs",
            listed_in_help(), live(), with_keyword();
        proxy_protocol: bool = false,
            "proxy_protocol", "BOOL",
            "Require the PROXY protocol, version 1 or 2, from trusted proxies, for visitors and agents";
        ambiguous_paths: AmbiguousPaths = AmbiguousPaths::default(),
            "ambiguous_paths", "WHAT",
            "Treatment of ambiguous paths, if a route or a rule looks at paths",
            live(), with_keyword();
        enforce_ip_restrictions: bool = true,
            "enforce_ip_restrictions", "BOOL",
            "Reject clients that IP restrictions do not allow; false only warns, for operators who are locked out";
    }

    /// The setting of the ports of tunnels.
    tunnel_ports {
        tls_endpoints: bool = false,
            "tls_endpoints", "BOOL",
            "Speak TLS on the ports of tunnels that ask for HTTPS",
            with_keyword();
    }

    /// The setting of issuers.
    issuers {
        private_issuers: bool = false,
            "private_issuers", "BOOL",
            "Let agents name issuers of logins and sources of keys at private addresses";
    }

    /// The setting of error codes.
    error_codes {
        code_prefix: String = CODE_PREFIX.to_owned(),
            "code_prefix", "TEXT",
            "The prefix of error codes, before their numbers";
    }

    /// The limits of connections.
    connections {
        connections: Option<usize> = None,
            "max_connections", "N",
            "The most visitor connections that may be open",
            with_bounds(1, u32::MAX as u64), live(), when_unset(ALL_THAT_IS_LEFT), with_keyword();
        connections_per_address: Option<usize> = None,
            "max_connections_per_address", "N",
            "The most visitor connections that may be open from one address",
            with_bounds(1, u32::MAX as u64), live(), when_unset("a quarter of these, 500 to 1,024"), with_keyword();
    }

    /// The limits of one connection besides [`Timeouts`], under `edge`.
    limits {
        upstream_idle_connections: usize = 1024,
            "edge.upstream_idle_connections", "N",
            "Maximum number of idle connections to one backend",
            with_bounds(0, 4_096), live();
        http2_streams: u32 = 128,
            "edge.http2_streams", "N",
            "Maximum number of concurrent requests on an HTTP/2 connection",
            with_bounds(1, 10_000), live();
        ipv6_prefix: u8 = DEFAULT_IPV6_PREFIX,
            "edge.rate_limit_ipv6_prefix", "N",
            "The length of the IPv6 prefix that rate limits by conn.client_ip count as one visitor",
            with_bounds(1, 128), live();
        max_head: ByteSize = ByteSize(HeadLimits::default().bytes),
            "edge.max_head_size", "SIZE",
            "The largest head of a visitor's request, with its first line; larger ones get 431",
            with_bounds(1 << 10, MAX_HEAD_BYTES as u64), live();
        max_header_fields: usize = HeadLimits::default().fields,
            "edge.max_header_fields", "N",
            "The most header fields of a visitor's request; with more it gets 431",
            with_bounds(10, MAX_HEAD_FIELDS as u64), live();
    }
}

impl GatewaySettings {
    /// The settings with the domain in its normal form. A domain that is not a host name is refused elsewhere.
    pub(super) fn normalized(mut self) -> Self {
        let name = self.base_domain.as_deref().and_then(|domain| HostName::parse(domain).ok());
        self.base_domain = name.map(|name| name.to_string()).or(self.base_domain);
        self
    }

    pub(super) fn connection_caps(&self) -> ConnectionCaps {
        let total = self
            .connections
            .unwrap_or_else(|| DescriptorLimit::read_current().visitor_connections());
        let per_address = self.connections_per_address;
        let per_address = per_address.unwrap_or_else(|| descriptors::visitors_per_address(total));
        ConnectionCaps { total, per_address, reserved: 0 }
    }

    /// Maximum size of the head of a visitor's request: at most the size that agents accept.
    pub(super) fn head_limits(&self) -> HeadLimits {
        HeadLimits { bytes: self.max_head.0, fields: self.max_header_fields }
    }
}
