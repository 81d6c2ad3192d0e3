//! Answers of the service itself, where traffic cannot or may not go on.
//!
//! Remote API sheet, section 7: a header names the code, the body says it to a person.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use ginnel_policy::path::Ambiguity;

use crate::message::response_body::ResponseBody;

/// The header that names the code; it always comes from the service itself.
pub const ERROR_CODE: HeaderName = HeaderName::from_static("ngrok-error-code");

/// What a browser is asked for.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"ginnel\"");

/// When another try is worth while, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a visitor gets an answer of the service itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorResponse {
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

/// Why a request gets no answer of its backend.
pub enum Rejection {
    /// The service answers it.
    Respond(ErrorResponse),
    /// The agent is gone here and another node has it, which is to take the request: no module answers.
    Elsewhere,
    /// The connection is closed, with all other requests on it.
    Close,
}

impl From<ErrorResponse> for Rejection {
    fn from(error: ErrorResponse) -> Self {
        Self::Respond(error)
    }
}

/// The mark of a response that is a rejection, in its extensions.
#[derive(Debug, Clone, Copy)]
pub struct RejectionMark;

macro_rules! error_responses {
    ($( $name:ident = $status:literal, $number:expr, $text:literal; )+) => {
        $( pub const $name: ErrorResponse = ErrorResponse::new($status, $number, $text); )+
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
pub const BUSY: ErrorResponse =
    ErrorResponse::new(503, Some(724), "All backends are busy; try again.").passing();
/// Whoever serves it is at a node that cannot be reached from this one.
pub const CUT_OFF: ErrorResponse =
    ErrorResponse::new(503, Some(724), "Its node cannot be reached now; try again.").passing();
/// Another node serves the host now, which asks visitors for a certificate of their own.
pub const MOVED: ErrorResponse = MISDIRECTED.closing();
/// The request cannot be understood in one way only.
pub const BAD_REQUEST: ErrorResponse =
    ErrorResponse::new(400, None, "The request is malformed.").closing();
/// The head of the request is longer than it may be.
pub const HEAD_TOO_LARGE: ErrorResponse =
    ErrorResponse::new(431, None, "The headers of the request are too large.").closing();
/// The head of the request has more fields than it may have.
pub const TOO_MANY_FIELDS: ErrorResponse =
    ErrorResponse::new(431, None, "The request has too many headers.").closing();
/// Tunnels for anything to anywhere are not what this is.
pub const NO_CONNECT: ErrorResponse =
    ErrorResponse::new(405, None, "CONNECT is not supported.").closing();
/// The line with the path is too long.
pub const TOO_LONG: ErrorResponse = ErrorResponse::new(414, None, "The URI is too long.").closing();

/// The path means one thing to one server and something else to another.
pub fn ambiguous_path(ambiguity: Ambiguity) -> ErrorResponse {
    ErrorResponse::new(400, None, ambiguity.sentence())
}

/// Names a code in the headers of an answer; `prefix` stands before the number.
pub fn set_error_code(headers: &mut HeaderMap, number: Option<u16>, prefix: &str) {
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
    pub fn text(self) -> &'static str {
        self.text
    }

    /// The body of the answer; `prefix` stands before the number.
    pub fn into_text(self, prefix: &str) -> String {
        match self.number {
            Some(number) => format!("{}\n\n{prefix}{number}\n", self.text),
            None => format!("{}\n", self.text),
        }
    }

    /// The answer; `prefix` stands before the number.
    pub fn into_response(self, prefix: &str) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::from_bytes(self.into_text(prefix).into()));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or_default();
        let headers = response.headers_mut();
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, plain);
        set_error_code(headers, self.number, prefix);
        if self.status == UNAUTHORIZED.status {
            headers.insert(header::WWW_AUTHENTICATE, CHALLENGE);
        }
        if self.passes {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if self.closes {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(RejectionMark);
        response
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The value of a header, if there is one.
    fn value<'r>(response: &'r Response<ResponseBody>, name: &HeaderName) -> Option<&'r str> {
        response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn the_code_stands_in_a_header_and_in_the_text() {
        let response = NO_TUNNEL.into_response("ERR_X_");

        assert_eq!(response.status(), 503);
        assert_eq!(value(&response, &ERROR_CODE), Some("ERR_X_6515"));
        assert_eq!(value(&response, &header::CONTENT_TYPE), Some("text/plain; charset=utf-8"));
        let text = "No tunnel is online for this backend.";
        assert_eq!(NO_TUNNEL.text(), text);
        assert_eq!(NO_TUNNEL.into_text("ERR_X_"), format!("{text}\n\nERR_X_6515\n"));
    }

    #[test]
    fn what_has_no_code_names_none() {
        let response = LOOP.into_response("ERR_X_");

        assert_eq!(
            (response.status(), value(&response, &ERROR_CODE)),
            (508.try_into().unwrap(), None)
        );
        assert_eq!(LOOP.into_text("ERR_X_"), "The request was forwarded in a loop.\n");
    }

    #[test]
    fn each_response_asks_of_the_client_what_helps() {
        let header = |response: ErrorResponse| {
            let response = response.into_response("");
            let value = |name| value(&response, name).map(str::to_owned);
            [&header::WWW_AUTHENTICATE, &header::RETRY_AFTER, &header::CONNECTION].map(value)
        };
        let [challenge, retry, close] =
            ["Basic realm=\"ginnel\"", "1", "close"].map(|value| Some(value.to_owned()));

        assert_eq!(header(UNAUTHORIZED), [challenge, None, None]);
        assert_eq!(header(BUSY), [None, retry, None]);
        for closing in [BAD_REQUEST, HEAD_TOO_LARGE, TOO_MANY_FIELDS, NO_CONNECT, TOO_LONG] {
            assert!(closing.closes, "{closing:?}");
            assert_eq!(header(closing), [None, None, close.clone()], "{closing:?}");
        }
        for plain in [NO_ENDPOINT, MISDIRECTED, BLOCKED, TRIPPED, UNREACHABLE, LATE] {
            assert!(!plain.closes, "{plain:?}");
            assert_eq!(header(plain), [None, None, None], "{plain:?}");
        }
    }

    #[test]
    fn a_code_takes_the_place_of_one_that_an_upstream_sent() {
        let mut headers = HeaderMap::new();
        headers.insert(ERROR_CODE, HeaderValue::from_static("of the upstream"));

        set_error_code(&mut headers, None, "ERR_X_");
        assert_eq!(headers[ERROR_CODE], "of the upstream");
        set_error_code(&mut headers, Some(3004), "ERR_X_");
        assert_eq!(headers[ERROR_CODE], "ERR_X_3004");
        set_error_code(&mut headers, Some(3200), "no\nheader");

        assert_eq!(headers[ERROR_CODE], "ERR_X_3004");
    }
}
