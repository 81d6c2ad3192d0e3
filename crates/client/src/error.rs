//! Why a call failed.

use ginnel_api::Malformed;
use ginnel_http1::ResponseError;

use super::tls_error::TlsError;
use super::{ProxyError, StatusError};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments make no request; nothing was sent.
    #[error(transparent)]
    Malformed(Malformed),
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// What calls need could not be made: a thread or a descriptor.
    #[error("cannot start a call: {}", words(.0))]
    Start(#[source] std::io::Error),
    /// The caller does not wait any more, as it said itself.
    #[error("the call was interrupted")]
    Interrupted,
    /// A page's `next_page_uri` leads away from the client's address; nothing was sent.
    #[error("next_page_uri {uri} is not below {origin}")]
    ForeignPage {
        /// What the answer said.
        uri: String,
        /// Where the client's key belongs.
        origin: String,
    },
    /// No answer arrived.
    #[error("{cause} ({method} {url}, attempt {attempts})")]
    Transport {
        /// What happened at the last attempt.
        cause: Cause,
        /// The HTTP method.
        method: &'static str,
        /// The address.
        url: String,
        /// How many attempts were made.
        attempts: u32,
    },
    /// The answer is an error.
    #[error(transparent)]
    Status(Box<StatusError>),
    /// The answer is not what the operation returns.
    #[error("cannot read the response: {problem} ({method} {url})")]
    Decode {
        /// What is wrong with it.
        problem: String,
        /// The HTTP method.
        method: &'static str,
        /// The address.
        url: String,
        /// The answer's body.
        body: bytes::Bytes,
    },
}

/// What can happen to an attempt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// No connection; nothing was sent.
    #[error("cannot connect: {}", words(.0))]
    Connect(#[source] std::io::Error),
    /// Nobody listens where the agent should; nothing was sent.
    #[error("no agent is running there: {}", words(.0))]
    NotRunning(#[source] std::io::Error),
    /// No connection came about in time; nothing was sent.
    #[error("no connection within {} s", .0.as_secs_f64())]
    ConnectTimeout(std::time::Duration),
    /// The limit of the client's rate does not let the attempt begin in time; nothing was sent.
    #[error(
        "rate_limit lets no request go before {:.1} s, which is beyond the deadline of {} s",
        .pause.as_secs_f64(),
        .deadline.as_secs_f64()
    )]
    RateLimit {
        /// How long it would have to wait.
        pause: std::time::Duration,
        /// How long the call may take.
        deadline: std::time::Duration,
    },
    /// The attempt took too long.
    #[error("no response within {} s", .0.as_secs_f64())]
    Timeout(std::time::Duration),
    /// The call took too long, with its retries.
    #[error("no response within the deadline of {} s", .0.as_secs_f64())]
    Deadline(std::time::Duration),
    /// The connection broke before any of the request was sent.
    #[error("the connection broke before the request was sent: {}", words(.0))]
    BrokenUnsent(#[source] std::io::Error),
    /// The connection broke before the response was complete.
    #[error("the connection broke {place}: {}", words(.source))]
    Broken {
        /// What was going on, such as `while the answer was awaited`.
        place: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// What came is no complete answer.
    #[error(transparent)]
    Response(ResponseError),
    /// The proxy made no connection; the server saw nothing.
    #[error(transparent)]
    Proxy(ProxyError),
    /// The answer is larger than a client takes, or its coding is damaged.
    #[error("the response cannot be used: {0}")]
    Body(String),
}

/// What the system said, without the number that nobody looks up.
fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

impl Cause {
    /// True when the server cannot have seen the request.
    pub fn is_unsent(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::ConnectTimeout(_)
                | Self::NotRunning(_)
                | Self::RateLimit { .. }
                | Self::BrokenUnsent(_)
                | Self::Proxy(_)
        )
    }

    /// True when TLS refused the server, or the server us: another attempt will end likewise.
    pub(super) fn is_refused_by_tls(&self) -> bool {
        match self {
            Self::Connect(error) => error.get_ref().is_some_and(|inner| inner.is::<TlsError>()),
            _ => false,
        }
    }

    /// True when the connection was lost, or what came over it was no answer.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Self::Broken { .. } | Self::BrokenUnsent(_) | Self::Response(_))
    }
}
