//! What heads of HTTP/1.1 become in HTTP/2, and the other way round; free of I/O.

use h2::ext::Protocol;
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, SEC_WEBSOCKET_ACCEPT, TE, TRAILER, UPGRADE,
};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};

use ginnel_http1::{
    self as http1, ConnectionOptions, HeadField, HeadWriter, RequestHead, has_token, is_hop_by_hop,
    may_trail, strip_hop_by_hop, write_chunk,
};

const SOCKET_KEY: HeaderName = HeaderName::from_static("sec-websocket-key");

/// A request as HTTP/2 has it.
#[derive(Debug)]
pub(super) struct Http2Request {
    /// The head.
    pub request: Request<()>,
    /// The visitor's key, when the request asks for a WebSocket.
    pub socket: Option<HeaderValue>,
}

/// A request that HTTP/2 cannot say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("HTTP/2 has no such request")]
pub(super) struct UntranslatableRequest;

/// Translates the head of a request.
///
/// `authority` is for a request that names no host.
pub(super) fn translate_request(
    head: &RequestHead<'_, '_>,
    scheme: &str,
    authority: &str,
) -> Result<Http2Request, UntranslatableRequest> {
    let mut method: Method = head.method.parse().map_err(|_| UntranslatableRequest)?;
    let headers = head.fields.iter().map(translate_header).collect::<Option<HeaderMap>>();
    let mut headers = headers.ok_or(UntranslatableRequest)?;
    if method == Method::CONNECT {
        return Err(UntranslatableRequest);
    }
    let uri = build_uri(head.target, headers.remove(HOST).as_ref(), scheme, authority)?;
    let socket = websocket_key(&method, &headers);
    let trailers = has_token(&headers, TE, "trailers");
    strip_hop_by_hop(&mut headers);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    let mut request = Request::new(());
    if socket.is_some() {
        method = Method::CONNECT;
        headers.remove(SOCKET_KEY);
        request.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(Http2Request { request, socket })
}

fn build_uri(
    target: &str,
    host: Option<&HeaderValue>,
    scheme: &str,
    authority: &str,
) -> Result<Uri, UntranslatableRequest> {
    // HTTP/2 has no other bytes than a URI: some get an escape.
    let (target, _) = http1::read_target(target).ok_or(UntranslatableRequest)?;
    let named = host.map(HeaderValue::as_bytes).filter(|host| !host.is_empty());
    let authority = match (named, target.authority()) {
        (Some(host), _) => Authority::try_from(host).map_err(|_| UntranslatableRequest)?,
        (None, Some(named)) => named.clone(),
        (None, None) => Authority::try_from(authority).map_err(|_| UntranslatableRequest)?,
    };
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::try_from(scheme).map_err(|_| UntranslatableRequest)?);
    parts.authority = Some(authority);
    parts.path_and_query =
        Some(target.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")));
    Uri::from_parts(parts).map_err(|_| UntranslatableRequest)
}

/// The key of a visitor who asks for a WebSocket.
fn websocket_key(method: &Method, headers: &HeaderMap) -> Option<HeaderValue> {
    let converted = *method == Method::GET
        && ConnectionOptions::from_headers(headers).upgrade
        && has_token(headers, UPGRADE, "websocket");
    headers.get(SOCKET_KEY).filter(|_| converted).cloned()
}

/// How the body of an answer is framed in HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// There can be no body, whatever the headers say of one.
    None,
    /// There is none.
    Empty,
    /// By the length that the headers give.
    Length,
    /// In chunks, with trailers.
    Chunked,
}

impl Framing {
    /// For an answer with this head; `ended` when nothing follows it.
    pub fn for_response(
        status: StatusCode,
        headers: &HeaderMap,
        to_head: bool,
        ended: bool,
    ) -> Self {
        let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
        match () {
            () if to_head || bodiless => Self::None,
            () if ended => Self::Empty,
            () if lengths == 1 && !announces_trailers(headers) => Self::Length,
            () => Self::Chunked,
        }
    }

    /// Whether there may be data.
    pub fn has_body(self) -> bool {
        matches!(self, Self::Length | Self::Chunked)
    }

    /// Adds data to what is written.
    pub fn write_data(self, data: &[u8], output: &mut Vec<u8>) {
        match self {
            Self::Chunked => write_chunk(data, output),
            _ => output.extend_from_slice(data),
        }
    }
}

/// Whether trailers are to be expected: a length leaves no room for them.
fn announces_trailers(headers: &HeaderMap) -> bool {
    let grpc = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    grpc.is_some_and(|kind| kind.starts_with(b"application/grpc")) || headers.contains_key(TRAILER)
}

/// The head of an answer in HTTP/1.1.
pub(super) fn translate_response(
    status: StatusCode,
    headers: &HeaderMap,
    framing: Framing,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut head = HeadWriter::begin_response(status.as_u16(), &mut bytes);
    let no_length = matches!(framing, Framing::Empty | Framing::Chunked)
        || matches!(status.as_u16(), 100..200 | 204);
    for (name, value) in headers {
        let is_left_out = is_hop_by_hop(name.as_str()) || no_length && name == CONTENT_LENGTH;
        if !is_left_out {
            head.field(name, value);
        }
    }
    match framing {
        Framing::Empty => {
            head.field("content-length", "0");
        }
        Framing::Chunked => {
            head.field("transfer-encoding", "chunked");
        }
        Framing::None | Framing::Length => {}
    }
    head.end();
    bytes
}

/// The head of an answer that makes a WebSocket of the connection.
pub(super) fn switching_protocols_head(headers: &HeaderMap, accept: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut head = HeadWriter::begin_response(101, &mut bytes);
    head.field(UPGRADE, "websocket").field(CONNECTION, "upgrade");
    head.field(SEC_WEBSOCKET_ACCEPT, accept);
    let framing = [CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT];
    for (name, value) in headers {
        if !is_hop_by_hop(name.as_str()) && !framing.contains(name) {
            head.field(name, value);
        }
    }
    head.end();
    bytes
}

/// The trailers of a request; none where there are none.
pub(super) fn translate_trailers(lines: &[u8]) -> Option<HeaderMap> {
    let trailers: HeaderMap = http1::read_fields(lines, |fields| {
        fields.iter().filter_map(translate_header).filter(|(name, _)| may_trail(name)).collect()
    })?;
    if trailers.is_empty() { None } else { Some(trailers) }
}

fn translate_header(field: &HeadField<'_>) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
    Some((name, HeaderValue::from_bytes(field.value).ok()?))
}
