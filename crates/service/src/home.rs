//! The page that a browser shows at the address of the management API.

use axum::body::Body;
use axum::response::Response;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

use super::address::Base;

const PAGE: &str = include_str!("home.html");
/// What the page says of the console, where there is one.
const CONSOLE: &str = "<dt><a href=\"console/\">Console</a></dt>\
    <dd>Traffic, agents, edges, policies and keys, for people with an API key.</dd>\n";
const DOCUMENTATION: &str = "https://github.com/ginnel/ginnel/tree/main/docs";

/// Nothing is fetched or run; the one style sheet stands in the page.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::VARY, "Accept, Authorization"),
];

/// Whether a request comes from somebody who looks: a page is accepted by name, and there is no key.
pub(super) fn is_for(headers: &HeaderMap) -> bool {
    let is_page = |part: &str| {
        let media_type = part.split(';').next().unwrap_or_default();
        media_type.trim().eq_ignore_ascii_case("text/html")
    };
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    !headers.contains_key(header::AUTHORIZATION)
        && accepts.flat_map(|value| value.split(',')).any(is_page)
}

/// The page.
pub(super) fn page_response(base: &Base, has_console: bool) -> Response {
    let text = PAGE
        .replace("{console}", if has_console { CONSOLE } else { "" })
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{url}", &escape_html(base.as_str()))
        .replace("{docs}", DOCUMENTATION);
    let mut response = Response::new(Body::from(text));
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let value = |text| HeaderValue::from_static(text);
        pairs.iter().map(|(name, text)| (name.clone(), value(text))).collect()
    }

    #[test]
    fn only_who_accepts_a_page_and_has_no_key_gets_one() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        let key = (header::AUTHORIZATION, "Bearer x");

        assert!(is_for(&headers(&[(header::ACCEPT, browser)])));
        assert!(!is_for(&headers(&[(header::ACCEPT, browser), key])));
        assert!(!is_for(&headers(&[(header::ACCEPT, "*/*")])));
        assert!(!is_for(&headers(&[(header::ACCEPT, "application/json")])));
        assert!(!is_for(&headers(&[])));
    }
}
