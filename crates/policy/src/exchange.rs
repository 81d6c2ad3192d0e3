//! One request with its response, or one connection: what rules look at and change.

use std::borrow::Cow;
use std::mem::take;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::header::{CONTENT_RANGE, IF_NONE_MATCH};
use http::{HeaderMap, Method, StatusCode, request, response};

use ginnel_http1::{
    RepresentationChange, change_representation, has_content, read_target, request_query,
};

use super::Phase;
use super::address::{AddressFacts, AddressLookup};
use super::body_replacer::BodyReplacement;
use super::certificate::CertificateFacts;
use super::cidr::Cidr;
use super::compression::{Coding, ResponseCompression};
use super::login::{self, LoginVisit, WithheldCookies};
use super::memo::Memo;
use super::path::{PathReadings, RawPath};
use super::record::Record;
use super::state::breaker::Attempt;
use super::verdict::LocalResponse;

/// The length of the IPv6 prefix that is one visitor: a home or a server gets a /64 at least.
pub const DEFAULT_IPV6_PREFIX: u8 = 64;

/// A connection of a visitor.
#[derive(Debug, Clone)]
pub struct VisitorConnection {
    /// Where the visitor comes from.
    pub client: SocketAddr,
    /// Where the visitor has come to.
    pub server: SocketAddr,
    /// The region of the server; may be empty.
    pub region: String,
    /// When the connection arrived.
    pub started: DateTime<Utc>,
    /// What was agreed on, where TLS ends at the server.
    pub tls: Option<TlsFacts>,
    /// What else is known of the address of the visitor.
    pub lookup: AddressLookup,
}

impl VisitorConnection {
    /// What is known of the visitor's address.
    pub(super) fn address_facts(&self) -> Option<&AddressFacts> {
        self.lookup.look_up(self.client.ip())
    }
}

/// What a visitor and the server agreed on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// The number of the version, such as `1.3`.
    pub version: String,
    /// The registered name of the cipher suite, such as `TLS_AES_128_GCM_SHA256`.
    pub cipher_suite: String,
    /// The name that the visitor asked for.
    pub sni: String,
    /// The protocol agreed on by ALPN.
    pub alpn: String,
    /// Whether the session was resumed.
    pub resumed: bool,
    /// The certificate that the visitor has shown.
    pub client: CertificateFacts,
}

/// What the visitor has come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointFacts {
    /// Its identifier.
    pub id: Arc<str>,
    /// Its URL, with which its other parts agree; made of them where nobody has set it.
    pub url: OnceLock<String>,
    /// The host of its URL.
    pub host: String,
    /// The port of its URL.
    pub port: u16,
    /// `http`, `https`, `tcp` or `tls`.
    pub protocol: Cow<'static, str>,
}

impl EndpointFacts {
    /// Its URL; the usual port of a protocol is not in one that is made here.
    pub(super) fn url(&self) -> &str {
        let Self { protocol, host, port, .. } = self;
        self.url.get_or_init(|| match (protocol.as_ref(), port) {
            ("http", 80) | ("https", 443) => format!("{protocol}://{host}"),
            _ => format!("{protocol}://{host}:{port}"),
        })
    }
}

/// A request.
#[derive(Debug)]
pub struct Request {
    /// Method, target, version and headers.
    ///
    /// The host is that of the `Host` header; a target with a host of its own is fine as well.
    pub head: request::Parts,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The body.
    pub body: Content,
    /// The replacements in the body on its way, in order.
    pub replacements: Vec<BodyReplacement>,
    /// The headers behind the body, once they are known.
    pub trailers: HeaderMap,
    /// When the head arrived.
    pub received: DateTime<Utc>,
    /// When the body was complete, if it was kept.
    pub body_received: Option<DateTime<Utc>>,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    /// Status, version and headers.
    pub head: response::Parts,
    /// The body.
    pub body: Content,
    /// The replacements in the body on its way, in order.
    pub replacements: Vec<BodyReplacement>,
    /// The headers behind the body, once they are known.
    pub trailers: HeaderMap,
}

/// A body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Content {
    /// It is on its way, and nobody has looked at it.
    #[default]
    Passing,
    /// All of it.
    Full(Bytes),
    /// It is longer than an action wanted, and is on its way. Its beginning, as far as it has come.
    TooLong(Bytes),
}

