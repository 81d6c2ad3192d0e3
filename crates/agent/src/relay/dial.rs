//! Connections to local services.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{AlertDescription, ClientConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use ginnel_base::address::{HostPort, UnixPath};
use ginnel_base::logging::or_debug;
use ginnel_http1::reuse::{PolledSocket, ReuseBan, ReuseBans};
use ginnel_net::tls::server_name;
use ginnel_net::{
    DialRefusal, DialRole, Reach, check_socket, dial_address, is_reset_at_once, permit_address,
    private, resolve_host,
};

use super::local_reset::{LocalReset, ResettableSocket, ResettableWriter};
use super::quick_ack::{QuickAckReader, ResponseWait};
use super::{BoxReader, BoxWriter};
use crate::unix_sockets::UnixSocketRoots;

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
    /// Makes it end with a reset.
    pub reset: LocalReset,
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
    fn check_address(&self, address: SocketAddr) -> io::Result<()> {
        if self.0.iter().any(|closed| private::leads_to(address, *closed)) {
            return Err(DialRefusal::OwnApi(address).into());
        }
        Ok(permit_address(DialRole::LocalService, Reach::Any, address)?)
    }
}

/// How a local service is connected to.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    pub place: DialPlace,
    /// None where it is reached in the clear.
    pub tls: Option<Arc<ClientConfig>>,
    pub closed: ForbiddenAddresses,
    pub bans: ReuseBans,
}

/// The target of a dialer.
#[derive(Debug, Clone)]
pub(super) enum DialPlace {
    Tcp(HostPort),
    Unix {
        path: UnixPath,
        /// Unset if the owner of the agent has named the socket.
        roots: Option<UnixSocketRoots>,
        ban: ReuseBan,
    },
}

impl DialPlace {
    /// A Unix socket.
    pub fn unix_socket(path: UnixPath) -> Self {
        Self::Unix { path, roots: None, ban: ReuseBan::default() }
    }

    /// Allows a Unix socket only below these roots.
    pub fn restrict_roots(&mut self, allowed: Option<UnixSocketRoots>) {
        if let Self::Unix { roots, .. } = self {
            *roots = allowed;
        }
    }
}

impl Dialer {
    /// Opens a connection; what is wanted of ALPN is agreed on.
    pub async fn dial(&self) -> io::Result<LocalStream> {
        let place = match &self.place {
            DialPlace::Tcp(place) => place,
            DialPlace::Unix { path, roots, ban } => {
                return dial_unix(path, roots.as_ref(), ban.clone()).await;
            }
        };
        let (response_wait, reset) = (ResponseWait::default(), LocalReset::default());
        let (stream, address) = self.dial_tcp(place).await?;
        let ban = self.bans.ban_for(address);
        let Some(config) = &self.tls else {
            let (read, write) = stream.into_split();
            let read = QuickAckReader::new(read, response_wait.clone());
            return Ok(LocalStream {
                read: Box::pin(read),
                write: Box::pin(ResettableWriter::new(write, reset.clone())),
                response_wait,
                ban,
                reset,
            });
        };
        let name = server_name(&place.host)?;
        let socket = ResettableSocket::new(PolledSocket(stream), reset.clone());
        let connecting = TlsConnector::from(config.clone()).connect(name, socket);
        let connecting = ban.await_response(connecting, || {});
        let stream =
            tokio::time::timeout(DIAL_TIMEOUT, connecting).await?.map_err(explain_alert)?;
        if !is_alpn_agreed(config, &stream) {
            return Err(alpn_error());
        }
        let (read, write) = tokio::io::split(stream);
        Ok(LocalStream { read: Box::pin(read), write: Box::pin(write), response_wait, ban, reset })
    }

    /// Opens a connection, without TLS, and closes it at once. Returns true on success.
    pub async fn can_connect(&self) -> bool {
        let connecting = async {
            match &self.place {
                DialPlace::Tcp(place) => self.dial_tcp(place).await.map(drop),
                DialPlace::Unix { path, roots, ban } => {
                    dial_unix(path, roots.as_ref(), ban.clone()).await.map(drop)
                }
            }
        };
        matches!(tokio::time::timeout(PROBE_TIMEOUT, connecting).await, Ok(Ok(())))
    }

