//! Heads of requests and answers: what must hold before they go on, and what does not go on.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, Entry, HOST, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, UPGRADE,
};
use http::uri::{self, Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};

use ginnel_base::address::{self, RequestHost, Scheme};
use ginnel_http1::{
    ConnectionOptions, HeadLimits, RawTarget, has_token, header_list_size, proper_upgrades,
    read_target, request_query, request_target, strip_hop_by_hop,
};
use ginnel_policy::path::{PathReadings, RawPath};

use crate::message::error_response::{self, ERROR_CODE, ErrorResponse};
use crate::message::forwarded::VisitorOrigin;

/// The longest path with its query, in bytes.
pub const MAX_PATH_BYTES: usize = 8 << 10;

/// Checks how large the head of a request of HTTP/2 is, whose cookies may come apart; others were
/// measured while they were read.
pub fn check_size<B>(request: &Request<B>, limits: HeadLimits) -> Result<(), ErrorResponse> {
    if request.version() != Version::HTTP_2 {
        return Ok(());
    }
    let headers = request.headers();
    let more_cookies = headers.get_all(COOKIE).iter().count().saturating_sub(1);
    if headers.len() - more_cookies > limits.fields {
        return Err(error_response::TOO_MANY_FIELDS);
    }
    match header_list_size(request.uri(), headers) > limits.bytes {
        true => Err(error_response::HEAD_TOO_LARGE),
        false => Ok(()),
    }
}

/// Brings a request into one form, with its host in `Host` and a path alone as its address.
pub fn normalize_request<B>(request: &mut Request<B>) -> Result<(), ErrorResponse> {
    if request.method() == Method::CONNECT {
        return Err(error_response::NO_CONNECT);
    }
    if request.version() == Version::HTTP_2 {
        if is_malformed(request.headers()) {
            return Err(error_response::BAD_REQUEST);
        }
        join_cookies(request.headers_mut());
    }
    let uri = request.uri();
    if uri.path_and_query().map_or(0, |path| path.as_str().len()) > MAX_PATH_BYTES {
        return Err(error_response::TOO_LONG);
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() || (host.is_none() && needs_host(request)) {
        return Err(error_response::BAD_REQUEST);
    }
    let Some(authority) = uri.authority() else {
        let is_fine = host.is_none_or(|host| is_host(host.as_bytes()))
            && (uri.path().starts_with('/') || is_asterisk_form(request));
        return if is_fine { Ok(()) } else { Err(error_response::BAD_REQUEST) };
    };
    // A URL of HTTP has a host (RFC 9110, section 4.2.1).
    if !has_http_scheme(uri)
        || authority.host().is_empty()
        || !is_host(authority.as_str().as_bytes())
        || host.is_some_and(|host| host_differs(host, uri.scheme(), authority))
    {
        return Err(error_response::BAD_REQUEST);
    }
    let host =
        HeaderValue::from_str(authority.as_str()).map_err(|_| error_response::BAD_REQUEST)?;
    let path = match has_asterisk_path(request) {
        true => PathAndQuery::from_static("*"),
        false => rooted_path(uri).ok_or(error_response::BAD_REQUEST)?,
    };
    *request.uri_mut() = Uri::from(path);
    request.headers_mut().insert(HOST, host);
    Ok(())
}

/// Path and query of a URI with a host, where no path stands for `/` (RFC 9110, section 4.2.3).
fn rooted_path(uri: &Uri) -> Option<PathAndQuery> {
    let sent = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    match sent.strip_prefix('/') {
        // Also of a path that is empty, and only written as one slash.
        Some("") => Some(PathAndQuery::from_static("/")),
        Some(_) => uri.path_and_query().cloned(),
        None => PathAndQuery::try_from(format!("/{sent}")).ok(),
    }
}

/// Returns true if a target with a host is in absolute form, with a scheme that this gateway serves. Authority form
/// is for CONNECT (RFC 9112, section 3.2.3), and other schemes name resources of other servers.
fn has_http_scheme(uri: &Uri) -> bool {
    uri.scheme().is_some_and(|scheme| [uri::Scheme::HTTP, uri::Scheme::HTTPS].contains(scheme))
}

/// Whether a request is about a server and none of its resources (RFC 9112, section 3.2.4).
pub fn is_asterisk_form<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.uri() == "*"
}

