//! Local services: where they are, and connections to them.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::prompt::{Awaited, Prompt};
use super::{Reader, Writer, files};

/// How long a local service may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a tunnel forwards to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A host and a port, reached in the clear.
    Tcp {
        /// A name or an address; IPv6 without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A host and a port, reached by TLS.
    Tls {
        /// A name or an address; IPv6 without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A folder whose files are served.
    Files(PathBuf),
}

/// A local service that can be connected to.
#[derive(Debug, Clone)]
pub struct Upstream {
    address: Address,
    tls: Arc<ClientConfig>,
    closed: Closed,
}

/// Addresses that no tunnel may lead to: the agent's own API and the like.
#[derive(Debug, Clone, Default)]
pub struct Closed(Arc<RwLock<HashSet<SocketAddr>>>);

impl Address {
    /// The address as the agent API shows it.
    pub fn shown(&self) -> String {
        match self {
            Self::Tcp { host, port } => join(host, *port),
            Self::Tls { host, port } => format!("https://{}", join(host, *port)),
            Self::Files(folder) => format!("file://{}", folder.display()),
        }
    }

    /// The address as it stands in a `Host` header.
    pub fn authority(&self) -> String {
        match self {
            Self::Tcp { host, port: 80 } | Self::Tls { host, port: 443 } => bracketed(host),
            Self::Tcp { host, port } | Self::Tls { host, port } => join(host, *port),
            Self::Files(_) => "localhost".to_owned(),
        }
    }
}

/// A connection to a local service.
pub struct Connected {
    /// What it sends.
    pub read: Reader,
    /// Where it receives.
    pub write: Writer,
    /// Told when an answer is waited for.
    pub awaited: Awaited,
}

impl Closed {
    /// Lets no tunnel lead to this address.
    pub fn add(&self, address: SocketAddr) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(address);
    }

    fn holds(&self, address: SocketAddr) -> bool {
        let closed = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
        let same = |known: &SocketAddr| {
            known.port() == address.port()
                && (known.ip() == address.ip() || here(known.ip()) && here(address.ip()))
        };
        closed.iter().any(same)
    }
}

impl Upstream {
    /// A local service; nothing is connected yet.
    pub fn new(address: Address, tls: Arc<ClientConfig>, closed: Closed) -> Self {
        Self { address, tls, closed }
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// When the service cannot be reached, or may not be.
    pub async fn connect(&self) -> io::Result<Connected> {
        let awaited = Awaited::default();
        match &self.address {
            Address::Tcp { host, port } => {
                let (read, write) = self.dial(host, *port).await?.into_split();
                let read = Prompt::new(read, awaited.clone());
                Ok(Connected { read: Box::pin(read), write: Box::pin(write), awaited })
            }
            Address::Tls { host, port } => {
                let stream = self.dial(host, *port).await?;
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let connecting = TlsConnector::from(self.tls.clone()).connect(name, stream);
                let stream = tokio::time::timeout(PATIENCE, connecting).await??;
                let (read, write) = tokio::io::split(stream);
                Ok(Connected { read: Box::pin(read), write: Box::pin(write), awaited })
            }
            Address::Files(folder) => {
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                tokio::spawn(files::serve(folder.clone(), theirs));
                let (read, write) = tokio::io::split(ours);
                Ok(Connected { read: Box::pin(read), write: Box::pin(write), awaited })
            }
        }
    }

    async fn dial(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
        for address in addresses(host, port).await? {
            if self.closed.holds(address) {
                let problem = format!("{address} is the agent's or the service's own API");
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
            }
            match tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Requests are written whole; waiting for more to send only delays them.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => failed = error,
                Err(elapsed) => failed = elapsed.into(),
            }
        }
        Err(failed)
    }
}

/// The addresses of a host; `localhost` needs no resolver.
async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    if host.eq_ignore_ascii_case("localhost") {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        return Ok(loopback.map(|ip| SocketAddr::new(ip, port)).to_vec());
    }
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

fn join(host: &str, port: u16) -> String {
    format!("{}:{port}", bracketed(host))
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