/// Bytes that were carried so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// From the visitor.
    pub received: u64,
    /// To the visitor.
    pub sent: u64,
}

/// What rules look at, and what they change.
///
/// It lives from the first phase to the last one of a request, or of a connection that is bytes.
#[derive(Debug)]
pub struct Exchange {
    /// The connection.
    pub connection: Arc<VisitorConnection>,
    /// The endpoint.
    pub endpoint: Arc<EndpointFacts>,
    /// How much the connection has carried.
    pub carried: Carried,
    /// When the connection closed.
    pub ended: Option<DateTime<Utc>>,
    /// The length of the IPv6 prefix that is one visitor to rate limits.
    pub ipv6_prefix: u8,
    /// What the rules did.
    pub record: Record,
    request: Option<Box<Request>>,
    response: Option<Box<Response>>,
    pub(super) memo: Memo,
    pub(super) codings: Option<Vec<Coding>>,
    pub(super) attempts: Vec<Attempt>,
    compression: Option<ResponseCompression>,
    answer_code: Option<u16>,
    /// Fields for the response to somebody with a session; none where nobody has asked for one.
    pub login_headers: Option<HeaderMap>,
    /// What the request said to logins before rules have changed it.
    visit: Option<Box<LoginVisit>>,
}

/// A request or a response as rules have left it, on its way.
#[derive(Debug)]
pub struct TakenMessage<H> {
    /// The head.
    pub head: H,
    /// The body.
    pub body: Content,
    /// The replacements in the body on its way, in order.
    pub replacements: Vec<BodyReplacement>,
}

impl Request {
    /// A request whose body nobody has looked at.
    pub fn new(head: request::Parts, scheme: &'static str, received: DateTime<Utc>) -> Self {
        Self {
            head,
            scheme,
            body: Content::Passing,
            replacements: Vec::new(),
            trailers: HeaderMap::new(),
            received,
            body_received: None,
        }
    }
}

impl Response {
    /// A response whose body nobody has looked at.
    pub fn new(head: response::Parts) -> Self {
        let (body, replacements, trailers) = Default::default();
        Self { head, body, replacements, trailers }
    }
}

impl Exchange {
    /// What begins with a connection.
    pub fn new(connection: Arc<VisitorConnection>, endpoint: Arc<EndpointFacts>) -> Self {
        Self {
            connection,
            endpoint,
            carried: Carried::default(),
            ended: None,
            ipv6_prefix: DEFAULT_IPV6_PREFIX,
            record: Record::default(),
            request: None,
            response: None,
            memo: Memo::default(),
            codings: None,
            attempts: Vec::new(),
            compression: None,
            answer_code: None,
            login_headers: None,
            visit: None,
        }
    }

    /// What begins with a request.
    pub fn from_request(
        connection: Arc<VisitorConnection>,
        endpoint: Arc<EndpointFacts>,
        request: Request,
    ) -> Self {
        let mut exchange = Self::new(connection, endpoint);
        exchange.set_request(request);
        exchange
    }

    /// The network of the visitor, by which rate limits count: the prefix of an IPv6 address, such as
    /// `2001:db8:1:2::/64`, and an IPv4 address as it is.
    pub(super) fn client_network(&self) -> String {
        let address = self.connection.client.ip().to_canonical();
        let network = Cidr::from_prefix(address, self.ipv6_prefix).filter(|_| address.is_ipv6());
        network.map_or_else(|| address.to_string(), |network| network.to_string())
    }

    /// Other readings of the path of the request, with which no rule may have another result.
    pub(super) fn path_readings(&self) -> Option<PathReadings> {
        self.request()?.head.extensions.get::<PathReadings>().cloned()
    }

    /// Looks at the request with another reading of its path, if a URI can have such a path.
    pub(super) fn with_path_reading<T>(
        &mut self,
        path: &str,
        look: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let request = self.request_mut()?;
        let head = &mut request.head;
        let query = request_query(&head.uri, &head.extensions);
        let target = format!("{path}{}", query.map(|it| format!("?{it}")).unwrap_or_default());
        let (mut uri, raw) = read_target(&target)?;
        let mut extensions = std::mem::take(&mut head.extensions);
        let own_path = extensions.get::<RawPath>().cloned();
        own_path.map(|path| head.extensions.insert(path));
        raw.map(|raw| head.extensions.insert(raw));
        std::mem::swap(&mut head.uri, &mut uri);
        let seen = look(self);
        let request = self.request_mut()?;
        std::mem::swap(&mut request.head.uri, &mut uri);
        std::mem::swap(&mut request.head.extensions, &mut extensions);
        Some(seen)
    }

