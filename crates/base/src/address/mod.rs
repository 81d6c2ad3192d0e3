//! Names and addresses of hosts, with exactly one reading.
//!
//! [`HostName`] and [`Host`] are the parts of the others: [`HostPort`] for `host:port`,
//! [`HostPortPattern`] for that of an edge, which may be a wildcard, [`Authority`] for the scheme,
//! host and port of a URL, [`WebUrl`] for a whole URL, [`RequestHost`] for the host of a request, and
//! [`UpstreamAddress`] for the place that a tunnel forwards to. [`Cidr`] is a range of addresses.
//!
//! Each parser accepts one notation and reports the cause for everything else. In particular, `127.1`, `0x7f000001`,
//! `0177.0.0.1`, `80/`, `"80\n"` and full-width digits are rejected: lenient URL parsers and resolvers read them as
//! addresses of other machines.
//!
//! Printing a parsed value gives its normal form, which parses to the same value.

mod authority;
mod cidr;
mod endpoint_url;
mod error;
mod host;
mod host_name;
mod host_pattern;
mod host_port;
mod host_port_pattern;
mod reachable;
mod request_host;
#[cfg(test)]
mod tests;
mod upstream_address;
mod web_url;

use std::str::FromStr;

pub use authority::{Authority, Scheme, with_ascii_host};
pub use cidr::{Cidr, NotCidr};
pub use endpoint_url::EndpointUrl;
pub use error::AddressError;
pub use host::Host;
pub use host_name::HostName;
pub use host_pattern::HostPattern;
pub use host_port::{HostPort, parse_port};
pub use host_port_pattern::HostPortPattern;
pub use reachable::reachable_address;
pub use request_host::RequestHost;
pub use upstream_address::{AddressProtocol, MAX_SOCKET_PATH_BYTES, UnixPath, UpstreamAddress};
pub use web_url::WebUrl;

/// Implements `FromStr` for types by their own `parse`.
macro_rules! parse_from_str {
    ($($address:ty),+) => {$(
        impl FromStr for $address {
            type Err = AddressError;

            fn from_str(text: &str) -> Result<Self, AddressError> {
                Self::parse(text)
            }
        }
    )+};
}

parse_from_str!(
    Authority,
    EndpointUrl,
    Host,
    HostName,
    HostPattern,
    HostPort,
    HostPortPattern,
    WebUrl
);
