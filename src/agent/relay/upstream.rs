//! Local services: where they are, and how they are spoken to.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;

use super::dial::{Closed, Connected, Dialer};
use super::http2::{self, Lane};
use super::prompt::Awaited;
use super::{PIPE, files};
use crate::reuse::{ReuseBan, ReuseBans};

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
pub struct Upstream {
    address: Address,
    way: Way,
}

#[derive(Debug, Clone)]
enum Way {
    /// A connection for each visitor.
    Each(Dialer),
    /// One connection with HTTP/2 for all visitors.
    Shared(Arc<Lane>),
    /// Into a folder.
    Files(PathBuf),
}

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

impl Upstream {
    /// A local service that is sent what visitors send; nothing is connected yet.
    pub fn new(address: Address, tls: Arc<ClientConfig>, closed: Closed) -> Self {
        let dialer = |host: &String, port: u16, tls| Dialer {
            host: host.clone(),
            port,
            tls,
            closed,
            bans: ReuseBans::default(),
        };
        let way = match &address {
            Address::Tcp { host, port } => Way::Each(dialer(host, *port, None)),
            Address::Tls { host, port } => Way::Each(dialer(host, *port, Some(tls))),
            Address::Files(folder) => Way::Files(folder.clone()),
        };
        Self { address, way }
    }

    /// The same local service, spoken to with this protocol.
    pub fn speaking(self, protocol: AppProtocol) -> Self {
        match (self.way, protocol) {
            (Way::Each(mut dialer), AppProtocol::Http2) => {
                if let Some(tls) = &mut dialer.tls {
                    Arc::make_mut(tls).alpn_protocols = vec![b"h2".to_vec()];
                }
                let lane = Lane::new(dialer, self.address.authority());
                Self { address: self.address, way: Way::Shared(Arc::new(lane)) }
            }
            (way, _) => Self { address: self.address, way },
        }
    }

    /// The same local service, with bans on reuse that others share.
    pub(crate) fn under(mut self, bans: &ReuseBans) -> Self {
        if let Way::Each(dialer) = &mut self.way {
            dialer.bans = bans.clone();
        }
        self
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Opens a connection for bytes of whatever protocol.
    ///
    /// # Errors
    /// When the service cannot be reached, or may not be.
    pub async fn connect_for_bytes(&self) -> io::Result<Connected> {
        match &self.way {
            Way::Shared(lane) => lane.dialer().dial().await,
            Way::Each(_) | Way::Files(_) => self.connect().await,
        }
    }

    /// Opens a connection that takes HTTP/1.1, whatever the service speaks.
    ///
    /// # Errors
    /// When the service cannot be reached, or may not be.
    pub async fn connect(&self) -> io::Result<Connected> {
        match &self.way {
            Way::Each(dialer) => dialer.dial().await,
            Way::Shared(lane) => http2::connect(lane).await,
            Way::Files(folder) => {
                let (ours, theirs) = tokio::io::duplex(PIPE);
                tokio::spawn(files::serve(folder.clone(), theirs));
                let (read, write) = tokio::io::split(ours);
                let (awaited, ban) = (Awaited::default(), ReuseBan::default());
                Ok(Connected { read: Box::pin(read), write: Box::pin(write), awaited, ban })
            }
        }
    }
}

fn join(host: &str, port: u16) -> String {
    format!("{}:{port}", bracketed(host))
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