    /// The request.
    pub fn request(&self) -> Option<&Request> {
        self.request.as_deref()
    }

    /// The request, to be changed.
    pub fn request_mut(&mut self) -> Option<&mut Request> {
        self.memo.forget_request();
        self.request.as_deref_mut()
    }

    /// Gives the request, or gives it back.
    pub fn set_request(&mut self, request: Request) {
        self.memo.forget_request();
        self.request = Some(Box::new(request));
    }

    /// What the request said to those who ask who has sent it, before rules have changed it; none where it
    /// names no host, or nobody asks.
    pub(super) fn login_visit(&self) -> Option<&LoginVisit> {
        self.visit.as_deref()
    }

    /// Takes the cookies of logins out of the request, for those who check them, and notes what it says to
    /// them before any rule has changed it.
    pub(super) fn withhold_logins(&mut self) {
        let Some(request) = self.request_mut() else { return };
        let headers = &mut request.head.headers;
        if let Some(WithheldCookies(cookies)) = login::withhold_cookies(headers) {
            let withheld: &mut WithheldCookies = request.head.extensions.get_or_insert_default();
            withheld.0.extend(cookies);
        }
        if self.visit.is_none()
            && let Some(request) = self.request()
        {
            let head = &request.head;
            let target = (&head.method, &head.uri);
            let visit =
                LoginVisit::from_request(target, &head.headers, &head.extensions, request.scheme);
            self.visit = visit.map(Box::new);
        }
    }

    /// Takes the head and the body of the request to send them.
    ///
    /// A copy of the head stays here for the response phase if `keep` says so.
    pub fn take_request(&mut self, keep: bool) -> Option<TakenMessage<request::Parts>> {
        let kept = self.request.as_deref_mut()?;
        let (body, replacements) = (take(&mut kept.body), take(&mut kept.replacements));
        if keep {
            return Some(TakenMessage { head: kept.head.clone(), body, replacements });
        }
        self.memo.forget_request();
        Some(TakenMessage { head: self.request.take()?.head, body, replacements })
    }

    /// The response.
    pub fn response(&self) -> Option<&Response> {
        self.response.as_deref()
    }

    /// The response, to be changed.
    pub fn response_mut(&mut self) -> Option<&mut Response> {
        self.memo.forget_response();
        self.response.as_deref_mut()
    }

    /// Gives the response, or another one.
    pub fn set_response(&mut self, response: Response) {
        self.memo.forget_response();
        self.answer_code = None;
        self.response = Some(Box::new(response));
    }

    /// Makes the response of an answer that a rule or the server itself gave.
    pub fn set_local_response(&mut self, answer: LocalResponse) {
        let (mut head, ()) = http::Response::new(()).into_parts();
        head.status = answer.status;
        head.headers = answer.headers;
        let body = Content::Full(answer.body);
        self.set_response(Response { body, ..Response::new(head) });
        self.answer_code = answer.code;
    }

    /// The number of the error that the response is about, where the server speaks for itself.
    pub fn answer_code(&self) -> Option<u16> {
        self.answer_code
    }

    /// Takes the response to send it.
    pub fn take_response(&mut self) -> Option<TakenMessage<response::Parts>> {
        self.memo.forget_response();
        let Response { head, body, replacements, .. } = *self.response.take()?;
        Some(TakenMessage { head, body, replacements })
    }

    /// Takes the compression of the response, if a rule has ordered one.
    pub fn take_compression(&mut self) -> Option<ResponseCompression> {
        self.compression.take()
    }

    /// Says how the upstream took the request: a status of 500 or more is a failure, and so is no
    /// answer at all.
    ///
    /// Circuit breakers count it. A request that was never sent counts for nothing.
    pub fn record_upstream_outcome(&mut self, good: bool, now: std::time::Instant) {
        for attempt in self.attempts.drain(..) {
            attempt.report_outcome(good, now);
        }
    }

