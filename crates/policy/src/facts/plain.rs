//! Variables that are a text, a number or a truth: read without making a value of them.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use ginnel_http1::media_type_in;

use super::super::authority::host_and_port;
use super::super::exchange::{Content, Exchange, Request, TlsFacts};
use super::place::{self, Place};
use super::source::Message;
use super::url::{
    canonical_authority, normalized_path, normalized_path_and_query, normalized_url,
    path_and_query, query_string, raw_path, raw_url, request_authority,
};

/// A variable that is a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum TextFact {
    Method,
    Host,
    Version,
    Url,
    RawUrl,
    Path,
    RawPath,
    Scheme,
    UrlHost,
    Query,
    PathAndQuery,
    UserPassword,
    RequestHeader(KnownHeader),
    ResponseHeader(KnownHeader),
    /// The media type of `Content-Type`, in lower case and without parameters.
    RequestMediaType,
    ResponseMediaType,
    ClientIp,
    ServerIp,
    Region,
    TlsVersion,
    CipherSuite,
    Sni,
    Alpn,
    EndpointId,
    EndpointUrl,
    EndpointHost,
    EndpointProtocol,
    Place(Place),
}

/// A header that has a variable of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum KnownHeader {
    UserAgent,
    Location,
    ContentType,
}

/// A variable that is a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum NumberFact {
    Port,
    RequestLength,
    ResponseLength,
    Status,
    ClientPort,
    ServerPort,
    EndpointPort,
    BytesIn,
    BytesOut,
    AutonomousSystem,
}

impl TextFact {
    /// The variable of a name.
    pub(in super::super) fn from_name(name: &str) -> Option<Self> {
        use KnownHeader::{ContentType, Location, UserAgent};
        Some(match name {
            "req.method" => Self::Method,
            "req.host" | "req.url.authority" => Self::Host,
            "req.version" => Self::Version,
            "req.url" => Self::Url,
            "req.url.raw" => Self::RawUrl,
            "req.url.path" => Self::Path,
            "req.url.raw_path" => Self::RawPath,
            "req.url.scheme" => Self::Scheme,
            "req.url.host" => Self::UrlHost,
            "req.url.query" => Self::Query,
            "req.url.uri" => Self::PathAndQuery,
            "req.url.user_password" => Self::UserPassword,
            "req.user_agent" => Self::RequestHeader(UserAgent),
            "req.location" => Self::RequestHeader(Location),
            "req.content_type" => Self::RequestMediaType,
            "req.content_type.raw" => Self::RequestHeader(ContentType),
            "res.location" => Self::ResponseHeader(Location),
            "res.content_type" => Self::ResponseMediaType,
            "res.content_type.raw" => Self::ResponseHeader(ContentType),
            "conn.client_ip" => Self::ClientIp,
            "conn.server_ip" => Self::ServerIp,
            "conn.server_region" => Self::Region,
            "conn.tls.version" => Self::TlsVersion,
            "conn.tls.cipher_suite" => Self::CipherSuite,
            "conn.tls.sni" => Self::Sni,
            "conn.tls.negotiated_alpn" => Self::Alpn,
            "endpoint.id" => Self::EndpointId,
            "endpoint.url" => Self::EndpointUrl,
            "endpoint.host" => Self::EndpointHost,
            "endpoint.protocol" => Self::EndpointProtocol,
            _ => return Place::from_variable(name).map(Self::Place),
        })
    }

    /// What the variable holds; none where there is no such thing.
    pub(in super::super) fn read_text(self, exchange: &Exchange) -> Option<Cow<'_, str>> {
        let (connection, endpoint) = (&exchange.connection, &exchange.endpoint);
        let memo = &exchange.memo;
        let text = match self {
            Self::RequestHeader(header) => {
                return Some(header.read_text(Message::Request, &exchange.request()?.head.headers));
            }
            Self::ResponseHeader(header) => {
                return Some(
                    header.read_text(Message::Response, &exchange.response()?.head.headers),
                );
            }
            Self::RequestMediaType => {
                let headers = &exchange.request()?.head.headers;
                return Some(media_type(Message::Request.header_values(headers, &CONTENT_TYPE)));
            }
            Self::ResponseMediaType => {
                let headers = &exchange.response()?.head.headers;
                return Some(media_type(Message::Response.header_values(headers, &CONTENT_TYPE)));
            }
            Self::ClientIp => {
                memo.client_ip.get_or_init(|| address_text(connection.client.ip())).as_str()
            }
            Self::ServerIp => {
                memo.server_ip.get_or_init(|| address_text(connection.server.ip())).as_str()
            }
            Self::Region => &connection.region,
            Self::TlsVersion | Self::CipherSuite | Self::Sni | Self::Alpn => {
                self.read_tls(connection.tls.as_ref()?)
            }
            Self::EndpointId => &endpoint.id,
            Self::EndpointUrl => endpoint.url(),
            Self::EndpointHost => &endpoint.host,
            Self::EndpointProtocol => &endpoint.protocol,
            Self::Place(place) => return Some(place.read_text(connection)),
            of_request => of_request.read_from(exchange, exchange.request()?),
        };
        Some(Cow::Borrowed(text))
    }

    /// What was agreed on.
    pub(in super::super) fn read_tls(self, tls: &TlsFacts) -> &str {
        match self {
            Self::TlsVersion => &tls.version,
            Self::CipherSuite => &tls.cipher_suite,
            Self::Sni => &tls.sni,
            Self::Alpn => &tls.alpn,
            _ => "",
        }
    }

    fn read_from<'e>(self, exchange: &'e Exchange, request: &'e Request) -> &'e str {
        let (uri, memo) = (&request.head.uri, &exchange.memo);
        match self {
            Self::Method => request.head.method.as_str(),
            Self::Host => canonical_host(exchange, request),
            Self::Version => version_text(request.head.version),
            Self::Url => memo.url.get_or_init(|| normalized_url(request)),
            Self::RawUrl => memo.raw_url.get_or_init(|| raw_url(request)),
            Self::Path => {
                let path = memo.path.get_or_init(|| normalized_path(request));
                path.as_deref().unwrap_or(uri.path())
            }
            Self::RawPath => raw_path(request),
            Self::Scheme => request.scheme,
            Self::UrlHost => host_and_port(canonical_host(exchange, request), request.scheme).0,
            Self::Query => query_string(request),
            Self::PathAndQuery => {
                let made = memo.path_and_query.get_or_init(|| normalized_path_and_query(request));
                made.as_deref().unwrap_or(path_and_query(request))
            }
            Self::UserPassword => {
                let authority = uri.authority().map_or("", |it| it.as_str());
                authority.rsplit_once('@').map_or("", |(user, _)| user)
            }
            _ => "",
        }
    }
}

