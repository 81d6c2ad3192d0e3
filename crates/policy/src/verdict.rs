//! What comes of running the rules of a phase.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use ginnel_base::address::WebUrl;

use super::jwt::KeyRequest;
use super::login::LoginRequest;

/// What happens next.
#[derive(Debug)]
pub enum StepOutcome {
    /// The phase is over.
    Done(Verdict),
    /// An action looks at the body of the request, or of the response in the response phase.
    ///
    /// Put it into the exchange as [`Content::Full`](super::Content::Full), or say that it is
    /// [`Content::TooLong`](super::Content::TooLong), and go on.
    NeedBody {
        /// How many bytes the action takes at most.
        limit: usize,
    },
    /// An action needs something from elsewhere; give the answer to
    /// [`Run::answer_fetch`](super::Run::answer_fetch), and go on.
    Fetch(Fetch),
    /// An action needs the keys of an issuer; give them to [`Run::answer_keys`](super::Run::answer_keys), and go on.
    Keys(KeyRequest),
    /// An action asks who has sent the request; give the answer to
    /// [`Run::answer_login`](super::Run::answer_login), and go on.
    Login(Box<LoginRequest>),
}

/// What is done with the request, or with the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Continue,
    /// The visitor gets this answer, which still goes through the response phase.
    Respond(LocalResponse),
    /// The connection is closed without an answer, together with all other requests on it.
    Close,
    /// It goes to another endpoint of this server.
    ///
    /// A failure is told to [`Run::forward_failed`](super::Run::forward_failed).
    Forward {
        /// The URL of the endpoint.
        url: String,
    },
}

/// An answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; with a [code](Self::code), a sentence that says why.
    pub body: Bytes,
    /// The number of the error, where the server speaks for itself.
    ///
    /// Whoever sends the answer puts it into a header and behind the sentence.
    pub code: Option<u16>,
}

/// A request that an action wants to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// The method.
    pub method: Method,
    /// The URL to send it to.
    pub url: WebUrl,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// How long the whole of it may take.
    pub timeout: std::time::Duration,
    /// How long the body of the answer may be, in bytes.
    pub limit: usize,
    /// How many redirects are followed.
    pub max_redirects: u8,
    /// Which try it is; the first one is 1.
    pub attempt: u8,
}

/// What came of a [`Fetch`].
pub type Fetched = Result<http::Response<Bytes>, FetchFailed>;

/// Why nothing came of a [`Fetch`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchFailed {
    /// Nobody answered.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// Nobody was asked: it is at an address that is not for whoever wants it.
    #[error("{0} is not a public address")]
    OutOfReach(IpAddr),
    /// The answer is longer than it may be.
    #[error("the response is too long")]
    TooLong,
    /// It took too long.
    #[error("no response in time")]
    Late,
    /// The request would come back to where it came from.
    #[error("the request would loop")]
    Loop,
}

impl LocalResponse {
    /// An answer without a body.
    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Bytes::new(), code: None }
    }

    /// An answer of the server itself, with a sentence that says why.
    pub fn refusal(status: StatusCode, code: u16, sentence: &'static str) -> Self {
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, plain)]);
        let body = Bytes::from_static(sentence.as_bytes());
        Self { status, headers, body, code: Some(code) }
    }
}
