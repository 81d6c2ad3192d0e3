//! Opens connections: name, socket, proxy, TLS. It waits, so it runs on a thread that may.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
#[cfg(not(unix))]
use std::time::Duration;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, Type};

use super::base_url::BaseUrl;
use super::connection::{ApiConnection, TlsLayers};
use super::socket::{CancellableStream, ClientSocket, POLL_INTERVAL};
use super::time_limit::TimeLimit;
use super::tls::TlsPeer;
use super::tls_error::Handshake;
use super::{Api, Cause, ClientSettings};

use ginnel_base::address::{Host, HostPort};
use ginnel_base::logging::ignore;
use ginnel_net::proxy::{Proxy, ProxyError};
use ginnel_net::{DialRole, Reach, is_loopback_only, permit_address};

/// What ends a wait early.
pub(super) struct DialContext<'a> {
    pub limit: Option<TimeLimit>,
    /// Whether the caller waits no more.
    pub is_interrupted: &'a mut dyn FnMut() -> bool,
}

/// Why a wait ended.
pub(super) enum AttemptError {
    /// With this.
    Failed(Cause),
    /// The caller waits no more.
    Interrupted,
    /// The client was closed.
    Closed,
}

impl From<Cause> for AttemptError {
    fn from(cause: Cause) -> Self {
        Self::Failed(cause)
    }
}

/// What a wait says that was ended early.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum WaitError {
    #[error("it took too long")]
    TimedOut,
    #[error("it was interrupted")]
    Interrupted,
}

impl DialContext<'_> {
    /// To be asked at each tick.
    ///
    /// # Errors
    /// When there is nothing to wait for any more.
    fn check_cancelled(&mut self) -> io::Result<()> {
        if (self.is_interrupted)() {
            return Err(io::Error::other(WaitError::Interrupted));
        }
        match self.limit {
            Some(limit) if limit.remaining().is_zero() => {
                Err(io::Error::other(WaitError::TimedOut))
            }
            _ => Ok(()),
        }
    }

    /// What an error means that a wait ended with.
    fn attempt_error(
        &self,
        error: io::Error,
        cause: impl FnOnce(io::Error) -> Cause,
    ) -> AttemptError {
        let ended = error.get_ref().and_then(|inner| inner.downcast_ref::<WaitError>()).copied();
        match (ended, self.limit) {
            (Some(WaitError::Interrupted), _) => AttemptError::Interrupted,
            (Some(WaitError::TimedOut), Some(limit)) => {
                AttemptError::Failed(limit.timeout_cause(false))
            }
            _ => AttemptError::Failed(cause(error)),
        }
    }
}

/// Opens a connection.
///
/// # Errors
/// When there is none within the limit, or when the caller waits no more.
pub(super) fn dial_origin(
    settings: &ClientSettings,
    mut context: DialContext<'_>,
) -> Result<ApiConnection<ClientSocket>, AttemptError> {
    let context = &mut context;
    let Some(proxy) = settings.proxy.as_ref().filter(|_| !is_loopback_only()) else {
        let origin = &settings.origin;
        let connected = connect_host(origin.host(), origin.port(), context);
        let mut socket = connected.map_err(|error| attempt_error(context, settings, error))?;
        let tls = match origin.is_tls() {
            true => Some(shake_hands(server_handshake(settings), &mut socket, context)),
            false => None,
        };
        let tls = tls.transpose().map_err(|error| context.attempt_error(error, Cause::Connect))?;
        let is_local = socket.is_loopback();
        let tls = tls.map(|tls| TlsLayers::new(tls, None));
        return Ok(ApiConnection::new(socket, tls, is_local));
    };
    let opened = dial_through_proxy(proxy, settings, context);
    opened.map_err(|error| context.attempt_error(error, |error| behind_proxy(proxy, error)))
}

/// Opens a connection through a proxy.
fn dial_through_proxy(
    proxy: &Proxy,
    settings: &ClientSettings,
    context: &mut DialContext<'_>,
) -> io::Result<ApiConnection<ClientSocket>> {
    let origin = &settings.origin;
    let mut socket = connect_host(proxy.host(), proxy.port(), context)?;
    let proxy_handshake = Handshake {
        peer: TlsPeer::Proxy,
        host: proxy.host(),
        port: proxy.port(),
        roots: &settings.roots,
    };
    let mut to_proxy = match proxy.is_tls() {
        true => Some(shake_hands(proxy_handshake, &mut socket, context)?),
        false => None,
    };
    let address = address_for(proxy, origin, context)?;
    let mut check = || context.check_cancelled();
    let mut stream = CancellableStream { socket: &mut socket, check: &mut check };
    let is_secure = origin.is_tls();
    let to_server = match &mut to_proxy {
        None => {
            proxy.open_tunnel(&mut stream, &origin.proxy_target(), address).map_err(into_io)?;
            is_secure
                .then(|| shake_hands_over(server_handshake(settings), &mut stream))
                .transpose()?
        }
        Some(tls) => {
            let mut stream = rustls::Stream::new(tls, &mut stream);
            proxy.open_tunnel(&mut stream, &origin.proxy_target(), address).map_err(into_io)?;
            is_secure
                .then(|| shake_hands_over(server_handshake(settings), &mut stream))
                .transpose()?
        }
    };
    let tls = match (to_server, to_proxy) {
        (Some(to_server), to_proxy) => Some(TlsLayers::new(to_server, to_proxy)),
        (None, Some(to_proxy)) => Some(TlsLayers::new(to_proxy, None)),
        (None, None) => None,
    };
    Ok(ApiConnection::new(socket, tls, false))
}

