//! Answers of the service itself, where traffic cannot or may not go on.
//!
//! Remote API sheet, section 7: a header names the code, the body says it to a person.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::gateway::http::response_body::ResponseBody;
use crate::policy::path::Ambiguity;

/// The header that names the code; it always comes from the service itself.
pub(crate) const ERROR_CODE: HeaderName = HeaderName::from_static("ngrok-error-code");

/// What a browser is asked for.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"ginnel\"");

/// When another try is worth while, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a visitor gets an answer of the service itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorResponse {
    /// The HTTP status.
    pub status: u16,
    /// The number of the code; none where there is no code for it.
    pub number: Option<u16>,
    text: &'static str,
    /// True when nothing more can be understood on the connection.
    pub closes: bool,
    /// True when another try is worth while.
    passes: bool,
}

macro_rules! error_responses {
    ($( $name:ident = $status:literal, $number:expr, $text:literal; )+) => {
        $( pub(crate) const $name: ErrorResponse = ErrorResponse::new($status, $number, $text); )+
    };
}

error_responses! {
    NO_ENDPOINT = 404, Some(3200), "Nothing is online at this address.";
    NO_WEBSOCKET = 400, Some(3206), "Only WebSocket requests are accepted here.";
    MISDIRECTED = 421, None, "Misdirected request: open a new connection for this host.";
    UNAUTHORIZED = 401, None, "A user name and a password are required.";
    BLOCKED = 403, Some(3205), "The address of the visitor is not allowed.";
    AGENT_BLOCKED = 403, Some(3211), "The user agent is not allowed.";
    NO_ROUTE = 404, Some(3200), "Nothing is online at this path.";
    TOO_MANY_HOPS = 508, Some(3501), "The request went through too many internal endpoints.";
    LOOP = 508, None, "The request was forwarded in a loop.";
    TRIPPED = 503, Some(3202), "The circuit breaker is open: the backend failed too often.";
    NO_TUNNEL = 503, Some(6515), "No tunnel is online for this backend.";
    NO_TARGET = 503, Some(724), "No backend is available for this request.";
    UNREACHABLE = 502, Some(8012), "The tunnel is online, but its local service cannot be reached.";
    BROKEN = 502, Some(3004), "The upstream did not send a complete response.";
    LATE = 504, Some(3004), "The upstream did not respond in time.";
}

/// Whoever serves it has as much to do as it can.
pub(crate) const BUSY: ErrorResponse =
    ErrorResponse::new(503, Some(724), "All backends are busy; try again.").passing();
/// The request cannot be understood in one way only.
pub(crate) const BAD_REQUEST: ErrorResponse =
    ErrorResponse::new(400, None, "The request is malformed.").closing();
/// The head of the request is longer than it may be, or has too many headers.
pub(crate) const HEAD_TOO_LARGE: ErrorResponse =
    ErrorResponse::new(431, None, "The headers of the request are too large.").closing();
/// Tunnels for anything to anywhere are not what this is.
pub(crate) const NO_CONNECT: ErrorResponse =
    ErrorResponse::new(405, None, "CONNECT is not supported.").closing();
/// The line with the path is too long.
pub(crate) const TOO_LONG: ErrorResponse =
    ErrorResponse::new(414, None, "The URI is too long.").closing();

/// The path means one thing to one server and something else to another.
pub(crate) fn ambiguous(ambiguity: Ambiguity) -> ErrorResponse {
    ErrorResponse::new(400, None, ambiguity.sentence())
}

/// Names a code in the headers of an answer; `prefix` stands before the number.
pub(crate) fn name(headers: &mut HeaderMap, number: Option<u16>, prefix: &str) {
    let code = number.and_then(|number| HeaderValue::try_from(format!("{prefix}{number}")).ok());
    if let Some(code) = code {
        headers.insert(ERROR_CODE, code);
    }
}

impl ErrorResponse {
    const fn new(status: u16, number: Option<u16>, text: &'static str) -> Self {
        Self { status, number, text, closes: false, passes: false }
    }

    const fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    const fn passing(self) -> Self {
        Self { passes: true, ..self }
    }

    /// What it says to a person.
    pub(crate) fn text(self) -> &'static str {
        self.text
    }

    /// The body of the answer; `prefix` stands before the number.
    pub(crate) fn into_text(self, prefix: &str) -> String {
        match self.number {
            Some(number) => format!("{}\n\n{prefix}{number}\n", self.text),
            None => format!("{}\n", self.text),
        }
    }

    /// The answer; `prefix` stands before the number.
    pub(crate) fn into_response(self, prefix: &str) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::full(self.into_text(prefix).into()));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or_default();
        let headers = response.headers_mut();
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, plain);
        name(headers, self.number, prefix);
        if self.status == UNAUTHORIZED.status {
            headers.insert(header::WWW_AUTHENTICATE, CHALLENGE);
        }
        if self.passes {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
