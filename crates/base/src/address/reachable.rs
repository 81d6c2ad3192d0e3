//! Addresses of listeners as destinations.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Returns the address at which this machine reaches a listener: `0.0.0.0` and `::` are not destinations, so
/// loopback takes their place.
pub fn reachable_address(mut listener: SocketAddr) -> SocketAddr {
    if listener.ip().is_unspecified() {
        listener.set_ip(match listener.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listener
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_on_all_addresses_are_reached_on_loopback() {
        for (listener, expected) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
        ] {
            assert_eq!(reachable_address(listener.parse().unwrap()).to_string(), expected);
        }
    }
}
