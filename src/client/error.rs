//! Why a call failed.

use crate::api::Malformed;

use super::StatusError;

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
    /// The runtime that calls need could not be made.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] std::io::Error),
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
    #[error("cannot read the answer: {problem} ({method} {url})")]
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
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    /// Nobody listens where the agent should; nothing was sent.
    #[error("no agent is running there: {0}")]
    NotRunning(#[source] std::io::Error),
    /// The attempt took too long.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(std::time::Duration),
    /// The call took too long, with its retries.
    #[error("no answer within the deadline of {} s", .0.as_secs_f64())]
    Deadline(std::time::Duration),
    /// The connection broke before the answer was complete.
    #[error("the connection broke: {0}")]
    Broken(#[source] hyper::Error),
    /// The proxy, or what lies behind it, did not answer.
    #[error("the request through the proxy failed: {0}")]
    Proxy(String),
    /// The answer is larger than a client takes, or its compression is damaged.
    #[error("the answer cannot be taken: {0}")]
    Body(String),
}

/// An option that is missing or unusable.
#[derive(Debug, thiserror::Error)]
#[error("{option} {problem}")]
pub struct ConfigError {
    /// The option's name.
    pub option: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl ConfigError {
    pub(super) fn new(option: &'static str, problem: impl Into<String>) -> Self {
        Self { option, problem: problem.into() }
    }
}

impl Cause {
    /// True when the server cannot have seen the request.
    pub fn is_unsent(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::NotRunning(_))
    }
}