/// The host in its one form.
fn canonical_host<'e>(exchange: &'e Exchange, request: &'e Request) -> &'e str {
    let made = exchange.memo.authority.get_or_init(|| canonical_authority(request));
    made.as_deref().unwrap_or(request_authority(request))
}

impl KnownHeader {
    /// The value of the header, or all of its lines as one list; empty when there is none.
    pub(super) fn read_text(self, message: Message, headers: &HeaderMap) -> Cow<'_, str> {
        join_lines(message.header_values(headers, self.name())).unwrap_or_default()
    }

    /// The name of the header.
    pub(in super::super) fn name(self) -> &'static HeaderName {
        match self {
            Self::UserAgent => &USER_AGENT,
            Self::Location => &LOCATION,
            Self::ContentType => &CONTENT_TYPE,
        }
    }
}

impl NumberFact {
    /// The variable of a name.
    pub(in super::super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "req.url.port" => Self::Port,
            "req.content_length" => Self::RequestLength,
            "res.content_length" => Self::ResponseLength,
            "res.status_code" => Self::Status,
            "conn.client_port" => Self::ClientPort,
            "conn.server_port" => Self::ServerPort,
            "conn.bytes_in" => Self::BytesIn,
            "conn.client_ip.as.number" => Self::AutonomousSystem,
            "conn.bytes_out" => Self::BytesOut,
            "endpoint.port" => Self::EndpointPort,
            _ => return None,
        })
    }

    /// What the variable holds; none where there is no such thing.
    pub(in super::super) fn read_number(self, exchange: &Exchange) -> Option<i64> {
        let request = || exchange.request();
        let response = || exchange.response();
        let number = match self {
            Self::Port => {
                request().map(|it| host_and_port(request_authority(it), it.scheme).1)?.into()
            }
            Self::RequestLength => request().map(|it| body_length(&it.head.headers, &it.body))?,
            Self::ResponseLength => response().map(|it| body_length(&it.head.headers, &it.body))?,
            Self::Status => response()?.head.status.as_u16().into(),
            Self::ClientPort => exchange.connection.client.port().into(),
            Self::ServerPort => exchange.connection.server.port().into(),
            Self::EndpointPort => exchange.endpoint.port.into(),
            Self::BytesIn => exchange.carried.received,
            Self::BytesOut => exchange.carried.sent,
            Self::AutonomousSystem => place::autonomous_system(&exchange.connection),
        };
        Some(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// The text of a value; bytes that are no UTF-8 are replaced.
pub(in super::super) fn readable_value(value: &HeaderValue) -> Cow<'_, str> {
    readable_bytes(value.as_bytes())
}

/// The same for the bytes of a value.
pub(in super::super) fn readable_bytes(value: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(value)
}

/// The value of a header. Servers disagree about which of several lines counts, so a rule gets to see
/// all of them (RFC 9110, section 5.3).
pub(in super::super) fn join_lines<'h>(
    mut lines: impl Iterator<Item = Cow<'h, str>>,
) -> Option<Cow<'h, str>> {
    let first = lines.next()?;
    Some(lines.fold(first, |all, line| format!("{all}, {line}").into()))
}

/// The media type in the lines of `Content-Type`: in lower case and without parameters (RFC 9110,
/// section 8.3.1). Those of several lines are one list, as of other headers.
pub(in super::super) fn media_type<'h>(lines: impl Iterator<Item = Cow<'h, str>>) -> Cow<'h, str> {
    let types = lines.map(|line| match line {
        Cow::Borrowed(line) => lower_case(media_type_in(line)),
        Cow::Owned(line) => media_type_in(&line).to_ascii_lowercase().into(),
    });
    join_lines(types).unwrap_or_default()
}

fn lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return text.to_ascii_lowercase().into();
    }
    Cow::Borrowed(text)
}

/// The text of an address.
pub(in super::super) fn address_text(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

fn version_text(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// How long a body is: what is there of it, or what was announced; 0 unless known.
fn body_length(headers: &HeaderMap, body: &Content) -> u64 {
    if let Content::Full(body) = body {
        return body.len() as u64;
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}
