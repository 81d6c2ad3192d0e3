//! Listeners of this process that nothing public may lead to: the API of an agent, which asks for no
//! key, and the management API.
//!
//! A listener is registered for as long as it listens. The dialler asks about each address that others have named,
//! after the name was resolved and before it connects. So it does not matter how an address
//! is spelled, which agent of the process has the listener, and when it began to listen.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{PoisonError, RwLock};

/// The private listeners of this process.
static LISTENERS: RwLock<Vec<SocketAddr>> = RwLock::new(Vec::new());

/// A listener that nothing public may lead to, as long as this is kept.
#[derive(Debug)]
pub struct PrivateListener(SocketAddr);

impl PrivateListener {
    /// Lets nothing public lead to a listener.
    pub fn new(address: SocketAddr) -> Self {
        LISTENERS.write().unwrap_or_else(PoisonError::into_inner).push(address);
        Self(address)
    }
}

impl Drop for PrivateListener {
    fn drop(&mut self) {
        let mut listeners = LISTENERS.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = listeners.iter().position(|listener| *listener == self.0) {
            listeners.swap_remove(at);
        }
    }
}

/// Whether a port is that of a private listener; if not, an address need not be looked at.
pub fn has_port(port: u16) -> bool {
    let listeners = LISTENERS.read().unwrap_or_else(PoisonError::into_inner);
    listeners.iter().any(|listener| listener.port() == port)
}

/// Returns true if an address leads to a private listener.
pub fn is_private(address: SocketAddr) -> bool {
    let listeners = LISTENERS.read().unwrap_or_else(PoisonError::into_inner);
    listeners.iter().any(|listener| leads_to(address, *listener))
}

/// Whether who connects to `address` may come to `listener`.
pub fn leads_to(address: SocketAddr, listener: SocketAddr) -> bool {
    if address.port() != listener.port() {
        return false;
    }
    let (to, at) = (canonical_ip(address.ip()), canonical_ip(listener.ip()));
    let is_here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    to == at || is_here(to) && is_here(at) || at.is_unspecified() && is_own(address)
}

/// An address in its shortest form: IPv4 in IPv6 is IPv4, in both of its spellings.
fn canonical_ip(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(six) if !six.is_loopback() && !six.is_unspecified() => {
            six.to_ipv4().map_or(ip, IpAddr::V4)
        }
        ip => ip,
    }
}

/// Whether an address is one of this machine: only those can be bound.
fn is_own(address: SocketAddr) -> bool {
    let mut place = address;
    place.set_port(0);
    UdpSocket::bind(place).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(address: &str, listener: &str) -> bool {
        leads_to(address.parse().unwrap(), listener.parse().unwrap())
    }

    #[test]
    fn every_spelling_of_an_address_leads_to_it() {
        for address in [
            "127.0.0.1:40",
            "127.0.0.2:40",
            "0.0.0.0:40",
            "[::1]:40",
            "[::]:40",
            "[::ffff:127.0.0.1]:40",
            "[::ffff:7f00:1]:40",
            "[::ffff:0.0.0.0]:40",
            "[::127.0.0.1]:40",
        ] {
            for listener in ["127.0.0.1:40", "[::1]:40", "0.0.0.0:40", "[::]:40"] {
                assert!(leads(address, listener), "{address} to {listener}");
            }
            assert!(!leads(address, "127.0.0.1:41"), "{address}");
            assert!(!leads(address, "192.0.2.1:40"), "{address}");
        }
        assert!(leads("[::ffff:192.0.2.1]:40", "192.0.2.1:40"));
        assert!(leads("192.0.2.1:40", "[::ffff:192.0.2.1]:40"));
    }

    #[test]
    fn other_machines_are_reached_at_the_same_port() {
        // Nobody has an address that is kept for documentation.
        for address in ["192.0.2.1:40", "[2001:db8::1]:40"] {
            for listener in ["0.0.0.0:40", "[::]:40", "127.0.0.1:40"] {
                assert!(!leads(address, listener), "{address} to {listener}");
            }
        }
    }

    #[test]
    fn what_no_longer_listens_is_free() {
        let address = "127.0.0.1:1".parse().unwrap();
        let (first, second) = (PrivateListener::new(address), PrivateListener::new(address));
        drop(first);
        assert!(is_private(address) && has_port(1));
        drop(second);
        assert!(!is_private(address) && !has_port(1));
    }
}