/// The address of the origin, for proxies that are not to resolve its name.
fn address_for(
    proxy: &Proxy,
    origin: &BaseUrl,
    context: &mut DialContext<'_>,
) -> io::Result<Option<IpAddr>> {
    if !proxy.needs_address(&origin.proxy_target()) {
        return Ok(None);
    }
    let name_error = |source| ProxyError::Name { host: origin.host().to_owned(), source };
    let no_address = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
    match resolve_host(origin.host(), origin.port(), context) {
        Err(error) if is_ended(&error) => Err(error),
        outcome => outcome
            .and_then(|addresses| addresses.first().map(SocketAddr::ip).ok_or_else(no_address))
            .map(Some)
            .map_err(|error| io::Error::other(name_error(error))),
    }
}

/// Errors of the connection are what they are, so that the end of a wait stays known.
fn into_io(error: ProxyError) -> io::Error {
    match error {
        ProxyError::Io(error) if is_ended(&error) => error,
        error => io::Error::other(error),
    }
}

fn behind_proxy(proxy: &Proxy, error: io::Error) -> Cause {
    match error.downcast::<ProxyError>() {
        Ok(error) => Cause::Proxy(error),
        // What TLS says is about the server as well.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Cause::Connect(error),
        Err(error) => {
            let text = format!("the proxy {}:{}: {error}", proxy.host(), proxy.port());
            Cause::Connect(io::Error::new(error.kind(), text))
        }
    }
}

/// The handshake with the server itself.
fn server_handshake(settings: &ClientSettings) -> Handshake<'_> {
    let origin = &settings.origin;
    let (host, port) = (origin.host(), origin.port());
    Handshake { peer: TlsPeer::Server, host, port, roots: &settings.roots }
}

fn shake_hands(
    handshake: Handshake<'_>,
    socket: &mut ClientSocket,
    context: &mut DialContext<'_>,
) -> io::Result<ClientConnection> {
    let mut check = || context.check_cancelled();
    shake_hands_over(handshake, &mut CancellableStream { socket, check: &mut check })
}

fn shake_hands_over(
    handshake: Handshake<'_>,
    stream: &mut (impl io::Read + io::Write),
) -> io::Result<ClientConnection> {
    let name = ServerName::try_from(handshake.host.to_owned()).map_err(io::Error::other)?;
    let config = handshake.roots.client_config(handshake.peer)?;
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(stream).map_err(|error| handshake.explain_error(error))?;
    }
    Ok(tls)
}

/// Connects to the first address of a host that takes the connection.
fn connect_host(host: &str, port: u16, context: &mut DialContext<'_>) -> io::Result<ClientSocket> {
    let place = Host::parse(host).map(|host| HostPort { host, port });
    let place = place.map_err(|problem| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} {problem}"))
    })?;
    let addresses = match place.known_addresses() {
        Some(addresses) => addresses,
        None => resolve_host(&place.host.unbracketed(), port, context)?,
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for address in addresses {
        permit_address(DialRole::ApiClient, Reach::Any, address)?;
        match connect_to(address, context) {
            Ok(socket) => return Ok(socket),
            Err(error) if is_ended(&error) => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Asks the system for the addresses of a host. That cannot be cut short, so another thread waits
/// for it, and goes on by itself when nobody else waits any more.
fn resolve_host(
    host: &str,
    port: u16,
    context: &mut DialContext<'_>,
) -> io::Result<Vec<SocketAddr>> {
    let (sender, receiver) = mpsc::channel();
    let name = host.to_owned();
    let lookup = move || {
        let outcome = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
        ignore(sender.send(outcome), "nobody may be waiting any more");
    };
    thread::Builder::new().name("ginnel-resolve".to_owned()).spawn(lookup)?;
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) => context.check_cancelled()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other(format!("the lookup of {host} ended")));
            }
        }
    }
}

fn connect_to(address: SocketAddr, context: &mut DialContext<'_>) -> io::Result<ClientSocket> {
    let domain = Domain::for_address(address);
    let socket = socket2::Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    wait_for_connection(&socket, address, context)?;
    ClientSocket::new(socket)
}

#[cfg(unix)]
fn wait_for_connection(
    socket: &socket2::Socket,
    address: SocketAddr,
    context: &mut DialContext<'_>,
) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => loop {
            let interval = Timespec { tv_sec: 0, tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()) };
            let mut waiting = [PollFd::new(socket, PollFlags::OUT)];
            match poll(&mut waiting, Some(&interval)) {
                Ok(1..) => break,
                Ok(0) | Err(rustix::io::Errno::INTR) => context.check_cancelled()?,
                Err(error) => return Err(error.into()),
            }
        },
        Err(error) => return Err(error),
    }
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    socket.set_nonblocking(false)
}

#[cfg(not(unix))]
fn wait_for_connection(
    socket: &socket2::Socket,
    address: SocketAddr,
    context: &mut DialContext<'_>,
) -> io::Result<()> {
    // The system waits for as long as it thinks fit when there is no limit.
    let left = context.limit.map_or(Duration::from_secs(120), |limit| limit.remaining());
    socket.connect_timeout(&address.into(), left.max(POLL_INTERVAL))
}

fn is_ended(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<WaitError>())
}

/// Why there is no connection to the server itself.
fn attempt_error(
    context: &DialContext<'_>,
    settings: &ClientSettings,
    error: io::Error,
) -> AttemptError {
    context.attempt_error(error, |error| match (settings.api, error.kind()) {
        (Api::Agent, io::ErrorKind::ConnectionRefused) => Cause::NotRunning(error),
        _ => Cause::Connect(error),
    })
}
