//! Connections to upstreams, whatever is spoken on them.

use http::{Request, Response};
use hyper::body::Incoming;

use ginnel_http1::ResponseGrammar;

use crate::Io;
use crate::message::connection_activity::ConnectionActivity;
use crate::message::request_body::RequestBody;
use crate::upstream::http1::{ConnectionIdentity, ExchangeError, Http1Connection};
use crate::upstream::http2::Http2Connection;
use crate::upstream::pool::{PooledConnection, UpstreamPool};
use crate::upstream::target::UpstreamProtocol;

/// One connection to an upstream.
pub enum UpstreamConnection {
    /// Spoken to with HTTP/1.1.
    Http1(Http1Connection),
    /// Spoken to with HTTP/2.
    Http2(Http2Connection),
}

impl UpstreamConnection {
    /// Speaks HTTP over a connection.
    pub async fn new(
        io: Io,
        protocol: UpstreamProtocol,
        grammar: ResponseGrammar,
        identity: Option<ConnectionIdentity>,
    ) -> Result<Self, hyper::Error> {
        match protocol {
            UpstreamProtocol::Http1 => Ok(Self::Http1(Http1Connection::new(io, grammar, identity))),
            UpstreamProtocol::Http2 => Http2Connection::new(io, identity).await.map(Self::Http2),
        }
    }

    /// A connection that waits in a pool, for requests of whom it named.
    pub fn take_idle(
        pool: &UpstreamPool,
        protocol: UpstreamProtocol,
        identity: Option<&ConnectionIdentity>,
    ) -> Option<Self> {
        match protocol {
            UpstreamProtocol::Http1 => pool.http1.take_matching(identity).map(Self::Http1),
            UpstreamProtocol::Http2 => pool.http2.take_matching(identity).map(Self::Http2),
        }
    }

    /// Returns true if it has carried a request before.
    pub fn is_used(&self) -> bool {
        match self {
            Self::Http1(link) => link.idle_time().is_some(),
            Self::Http2(link) => link.idle_time().is_some(),
        }
    }

    /// Sends a request, which may ask for another protocol, and waits for the head of the answer; its body is only there with HTTP/2, and
    /// follows on the connection with HTTP/1.1.
    pub async fn send_request(
        &mut self,
        request: Request<RequestBody>,
        may_switch: bool,
        activity: &ConnectionActivity,
    ) -> Result<Response<Option<Incoming>>, ExchangeError> {
        match self {
            Self::Http1(link) => {
                Ok(link.send_request(request, may_switch, activity).await?.map(|()| None))
            }
            Self::Http2(link) => Ok(link.send_request(request).await?.map(Some)),
        }
    }
}