/// Returns true for the asterisk form of HTTP/2, whose requests name the host as well (RFC 9113, section 8.3.1).
fn has_asterisk_path<B>(request: &Request<B>) -> bool {
    let path = request.uri().path_and_query().map(PathAndQuery::as_str);
    request.version() == Version::HTTP_2 && request.method() == Method::OPTIONS && path == Some("*")
}

/// Whether HTTP/2 has carried what HTTP/1.1 would read in another way or in two (RFC 9113, section 8.2.1).
fn is_malformed(headers: &HeaderMap) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let has_blanks = |value: &HeaderValue| {
        is_blank(value.as_bytes().first()) || is_blank(value.as_bytes().last())
    };
    headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() || headers.values().any(has_blanks)
}

/// Puts cookies together that HTTP/2 lets arrive apart, and HTTP/1.1 does not.
fn join_cookies(headers: &mut HeaderMap) {
    let Entry::Occupied(mut entry) = headers.entry(COOKIE) else { return };
    let parts: Vec<_> = entry.iter().map(HeaderValue::as_bytes).collect();
    if parts.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&parts.join(&b"; "[..]))
    {
        entry.insert(whole);
    }
}

/// The path that a request goes on with at a virtual host.
pub struct SelectedPath {
    /// The path, if it is another one than that of the request.
    pub path: Option<String>,
    /// Other readings of the path with which no rule of the route may have another result.
    pub readings: PathReadings,
}

impl SelectedPath {
    /// Gives a request the path. The path that the request had is kept for rules.
    ///
    /// # Errors
    /// If the path cannot be written into a request.
    pub fn apply<B>(self, request: &mut Request<B>) -> Result<(), ErrorResponse> {
        let Self { path, readings } = self;
        if path.is_some() || !readings.0.is_empty() {
            let raw = raw_path(request).to_owned();
            request.extensions_mut().insert(RawPath(raw));
        }
        if let Some(path) = path {
            set_path(request, &path)?;
        }
        if readings.0.is_empty() {
            request.extensions_mut().remove::<PathReadings>();
        } else {
            request.extensions_mut().insert(readings);
        }
        Ok(())
    }
}

/// The path of a request as it came.
fn raw_path<B>(request: &Request<B>) -> &str {
    let target = request_target(request.uri(), request.extensions());
    target.split('?').next().unwrap_or_default()
}

fn set_path<B>(request: &mut Request<B>, path: &str) -> Result<(), ErrorResponse> {
    let query = request_query(request.uri(), request.extensions());
    let target = format!("{path}{}", query.map(|query| format!("?{query}")).unwrap_or_default());
    let (made, raw) = read_target(&target).ok_or(error_response::BAD_REQUEST)?;
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.path_and_query = made.into_parts().path_and_query;
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| error_response::BAD_REQUEST)?;
    match raw {
        Some(raw) => drop(request.extensions_mut().insert(raw)),
        None => drop(request.extensions_mut().remove::<RawTarget>()),
    }
    Ok(())
}

fn needs_host<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11
        || (request.version() == Version::HTTP_2 && request.uri().authority().is_none())
}

/// Returns true if `Host` and the target of a request lead to different places; a written default port and a
/// trailing dot do not matter.
fn host_differs(host: &HeaderValue, scheme: Option<&uri::Scheme>, authority: &Authority) -> bool {
    if host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) {
        return false;
    }
    let is_secure = scheme == Some(&uri::Scheme::HTTPS);
    let scheme = if is_secure { Scheme::Https } else { Scheme::Http };
    let parsed = |text: &str| address::Authority::with_scheme(scheme, text).ok();
    let host = host.to_str().ok().and_then(parsed);
    host.is_none() || host != parsed(authority.as_str())
}

/// Returns true if a value is a host with or without a port, or empty.
pub fn is_host(value: &[u8]) -> bool {
    str::from_utf8(value).is_ok_and(|value| RequestHost::parse(value).is_ok())
}

