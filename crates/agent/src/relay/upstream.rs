//! Local services: where they are, and how they are spoken to.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;

use ginnel_base::address::UpstreamAddress;
use ginnel_http1::reuse::{ReuseBan, ReuseBans};

use super::dial::{DialPlace, Dialer, ForbiddenAddresses, LocalStream};
use super::files;
use super::http2::{self, LocalHttp2Connection};
use super::io::PIPE_BYTES;
use super::local_reset::LocalReset;
use super::quick_ack::ResponseWait;
use crate::unix_sockets::UnixSocketRoots;

/// What a local service speaks to HTTP tunnels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AppProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by ALPN where there is TLS, otherwise with prior knowledge.
    Http2,
}

/// A local service that can be connected to.
#[derive(Debug, Clone)]
pub struct LocalUpstream {
    address: UpstreamAddress,
    kind: UpstreamKind,
}

#[derive(Debug, Clone)]
enum UpstreamKind {
    /// A connection for each visitor.
    PerVisitor(Dialer),
    /// One connection with HTTP/2 for all visitors.
    Http2(Arc<LocalHttp2Connection>),
    /// Into a folder.
    Files(PathBuf),
}

impl LocalUpstream {
    /// A local service that is sent what visitors send; nothing is connected yet.
    pub fn new(
        address: UpstreamAddress,
        tls: Arc<ClientConfig>,
        closed: ForbiddenAddresses,
    ) -> Self {
        let dialer = |place: DialPlace, tls| {
            UpstreamKind::PerVisitor(Dialer { place, tls, closed, bans: ReuseBans::default() })
        };
        let kind = match &address {
            UpstreamAddress::Tcp(place) => dialer(DialPlace::Tcp(place.clone()), None),
            UpstreamAddress::Tls(place) => dialer(DialPlace::Tcp(place.clone()), Some(tls)),
            UpstreamAddress::Unix(path) => dialer(DialPlace::unix_socket(path.clone()), None),
            UpstreamAddress::Files(folder) => UpstreamKind::Files(folder.clone()),
        };
        Self { address, kind }
    }

    /// The same local service; if it is a Unix socket, only below these roots.
    pub fn with_roots(mut self, roots: Option<UnixSocketRoots>) -> Self {
        if let UpstreamKind::PerVisitor(dialer) = &mut self.kind {
            dialer.place.restrict_roots(roots);
        }
        self
    }

    /// The same local service, spoken to with this protocol.
    pub fn with_protocol(self, protocol: AppProtocol) -> Self {
        match (self.kind, protocol) {
            (UpstreamKind::PerVisitor(mut dialer), AppProtocol::Http2) => {
                if let Some(tls) = &mut dialer.tls {
                    Arc::make_mut(tls).alpn_protocols = vec![b"h2".to_vec()];
                }
                let connection = LocalHttp2Connection::new(dialer, self.address.host_header());
                Self { address: self.address, kind: UpstreamKind::Http2(Arc::new(connection)) }
            }
            (kind, _) => Self { address: self.address, kind },
        }
    }

    /// The same local service, with bans on reuse that others share.
    pub fn with_bans(mut self, bans: &ReuseBans) -> Self {
        if let UpstreamKind::PerVisitor(dialer) = &mut self.kind {
            dialer.bans = bans.clone();
        }
        self
    }

    /// Where it is.
    pub fn address(&self) -> &UpstreamAddress {
        &self.address
    }

    /// Opens a TCP connection and closes it at once. Returns `true` if the local service accepts it, and
    /// `None` for a folder.
    pub async fn accepts_connections(&self) -> Option<bool> {
        match &self.kind {
            UpstreamKind::PerVisitor(dialer) => Some(dialer.can_connect().await),
            UpstreamKind::Http2(connection) => Some(connection.dialer().can_connect().await),
            UpstreamKind::Files(_) => None,
        }
    }

    /// Opens a connection for bytes of whatever protocol.
    ///
    /// # Errors
    /// When the service cannot be reached, or may not be.
    pub async fn connect_for_bytes(&self) -> io::Result<LocalStream> {
        match &self.kind {
            UpstreamKind::Http2(connection) => connection.dialer().dial().await,
            UpstreamKind::PerVisitor(_) | UpstreamKind::Files(_) => self.connect().await,
        }
    }

    /// Opens a connection that takes HTTP/1.1, whatever the service speaks.
    ///
    /// # Errors
    /// When the service cannot be reached, or may not be.
    pub async fn connect(&self) -> io::Result<LocalStream> {
        match &self.kind {
            UpstreamKind::PerVisitor(dialer) => dialer.dial().await,
            UpstreamKind::Http2(connection) => http2::connect_translator(connection).await,
            UpstreamKind::Files(folder) => {
                let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
                tokio::spawn(files::serve_files(folder.clone(), theirs));
                let (read, write) = tokio::io::split(ours);
                Ok(LocalStream {
                    read: Box::pin(read),
                    write: Box::pin(write),
                    response_wait: ResponseWait::default(),
                    ban: ReuseBan::default(),
                    reset: LocalReset::default(),
                })
            }
        }
    }
}
