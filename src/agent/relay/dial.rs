//! Connections to local services.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::quick_ack::{QuickAckReader, ResponseWait};
use super::{BoxReader, BoxWriter};
use crate::logging::or_debug;
use crate::net::private;
use crate::reuse::{PolledSocket, ReuseBan, ReuseBans};

/// How long a local service may take to accept a connection.
pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a local service may take to accept a connection that is only a test.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection to a local service.
pub struct LocalStream {
    /// What it sends.
    pub read: BoxReader,
    /// Where it receives.
    pub write: BoxWriter,
    /// Told when an answer is waited for.
    pub response_wait: ResponseWait,
    /// Says when it must not carry another request.
    pub(super) ban: ReuseBan,
}

/// Addresses that no tunnel may lead to, beside the private listeners of this process.
#[derive(Debug, Clone, Default)]
pub struct ForbiddenAddresses(Arc<[SocketAddr]>);

impl ForbiddenAddresses {
    /// Lets no tunnel lead to these addresses.
    pub fn new(addresses: &[SocketAddr]) -> Self {
        Self(addresses.into())
    }

    /// Refuses an address that no tunnel may lead to; it must be one that is connected to, not one
    /// that has to be resolved.
    fn check(&self, address: SocketAddr) -> io::Result<()> {
        if self.0.iter().any(|closed| private::leads_to(address, *closed)) {
            return Err(private::refusal(address));
        }
        private::check(address)
    }
}

/// How a host and a port are connected to.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    pub host: String,
    pub port: u16,
    /// None where it is reached in the clear.
    pub tls: Option<Arc<ClientConfig>>,
    pub closed: ForbiddenAddresses,
    pub bans: ReuseBans,
}

impl Dialer {
    /// Opens a connection; what is wanted of ALPN is agreed on.
    pub async fn dial(&self) -> io::Result<LocalStream> {
        let response_wait = ResponseWait::default();
        let (stream, address) = self.dial_tcp().await?;
        let ban = self.bans.of(address);
        let Some(config) = &self.tls else {
            let (read, write) = stream.into_split();
            let read = QuickAckReader::new(read, response_wait.clone());
            return Ok(LocalStream {
                read: Box::pin(read),
                write: Box::pin(write),
                response_wait,
                ban,
            });
        };
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let connecting = TlsConnector::from(config.clone()).connect(name, PolledSocket(stream));
        let stream = tokio::time::timeout(DIAL_TIMEOUT, connecting).await?.map_err(explained)?;
        if !agrees(config, &stream) {
            return Err(disagreement());
        }
        let (read, write) = tokio::io::split(stream);
        Ok(LocalStream { read: Box::pin(read), write: Box::pin(write), response_wait, ban })
    }

    /// Opens a TCP connection, without TLS, and closes it at once. Returns true on success.
    pub async fn can_connect(&self) -> bool {
        matches!(tokio::time::timeout(PROBE_TIMEOUT, self.dial_tcp()).await, Ok(Ok(_)))
    }

    async fn dial_tcp(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let problem = format!("{} has no address", self.host);
        let mut failed = io::Error::new(io::ErrorKind::NotFound, problem);
        for address in addresses(&self.host, self.port).await? {
            self.closed.check(address)?;
            match tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Requests are written whole; waiting for more to send only delays them.
                    or_debug!(stream.set_nodelay(true), "cannot switch delays off");
                    return Ok((stream, address));
                }
                Ok(Err(error)) => failed = error,
                Err(elapsed) => failed = elapsed.into(),
            }
        }
        Err(failed)
    }
}

/// Whether one of the protocols that we ask for was agreed on; most often we ask for none.
fn agrees(config: &ClientConfig, stream: &TlsStream<PolledSocket>) -> bool {
    let offered = &config.alpn_protocols;
    let agreed = stream.get_ref().1.alpn_protocol();
    offered.is_empty() || agreed.is_some_and(|agreed| offered.iter().any(|one| one == agreed))
}

fn explained(error: io::Error) -> io::Error {
    let alert = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match alert {
        Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            disagreement()
        }
        _ => error,
    }
}

fn disagreement() -> io::Error {
    io::Error::other("its TLS does not agree on HTTP/2 (h2 by ALPN)")
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
