//! Connections to upstreams, whatever is spoken on them.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;

use crate::gateway::Io;
use crate::gateway::http::body::Outgoing;
use crate::gateway::routing::target::Speaks;
use crate::gateway::upstream::http1::{Failed, Link, Named};
use crate::gateway::upstream::http2::Http2;
use crate::gateway::upstream::pool::Idle;
use crate::reuse::IdleState;

/// One connection to an upstream.
pub(crate) enum Wire {
    /// Spoken to with HTTP/1.1.
    Http1(Link),
    /// Spoken to with HTTP/2.
    Http2(Http2),
}

impl Wire {
    /// Speaks HTTP over a connection.
    pub(crate) async fn new(
        io: Io,
        speaks: Speaks,
        named: Option<Named>,
    ) -> Result<Self, hyper::Error> {
        match speaks {
            Speaks::Http1 => Link::new(io, named).await.map(Self::Http1),
            Speaks::Http2 => Http2::new(io, named).await.map(Self::Http2),
        }
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, Failed> {
        match self {
            Self::Http1(link) => link.exchange(request).await,
            Self::Http2(link) => link.exchange(request).await,
        }
    }
}

impl Idle for Wire {
    fn named(&self) -> Option<&Named> {
        match self {
            Self::Http1(link) => link.named(),
            Self::Http2(link) => link.named(),
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