    async fn dial_tcp(&self, place: &HostPort) -> io::Result<(TcpStream, SocketAddr)> {
        let problem = format!("{} has no address", place.host);
        let mut failed = io::Error::new(io::ErrorKind::NotFound, problem);
        for address in resolve_host(place).await? {
            self.closed.check_address(address)?;
            let dialed = dial_address(DialRole::LocalService, address);
            match tokio::time::timeout(DIAL_TIMEOUT, dialed).await {
                Ok(Ok(stream)) => {
                    // Requests are written whole; waiting for more to send only delays them.
                    or_debug!(stream.set_nodelay(true), "cannot switch delays off");
                    return Ok((stream, address));
                }
                Ok(Err(error)) if is_reset_at_once(&error) => return Err(error),
                Ok(Err(error)) => failed = error,
                Err(elapsed) => failed = elapsed.into(),
            }
        }
        Err(failed)
    }
}

/// Connects to a Unix socket. A socket that a caller of the agent API has named is looked up again each time, as
/// links can change.
#[cfg(unix)]
async fn dial_unix(
    path: &UnixPath,
    roots: Option<&UnixSocketRoots>,
    ban: ReuseBan,
) -> io::Result<LocalStream> {
    let (path, roots) = (path.as_path().to_owned(), roots.cloned());
    // A file system that does not respond must hold up neither the runtime nor the visitor.
    let finding = ginnel_base::tasks::spawn_blocking(move || find_socket(path, roots.as_ref()));
    let connecting = async {
        let path = finding.await.map_err(io::Error::other)??;
        tokio::net::UnixStream::connect(path).await
    };
    let stream = tokio::time::timeout(DIAL_TIMEOUT, connecting).await??;
    let (read, write) = stream.into_split();
    let read: BoxReader = Box::pin(unix_reader::UnixReader(read));
    let (response_wait, reset) = (ResponseWait::default(), LocalReset::default());
    Ok(LocalStream { read, write: Box::pin(write), response_wait, ban, reset })
}

/// Returns the path of a socket that may be connected to, without links if there are roots.
#[cfg(unix)]
fn find_socket(
    path: std::path::PathBuf,
    roots: Option<&UnixSocketRoots>,
) -> io::Result<std::path::PathBuf> {
    let path = match roots {
        Some(roots) => roots.resolve_path(&path)?,
        None => path,
    };
    check_socket(&path)?;
    Ok(path)
}

#[cfg(not(unix))]
async fn dial_unix(
    _: &UnixPath,
    _: Option<&UnixSocketRoots>,
    _: ReuseBan,
) -> io::Result<LocalStream> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
}

#[cfg(unix)]
mod unix_reader {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use socket2::SockRef;
    use tokio::io::{AsyncRead, ReadBuf};
    use tokio::net::unix::OwnedReadHalf;

    use ginnel_http1::reuse::ask_kernel;

    /// The receiving half of a connection to a Unix socket.
    pub(super) struct UnixReader(pub OwnedReadHalf);

    impl AsyncRead for UnixReader {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let read = Pin::new(&mut self.0).poll_read(cx, buffer);
            ask_kernel(SockRef::from(self.0.as_ref()), cx, buffer, read)
        }
    }
}

/// Whether one of the protocols that we ask for was agreed on; most often we ask for none.
fn is_alpn_agreed(config: &ClientConfig, stream: &TlsStream<ResettableSocket>) -> bool {
    let offered = &config.alpn_protocols;
    let agreed = stream.get_ref().1.alpn_protocol();
    offered.is_empty() || agreed.is_some_and(|agreed| offered.iter().any(|one| one == agreed))
}

fn explain_alert(error: io::Error) -> io::Error {
    let alert = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match alert {
        Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => alpn_error(),
        _ => error,
    }
}

fn alpn_error() -> io::Error {
    io::Error::other("its TLS does not agree on HTTP/2 (h2 by ALPN)")
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ginnel_net::HeldSockets;

    #[tokio::test]
    async fn a_file_system_that_does_not_respond_does_not_hold_up_the_runtime() {
        let path = UnixPath::parse("/nowhere/at/all.sock").unwrap();
        let held = HeldSockets::hold();

        // Only this thread runs tasks, so that the release comes too late if it waits for the socket.
        let dialing = dial_unix(&path, None, ReuseBan::default());
        let (dialed, in_time) = tokio::join!(dialing, async { held.release() });

        assert!(in_time && dialed.is_err());
    }
}
