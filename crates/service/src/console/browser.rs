//! What a browser says of a request: from which site it comes, and with which cookie.

use http::header::{COOKIE, HOST, ORIGIN};
use http::{HeaderName, HeaderValue, Method, request};

use ginnel_http1::cookie_pairs;

use super::sessions::{SessionDigest, SessionSecrets};
use crate::address::Base;
use crate::{Refusal, Result};

/// Where the page sends the secret that it keeps.
pub(super) const TOKEN_HEADER: HeaderName = HeaderName::from_static("console-token");
/// Where the page says that it asks without its user.
pub(super) const BACKGROUND_HEADER: HeaderName = HeaderName::from_static("console-background");
/// Where browsers say what a page of another site has to do with a request.
const SITE_HEADER: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what a page of another origin has sent. Another subdomain or port is another origin, for it may
/// belong to somebody's tunnel.
pub(super) fn check_origin(head: &request::Parts, base: &Base) -> Result<()> {
    let site = head.headers.get(SITE_HEADER).map(HeaderValue::as_bytes);
    let is_own_site = site.is_none_or(|site| site == b"same-origin" || site == b"none");
    let origin = head.headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let is_own_origin = origin.is_none_or(|origin| is_own(origin, request_host(head), base));
    if is_own_site && is_own_origin { Ok(()) } else { Err(Refusal::cross_site()) }
}

/// Whether an origin is that of the request, or that of the public address: proxies may name another host.
fn is_own(origin: &str, host: &str, base: &Base) -> bool {
    let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    own.is_some_and(|own| !host.is_empty() && own.eq_ignore_ascii_case(host))
        || origin_of(base.as_str()).is_some_and(|own| own.eq_ignore_ascii_case(origin))
}

/// Scheme and authority of an address.
fn origin_of(address: &str) -> Option<&str> {
    let (scheme, rest) = address.split_once("://")?;
    let authority = rest.split('/').next().unwrap_or_default();
    address.get(..scheme.len() + "://".len() + authority.len())
}

/// The host that a request names.
fn request_host(head: &request::Parts) -> &str {
    let named = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    head.uri.authority().map(|authority| authority.as_str()).or(named).unwrap_or_default()
}

/// Whether a page asks without its user, such as to follow what changes.
pub(super) fn is_in_background(head: &request::Parts) -> bool {
    head.method == Method::GET && head.headers.contains_key(BACKGROUND_HEADER)
}

/// What may find the session of a request. There may be several cookies of the name: a tunnel below the same
/// domain can set one, and without the token none of them finds anything.
pub(super) fn sessions_of(head: &request::Parts) -> impl Iterator<Item = SessionDigest> {
    let token = head.headers.get(TOKEN_HEADER).and_then(|token| token.to_str().ok());
    let name = cookie_name(head);
    let lines = head.headers.get_all(COOKIE).iter();
    let pairs = lines.flat_map(|line| cookie_pairs(line.as_bytes()));
    let values = pairs.filter(move |(known, _)| *known == name.as_bytes());
    let values = values.filter_map(|(_, value)| str::from_utf8(value).ok());
    values.filter_map(move |cookie| Some(SessionSecrets::digest(cookie, token?)))
}

/// Services at several ports of a host have cookies of their own.
fn cookie_name(head: &request::Parts) -> String {
    let port = request_host(head).rsplit_once(':').map(|(_, port)| port);
    match port.filter(|port| port.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(port) => format!("ginnel_console_{port}"),
        None => "ginnel_console".to_owned(),
    }
}

/// The cookie of a new session.
pub(super) fn new_cookie(head: &request::Parts, base: &Base, secret: &str) -> String {
    format!("{}={secret}; {}", cookie_name(head), cookie_attributes(head, base))
}

/// The cookie that removes the one of a session.
pub(super) fn removed_cookie(head: &request::Parts, base: &Base) -> String {
    format!("{}=; Max-Age=0; {}", cookie_name(head), cookie_attributes(head, base))
}

fn cookie_attributes(head: &request::Parts, base: &Base) -> String {
    let origin = head.headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let is_tls = origin.unwrap_or(base.as_str()).starts_with("https://");
    let path = origin_of(base.as_str()).and_then(|own| base.as_str().get(own.len()..));
    let (path, secure) = (path.unwrap_or_default(), if is_tls { "; Secure" } else { "" });
    format!("Path={path}/console/; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(fields: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::get("/console/api/").header("host", "tunnels.test:8443");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn base() -> Base {
        Base::new("https://api.example.com/tunnels/")
    }

    #[test]
    fn pages_of_other_origins_are_refused_and_those_of_the_service_are_not() {
        for fields in [
            &[][..],
            &[("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
            &[("origin", "http://tunnels.test:8443")],
            &[("origin", "https://Tunnels.test:8443"), ("sec-fetch-site", "same-origin")],
            &[("origin", "https://api.example.com")],
        ] {
            assert!(check_origin(&head(fields), &base()).is_ok(), "{fields:?}");
        }
        for fields in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "null")],
            &[("origin", "http://tunnels.test")],
            &[("origin", "http://evil.tunnels.test:8443")],
            &[("origin", "https://api.example.com.evil.test")],
            &[("origin", "http://api.example.com")],
            &[("origin", "http://tunnels.test:8443"), ("sec-fetch-site", "cross-site")],
        ] {
            assert!(check_origin(&head(fields), &base()).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn a_session_is_named_by_a_cookie_and_the_token_of_the_page() {
        let own = ("cookie", "a=b; ginnel_console_8443=one");
        let token = ("console-token", "two");
        let expected = SessionSecrets::digest("one", "two");

        let named = |fields: &[_]| sessions_of(&head(fields)).collect::<Vec<_>>();
        assert_eq!(named(&[own, token]), [expected]);
        // One that a tunnel has set keeps nobody out.
        let other = SessionSecrets::digest("other", "two");
        let both = [("cookie", "ginnel_console_8443=other"), own, token];
        assert_eq!(named(&both), [other, expected]);
        for fields in [&[own][..], &[token], &[("cookie", "ginnel_console=one"), token]] {
            assert!(named(fields).is_empty(), "{fields:?}");
        }
    }

    #[test]
    fn the_cookie_counts_for_the_console_alone() {
        let https = head(&[("origin", "https://api.example.com")]);
        let http = head(&[("origin", "http://tunnels.test:8443")]);

        assert_eq!(
            new_cookie(&https, &base(), "s"),
            "ginnel_console_8443=s; Path=/tunnels/console/; HttpOnly; SameSite=Strict; Secure"
        );
        assert_eq!(
            removed_cookie(&http, &Base::new("http://tunnels.test:8443")),
            "ginnel_console_8443=; Max-Age=0; Path=/console/; HttpOnly; SameSite=Strict"
        );
        let plain = head(&[]);
        assert!(new_cookie(&plain, &base(), "s").ends_with("; Secure"));
    }
}
