//! Addresses of hosts. No resolver sees text that is not a [`HostName`](ginnel_base::address::HostName).

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use tokio::net::TcpListener;

use ginnel_base::address::{Host, HostPort};

/// Returns the addresses of a host. `localhost` and the names below it are loopback (RFC 6761, section 6.3),
/// without a question to the system's resolver.
///
/// # Errors
/// If the name cannot be resolved.
pub async fn resolve_host(place: &HostPort) -> io::Result<Vec<SocketAddr>> {
    match place.known_addresses() {
        Some(addresses) => Ok(addresses),
        None => {
            let name = place.host.unbracketed();
            Ok(tokio::net::lookup_host((name.as_str(), place.port)).await?.collect())
        }
    }
}

/// Listens on the first address of a host that can be bound.
///
/// # Errors
/// If none can.
pub async fn listen_at(place: &HostPort) -> io::Result<TcpListener> {
    TcpListener::bind(resolve_host(place).await?.as_slice()).await
}

/// Listens on a port of a host, as settings name it.
///
/// # Errors
/// If the text is not a host, or its addresses cannot be bound.
pub async fn listen_on(host: &str, port: u16) -> io::Result<TcpListener> {
    listen_at(&parse_place(host, port)?).await
}

/// As [`listen_on`], on any thread.
pub fn listen_on_now(host: &str, port: u16) -> io::Result<std::net::TcpListener> {
    std::net::TcpListener::bind(resolve_now(&parse_place(host, port)?)?.as_slice())
}

/// As [`resolve_host`], and blocks.
pub fn resolve_now(place: &HostPort) -> io::Result<Vec<SocketAddr>> {
    match place.known_addresses() {
        Some(addresses) => Ok(addresses),
        None => Ok((place.host.unbracketed(), place.port).to_socket_addrs()?.collect()),
    }
}

fn parse_place(host: &str, port: u16) -> io::Result<HostPort> {
    let problem =
        |problem| io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} {problem}"));
    Ok(HostPort { host: Host::parse(host).map_err(problem)?, port })
}