/// Readies a request for its upstream, with who asks in its headers, unless another node adds that;
/// true when it asks for another protocol.
pub fn prepare_request<B>(
    request: &mut Request<B>,
    origin: Option<&VisitorOrigin>,
) -> Result<bool, ErrorResponse> {
    let version = request.version();
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    let upgrade = requested_upgrade(headers).filter(|_| version == Version::HTTP_11);
    let trailers = has_token(headers, TE, "trailers");
    strip_hop_by_hop(headers);
    headers.remove(PROXY_AUTHORIZATION);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    let upgrades = upgrade.is_some();
    if let Some(protocol) = upgrade {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    if let Some(origin) = origin {
        origin.add_to(headers)?;
    }
    Ok(upgrades)
}

/// Readies the head of an answer for the visitor; an upgrade keeps what belongs to it, and another node
/// speaks for the service.
pub fn prepare_response(headers: &mut HeaderMap, upgraded: bool, is_node: bool) {
    let protocol = headers.get(UPGRADE).filter(|_| upgraded).cloned();
    strip_hop_by_hop(headers);
    headers.remove(PROXY_AUTHENTICATE);
    if !is_node {
        headers.remove(ERROR_CODE);
    }
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// True when an agent says that it cannot reach what it forwards to.
pub fn is_unreachable_response(headers: &HeaderMap) -> bool {
    headers.get(ERROR_CODE).is_some_and(|code| code.as_bytes().ends_with(b"8012"))
}

/// True when the visitor waits for a word before it sends the body.
pub fn expects_continue(headers: &HeaderMap) -> bool {
    headers
        .get(EXPECT)
        .is_some_and(|expect| expect.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// The host and the port of a request.
pub fn request_host(headers: &HeaderMap) -> Option<RequestHost<'_>> {
    headers.get(HOST)?.to_str().ok().and_then(|host| RequestHost::parse(host).ok())
}

/// The protocols that a request asks for and that an upstream may be asked for, as one list.
fn requested_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    if !ConnectionOptions::from_headers(headers).upgrade {
        return None;
    }
    let protocols: Vec<&[u8]> = proper_upgrades(headers).collect();
    let list = (!protocols.is_empty()).then(|| protocols.join(&b", "[..]))?;
    HeaderValue::from_bytes(&list).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn origin() -> VisitorOrigin {
        VisitorOrigin::new("192.0.2.7".parse().unwrap(), "https")
    }

    #[test]
    fn a_target_has_a_path() {
        let path_of = |method: Method, uri: &str| {
            let mut request = request(&[("host", "a.test")]);
            *request.method_mut() = method;
            *request.uri_mut() = uri.parse().unwrap();
            normalize_request(&mut request).map(|()| request.uri().to_string())
        };

        for (uri, path) in [
            ("http://a.test", "/"),
            ("http://a.test?x", "/?x"),
            ("http://a.test?/y", "/?/y"),
            ("http://a.test#", "/"),
            ("http://a.test#/x", "/"),
            ("http://a.test/x#y", "/x"),
        ] {
            assert_eq!(path_of(Method::GET, uri).as_deref(), Ok(path), "{uri}");
        }
        for uri in ["ftp://a.test/", "ws://a.test/", "a.test:443", "a.test"] {
            assert_eq!(path_of(Method::GET, uri), Err(error_response::BAD_REQUEST), "{uri}");
        }
        assert_eq!(path_of(Method::OPTIONS, "*").as_deref(), Ok("*"));
        assert_eq!(path_of(Method::GET, "*"), Err(error_response::BAD_REQUEST));
    }

    #[test]
    fn what_http_2_may_not_carry_does_not_go_on() {
        let admitted = |headers: &[(&str, &str)]| {
            let mut request = request(headers);
            *request.version_mut() = Version::HTTP_2;
            normalize_request(&mut request)
        };

        assert_eq!(admitted(&[("host", "a"), ("content-length", "3"), ("x", "a b")]), Ok(()));
        for headers in [
            [("host", "a"), ("content-length", "3"), ("content-length", "3")],
            [("host", "a"), ("x", " a"), ("y", "b")],
            [("host", "a"), ("x", "a"), ("y", "b\t")],
        ] {
            assert_eq!(admitted(&headers), Err(error_response::BAD_REQUEST), "{headers:?}");
        }
    }

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let builder = Request::get("/").version(Version::HTTP_11);
        headers.iter().fold(builder, |it, (name, value)| it.header(*name, *value)).body(()).unwrap()
    }

    #[test]
    fn what_concerns_one_connection_does_not_go_on() {
        let mut request = request(&[
            ("host", "a.test"),
            ("connection", "close, x-mine, content-length"),
            ("x-mine", "1"),
            ("content-length", "3"),
            ("keep-alive", "5"),
            ("te", "gzip, trailers"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "Basic x"),
        ]);

        let upgrades = prepare_request(&mut request, Some(&origin())).unwrap();

        let mut names: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert!(!upgrades);
        assert_eq!(
            names,
            [
                "cdn-loop",
                "content-length",
                "host",
                "te",
                "x-forwarded-for",
                "x-forwarded-host",
                "x-forwarded-proto"
            ]
        );
        assert_eq!(request.headers()["te"], "trailers");
    }

    #[test]
    fn an_upgrade_goes_on() {
        let mut request = request(&[
            ("host", "a"),
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ]);

        assert!(prepare_request(&mut request, Some(&origin())).unwrap());

        assert_eq!(request.headers()["connection"], "upgrade");
        assert_eq!(request.headers()["upgrade"], "websocket");
    }

    #[test]
    fn no_upgrade_leads_to_http_2() {
        let asked = |lines: &[&'static str]| {
            let mut request = request(&[("host", "a"), ("connection", "upgrade, http2-settings")]);
            for line in lines {
                request.headers_mut().append(UPGRADE, HeaderValue::from_static(line));
            }
            request.headers_mut().insert("http2-settings", HeaderValue::from_static("AAM"));
            let upgrades = prepare_request(&mut request, Some(&origin())).unwrap();
            assert_eq!(upgrades, request.headers().contains_key(CONNECTION), "{lines:?}");
            assert!(!request.headers().contains_key("http2-settings"));
            let asked = request.headers().get(UPGRADE);
            asked.map(|it| it.to_str().unwrap().to_owned()).unwrap_or_default()
        };

        for (lines, expected) in [
            (&["h2c"][..], ""),
            (&["H2C"], ""),
            (&["\th2c "], ""),
            (&["x, h2c"], "x"),
            (&["websocket, h2c"], "websocket"),
            (&["x", "h2c"], "x"),
            (&["h2c", "x, websocket"], "x, websocket"),
            (&["x h2c"], ""),
        ] {
            assert_eq!(asked(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn no_connection_header_removes_what_proxies_say() {
        let mut request = request(&[
            ("host", "a.test"),
            ("connection", "x-forwarded-for, cdn-loop, x_forwarded_for"),
            ("x-forwarded-for", "198.51.100.1"),
            ("cdn-loop", "other.test, ginnel"),
        ]);

        prepare_request(&mut request, Some(&origin())).unwrap();

        let headers = request.headers();
        assert_eq!(headers["x-forwarded-for"], "198.51.100.1, 192.0.2.7");
        assert_eq!(headers["cdn-loop"], "other.test, ginnel, ginnel");
    }

    #[test]
    fn a_request_names_one_host() {
        let admitted = |uri: &str, headers: &[(&str, &str)]| {
            let mut request = request(headers);
            *request.uri_mut() = uri.parse().unwrap();
            normalize_request(&mut request).map(|()| {
                (request.uri().to_string(), request.headers()["host"].to_str().unwrap().to_owned())
            })
        };

        let whole = admitted("http://a.test:80/x?y", &[("host", "A.test:80")]);
        assert_eq!(whole, Ok(("/x?y".into(), "a.test:80".into())));
        assert_eq!(admitted("/x", &[]), Err(error_response::BAD_REQUEST));
        assert_eq!(
            admitted("/", &[("host", "a"), ("host", "a")]),
            Err(error_response::BAD_REQUEST)
        );
        assert_eq!(admitted("http://a/", &[("host", "b")]), Err(error_response::BAD_REQUEST));
        for uri in ["http://u@a/", "a.test", "a.test:80", "http://:80/"] {
            let host = uri.trim_start_matches("http://").trim_end_matches('/');
            assert_eq!(admitted(uri, &[("host", host)]), Err(error_response::BAD_REQUEST), "{uri}");
        }
        for host in [
            "a/b", "a:evil", "a:-1", "a:99999", "a:1:2", "a..b", ".a", "a..", "[::1", "[x]", "a]",
            "[::1]a",
        ] {
            assert_eq!(
                admitted("/", &[("host", host)]),
                Err(error_response::BAD_REQUEST),
                "{host}"
            );
        }
        for host in ["", "a", "a.", "A_b-c.test:80", "a:", "[2001:db8::1]", "[::1]:443"] {
            assert_eq!(admitted("/", &[("host", host)]), Ok(("/".into(), host.into())), "{host}");
        }
        assert_eq!(admitted(&format!("/{}", "x".repeat(8192)), &[]), Err(error_response::TOO_LONG));
    }
}
