//! Connections through a proxy, for code that runs on tokio.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use ginnel_base::address::HostPort;
use ginnel_base::logging::or_debug;

use super::{Proxy, ProxyTarget};
use crate::{DialRole, dial_host, resolve_host};

/// A connection to a place, directly or through a tunnel of a proxy.
pub enum ProxyStream {
    /// Bytes go to the place or to its proxy as they are.
    Plain(TcpStream),
    /// The proxy is spoken to over TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl ProxyStream {
    /// Returns the socket.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

/// Opens a tunnel to a place through a proxy. `tls` is for proxies that are spoken to over TLS.
///
/// # Errors
/// If the proxy cannot be reached or refuses, or within `limit` does nothing.
pub async fn dial_through_proxy(
    role: DialRole,
    proxy: &Proxy,
    place: &HostPort,
    tls: &Arc<ClientConfig>,
    limit: Duration,
) -> io::Result<ProxyStream> {
    let deadline = Instant::now() + limit;
    let dialing = async {
        let socket = dial_host(role, &proxy.place()).await?;
        let stream = match proxy.is_tls() {
            true => {
                let name =
                    ServerName::try_from(proxy.host().to_owned()).map_err(io::Error::other)?;
                let connector = TlsConnector::from(tls.clone());
                ProxyStream::Tls(Box::new(connector.connect(name, socket).await?))
            }
            false => ProxyStream::Plain(socket),
        };
        let address = address_for(proxy, place).await;
        open_tunnel(proxy.clone(), place.clone(), address, stream, deadline).await
    };
    let dialed = timeout_at(deadline, dialing).await.unwrap_or_else(|_| Err(timeout_error()));
    dialed.map_err(|error| io::Error::new(error.kind(), format!("{proxy}: {error}")))
}

fn timeout_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no response")
}

/// Returns the address of the place, for proxies that do not resolve its name. A name that cannot be resolved here is
/// left to the proxy: networks with a proxy often have names that only the proxy knows.
async fn address_for(proxy: &Proxy, place: &HostPort) -> Option<IpAddr> {
    if !proxy.needs_address(&target_of(place)) {
        return None;
    }
    let addresses = or_debug!(resolve_host(place).await, "the proxy is given the name")?;
    addresses.first().map(|address| address.ip())
}

/// Returns the place as the target of a proxy. Like TLS, everything but plain HTTP needs a tunnel.
fn target_of(place: &HostPort) -> ProxyTarget<'_> {
    ProxyTarget { host: &place.host, port: place.port, is_tls: true }
}

/// Asks the proxy for a tunnel, on a thread that may wait.
async fn open_tunnel(
    proxy: Proxy,
    place: HostPort,
    address: Option<IpAddr>,
    stream: ProxyStream,
    deadline: Instant,
) -> io::Result<ProxyStream> {
    let mut blocking = BlockingStream { stream, runtime: Handle::current(), deadline };
    let opening = spawn_blocking(move || {
        let opened = proxy.open_tunnel(&mut blocking, &target_of(&place), address);
        opened.map(|()| blocking.stream).map_err(io::Error::other)
    });
    opening.await.map_err(io::Error::other)?
}

/// A stream whose calls wait, on a thread that may, up to a deadline.
struct BlockingStream {
    stream: ProxyStream,
    runtime: Handle,
    deadline: Instant,
}

impl Read for BlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let reading = timeout_at(self.deadline, self.stream.read(buffer));
        self.runtime.block_on(reading).unwrap_or_else(|_| Err(timeout_error()))
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let writing = timeout_at(self.deadline, self.stream.write(bytes));
        self.runtime.block_on(writing).unwrap_or_else(|_| Err(timeout_error()))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushing = timeout_at(self.deadline, self.stream.flush());
        self.runtime.block_on(flushing).unwrap_or_else(|_| Err(timeout_error()))
    }
}

impl AsyncRead for ProxyStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ProxyStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
