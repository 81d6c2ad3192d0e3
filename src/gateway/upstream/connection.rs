//! Connections to upstreams, whatever is spoken on them.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;

use crate::gateway::Io;
use crate::gateway::http::body::RequestBody;
use crate::gateway::routing::target::UpstreamProtocol;
use crate::gateway::upstream::http1::{ConnectionIdentity, ExchangeError, Http1Connection};
use crate::gateway::upstream::http2::Http2Connection;
use crate::gateway::upstream::pool::PooledConnection;
use crate::reuse::IdleState;

/// One connection to an upstream.
pub(crate) enum UpstreamConnection {
    /// Spoken to with HTTP/1.1.
    Http1(Http1Connection),
    /// Spoken to with HTTP/2.
    Http2(Http2Connection),
}

impl UpstreamConnection {
    /// Speaks HTTP over a connection.
    pub(crate) async fn new(
        io: Io,
        protocol: UpstreamProtocol,
        identity: Option<ConnectionIdentity>,
    ) -> Result<Self, hyper::Error> {
        match protocol {
            UpstreamProtocol::Http1 => Http1Connection::new(io, identity).await.map(Self::Http1),
            UpstreamProtocol::Http2 => Http2Connection::new(io, identity).await.map(Self::Http2),
        }
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, ExchangeError> {
        match self {
            Self::Http1(link) => link.exchange(request).await,
            Self::Http2(link) => link.exchange(request).await,
        }
    }
}

impl PooledConnection for UpstreamConnection {
    fn identity(&self) -> Option<&ConnectionIdentity> {
        match self {
            Self::Http1(link) => link.identity(),
            Self::Http2(link) => link.identity(),
        }
    }

    fn idle(&self) -> Option<Duration> {
        match self {
            Self::Http1(link) => link.idle(),
            Self::Http2(link) => link.idle(),
        }
    }

    fn state(&mut self) -> IdleState {
        match self {
            Self::Http1(link) => link.state(),
            Self::Http2(link) => link.state(),
        }
    }
}
