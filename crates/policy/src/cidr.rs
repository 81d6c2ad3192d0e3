//! Ranges of addresses, as policies use them.

use std::net::{IpAddr, Ipv6Addr};

pub use ginnel_base::address::Cidr;

/// Returns true for addresses that are for use inside a network only: private, loopback or link-local.
pub(super) fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_private() || address.is_loopback() || address.is_link_local()
        }
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
}
