//! Other nodes, and the tunnels at them, as places where connections can go.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::io::AsyncReadExt;

use ginnel_base::logging::or_debug;
use ginnel_gateway::{
    BoxFuture, ConnectionReuse, DialError, Io, RouteRef, Target, UpstreamProtocol, Visitor,
};
use ginnel_mux::Stream;

use super::message::{self, DialStatus, ENDS_TLS, VisitorHeader, kind};
use super::sessions::{PeerSession, PeerSessions};
use crate::cluster::directory::Directory;
use crate::cluster::{EndpointKey, RemoteTunnel};

/// Another node, which does with requests what the endpoint of its agent wants done.
pub(super) struct NodeTarget {
    pub sessions: Arc<PeerSessions>,
    pub node_id: Arc<str>,
    pub key: String,
}

/// A tunnel of another node, for the edges of this one; made for each request.
pub(super) struct RemoteTunnelTarget {
    pub sessions: Arc<PeerSessions>,
    pub tunnel: Arc<RemoteTunnel>,
    /// Whether the last connection may wait for another request: its node counts those of the agent.
    pub may_idle: AtomicBool,
}

/// An endpoint, for the bytes of its visitors, at whichever node it is when one comes.
pub(super) struct EndpointTarget {
    directory: Arc<Directory>,
    sessions: Arc<PeerSessions>,
    endpoint: EndpointKey,
    key: String,
}

impl EndpointTarget {
    pub(super) fn new(
        directory: &Arc<Directory>,
        sessions: &Arc<PeerSessions>,
        endpoint: EndpointKey,
    ) -> Self {
        let (directory, sessions) = (directory.clone(), sessions.clone());
        let key = format!("node {endpoint}");
        Self { directory, sessions, endpoint, key }
    }
}

impl Target for EndpointTarget {
    fn key(&self) -> &str {
        &self.key
    }

    fn reuse(&self) -> ConnectionReuse {
        ConnectionReuse::Nobody
    }

    fn is_node(&self) -> bool {
        true
    }

    fn dial<'a>(
        &'a self,
        visitor: &'a Visitor,
        _: &'a RouteRef,
    ) -> BoxFuture<'a, Result<Io, DialError>> {
        Box::pin(async move {
            for tunnel in self.directory.tunnels_at(&self.endpoint) {
                let opened =
                    self.sessions.open_bytes(&tunnel.node_id, &tunnel.bind_id, visitor).await;
                if let Ok(stream) = opened {
                    return Ok(Box::new(stream) as Io);
                }
            }
            Err(DialError::Offline)
        })
    }
}

impl Target for NodeTarget {
    fn key(&self) -> &str {
        &self.key
    }

    fn reuse(&self) -> ConnectionReuse {
        ConnectionReuse::SameVisitor
    }

    fn is_node(&self) -> bool {
        true
    }

    fn dial<'a>(
        &'a self,
        visitor: &'a Visitor,
        through: &'a RouteRef,
    ) -> BoxFuture<'a, Result<Io, DialError>> {
        Box::pin(async move {
            let header = VisitorHeader::new(visitor, "", through);
            let stream = self.sessions.open_stream(&self.node_id, kind::VISITOR, &header).await?;
            Ok(Box::new(stream) as Io)
        })
    }
}

impl Target for RemoteTunnelTarget {
    fn key(&self) -> &str {
        &self.tunnel.id
    }

    fn reuse(&self) -> ConnectionReuse {
        // A tunnel that edges lead to has no PROXY protocol.
        ConnectionReuse::SameAddress
    }

    fn protocol(&self) -> UpstreamProtocol {
        self.tunnel.speaks
    }

    fn is_agent(&self) -> bool {
        true
    }

    fn may_idle(&self) -> bool {
        self.may_idle.load(Relaxed)
    }

    fn dial<'a>(
        &'a self,
        visitor: &'a Visitor,
        through: &'a RouteRef,
    ) -> BoxFuture<'a, Result<Io, DialError>> {
        Box::pin(async move {
            let header = VisitorHeader::new(visitor, &self.tunnel.id, through);
            let mut stream =
                self.sessions.open_stream(&self.tunnel.node_id, kind::TUNNEL, &header).await?;
            let status = read_status(&mut stream).await;
            let status = or_debug!(status, "a node does not say if it has a tunnel");
            self.may_idle.store(status != Some(DialStatus::Once), Relaxed);
            match status {
                Some(DialStatus::Connected | DialStatus::Once) => Ok(Box::new(stream) as Io),
                Some(DialStatus::Busy) => Err(DialError::Busy),
                Some(DialStatus::Reset) => Err(DialError::Reset),
                Some(DialStatus::Unreachable) => {
                    Err(DialError::Unreachable("said by another node".to_owned()))
                }
                Some(DialStatus::Offline) | None => Err(DialError::Offline),
            }
        })
    }
}

async fn read_status(stream: &mut Stream) -> io::Result<DialStatus> {
    stream.read_u8().await.map(DialStatus::from_byte)
}

impl PeerSessions {
    /// Opens a stream to a node, whose first message is this.
    async fn open_stream(
        &self,
        node_id: &str,
        kind: u32,
        header: &VisitorHeader,
    ) -> Result<Stream, DialError> {
        let session = self.get(node_id).ok_or(DialError::Offline)?;
        session.open_stream(kind, header).await
    }

    /// Opens a stream for the bytes of a visitor, to an endpoint of a node.
    async fn open_bytes(
        &self,
        node_id: &str,
        bind_id: &str,
        visitor: &Visitor,
    ) -> Result<Stream, DialError> {
        let session = self.get(node_id).ok_or(DialError::Offline)?;
        let mut header = VisitorHeader::new(visitor, bind_id, &RouteRef::none());
        header.wants_status = session.protocol_version >= ENDS_TLS;
        let mut stream = session.open_stream(kind::BYTES, &header).await?;
        if !header.wants_status {
            return Ok(stream);
        }
        match or_debug!(read_status(&mut stream).await, "a node does not say if it has an endpoint")
        {
            Some(DialStatus::Connected) => Ok(stream),
            _ => Err(DialError::Offline),
        }
    }
}

impl PeerSession {
    async fn open_stream(&self, kind: u32, header: &VisitorHeader) -> Result<Stream, DialError> {
        let opened = self.mux.open_stream(message::encode_first_frame(kind, header)).await;
        opened.map_err(|_| DialError::Offline)
    }
}