    /// Negotiates how the response is compressed, if a rule has ordered it.
    pub(super) fn end_response(&mut self) {
        let Some(codings) = self.codings.take() else { return };
        let request = self.request().map(|request| &request.head);
        self.compression = request
            .map(|head| ResponseCompression::from_request(&head.method, &head.headers, &codings));
    }

    /// The body that the rules of a phase look at.
    pub(super) fn body(&self, phase: Phase) -> Option<&Content> {
        match phase {
            Phase::Request => self.request().map(|it| &it.body),
            Phase::Response => self.response().map(|it| &it.body),
            Phase::Connect | Phase::Close => None,
        }
    }

    /// Returns true if the message of a phase has only a part of a body (RFC 9110, sections 14.5 and 15.3.7).
    pub(super) fn is_partial(&self, phase: Phase) -> bool {
        match phase {
            Phase::Response => {
                self.response().is_some_and(|it| it.head.status == StatusCode::PARTIAL_CONTENT)
            }
            _ => self.request().is_some_and(|it| it.head.headers.contains_key(CONTENT_RANGE)),
        }
    }

    /// Returns true if the message of a phase has no content whatever its head describes: a response to HEAD, or one of a
    /// status without content.
    pub(super) fn has_no_content(&self, phase: Phase) -> bool {
        let response = self.response().filter(|_| phase == Phase::Response);
        let to_head = self.request().is_some_and(|it| it.head.method == Method::HEAD);
        response.is_some_and(|it| to_head || !has_content(it.head.status))
    }

    /// Returns true if something is replaced in the body of a phase on its way.
    pub(super) fn is_replaced_on_way(&self, phase: Phase) -> bool {
        match phase {
            Phase::Request => self.request().is_some_and(|it| !it.replacements.is_empty()),
            _ => self.response().is_some_and(|it| !it.replacements.is_empty()),
        }
    }

    /// Changes the head of the message of a phase whose content is replaced on its way.
    pub(super) fn mark_replaced(&mut self, phase: Phase, replacement: BodyReplacement) {
        let Some(MessageParts { headers, replacements, .. }) = self.message_mut(phase) else {
            return;
        };
        change_representation(headers, RepresentationChange::Replaced { length: None });
        replacements.push(replacement);
    }

    /// Changes the head of a response to HEAD and of a 304 as if the content that it describes were replaced.
    pub(super) fn mark_absent_content_replaced(&mut self) {
        // A visitor that knows an entity tag has it from content in which nothing was replaced.
        let knows_tag =
            self.request().is_some_and(|it| it.head.headers.contains_key(IF_NONE_MATCH));
        let Some(Response { head, .. }) = self.response_mut() else { return };
        let describes_content = match head.status {
            StatusCode::NOT_MODIFIED => !knows_tag,
            status => has_content(status),
        };
        if describes_content {
            change_representation(
                &mut head.headers,
                RepresentationChange::Replaced { length: None },
            );
        }
    }

    /// Gives the message of a phase another body.
    pub(super) fn set_body(&mut self, phase: Phase, body: Bytes) {
        let change = RepresentationChange::Replaced { length: Some(body.len()) };
        let Some(MessageParts { headers, content, .. }) = self.message_mut(phase) else { return };
        change_representation(headers, change);
        *content = Content::Full(body);
    }

    fn message_mut(&mut self, phase: Phase) -> Option<MessageParts<'_>> {
        match phase {
            Phase::Request => self.request_mut().map(|it| MessageParts {
                headers: &mut it.head.headers,
                content: &mut it.body,
                replacements: &mut it.replacements,
            }),
            _ => self.response_mut().map(|it| MessageParts {
                headers: &mut it.head.headers,
                content: &mut it.body,
                replacements: &mut it.replacements,
            }),
        }
    }

    /// The headers that the rules of a phase change.
    pub(super) fn headers_mut(&mut self, phase: Phase) -> Option<&mut HeaderMap> {
        match phase {
            Phase::Request => self.request_mut().map(|it| &mut it.head.headers),
            Phase::Response => self.response_mut().map(|it| &mut it.head.headers),
            Phase::Connect | Phase::Close => None,
        }
    }
}

/// The parts of a message that change with its content.
struct MessageParts<'m> {
    headers: &'m mut HeaderMap,
    content: &'m mut Content,
    replacements: &'m mut Vec<BodyReplacement>,
}
