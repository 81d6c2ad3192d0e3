//! What a request says to those who ask who has sent it.

use std::fmt;

use http::header::{ACCEPT, HOST, UPGRADE};
use http::{Extensions, HeaderMap, Method, Uri};

use super::super::authority::{canonicalize_authority, split_authority};
use super::browser::LoginBrowser;
use super::config::{LoginConfig, is_loopback};
use super::cookies::{CookieKind, WithheldCookies, cookie_name};

/// Where visitors log in on purpose.
pub const LOGIN_PATH: &str = "/ngrok/login";
/// Where they log out.
pub const LOGOUT_PATH: &str = "/ngrok/logout";
/// Where the issuer sends them back to.
pub const CALLBACK_PATH: &str = "/ngrok/callback";

/// What a request wants of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitKind {
    /// To log in, whatever there is.
    Login,
    /// To log out.
    Logout,
    /// To end a login that has begun.
    Callback,
    /// To show a page in a browser.
    Navigation,
    /// Anything else: it cannot be sent to an issuer.
    Call,
}

/// What a request says to those who ask who has sent it.
#[derive(Clone)]
pub struct LoginVisit {
    /// What it wants.
    pub kind: VisitKind,
    /// The scheme and the host, with its port unless it is the usual one: what browsers call the origin.
    pub origin: String,
    /// The host without its port, in lower case.
    pub host: String,
    /// True if the visitor came over TLS, to this service or to a trusted proxy.
    pub is_secure: bool,
    /// The path with its query.
    pub target: String,
    /// The query.
    pub query: String,
    /// The cookies of logins.
    pub cookies: WithheldCookies,
    /// The browser that a login ends in; none for other requests.
    pub browser: Option<LoginBrowser>,
}

impl fmt::Debug for LoginVisit {
    /// Codes of issuers are in queries.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginVisit")
            .field("kind", &self.kind)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// Whether a path belongs to logins, and to no upstream.
pub fn is_login_path(path: &str) -> bool {
    [LOGIN_PATH, LOGOUT_PATH, CALLBACK_PATH].contains(&path)
}

impl LoginVisit {
    /// Reads the head of a request whose visitor used `scheme`, `http` or `https`, if it names a host.
    pub fn from_request(
        (method, uri): (&Method, &Uri),
        headers: &HeaderMap,
        extensions: &Extensions,
        scheme: &str,
    ) -> Option<Self> {
        let authority = match uri.authority() {
            Some(authority) => authority.as_str(),
            None => headers.get(HOST)?.to_str().ok()?,
        };
        let is_secure = scheme == "https";
        let authority = canonicalize_authority(authority, scheme);
        let kind = classify_visit(uri.path(), method, headers);
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Some(Self {
            kind,
            origin: format!("{scheme}://{authority}"),
            host: split_authority(&authority).0.to_owned(),
            is_secure,
            target: target.to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
            cookies: extensions.get().cloned().unwrap_or_default(),
            browser: (kind == VisitKind::Callback).then(|| LoginBrowser::from_headers(headers)),
        })
    }

    /// Whether it is a step of a login, which no upstream has a part in.
    pub fn is_step(&self) -> bool {
        !matches!(self.kind, VisitKind::Navigation | VisitKind::Call)
    }

    /// Whether cookies of this visitor are kept from others on the way.
    pub fn may_have_cookies(&self) -> bool {
        self.is_secure || is_loopback(&self.host)
    }

    /// A parameter of the query; none where it is there twice.
    pub fn query_parameter(&self, name: &str) -> Option<String> {
        let mut values = url::form_urlencoded::parse(self.query.as_bytes())
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.into_owned());
        match (values.next(), values.next()) {
            (Some(value), None) => Some(value),
            _ => None,
        }
    }

    /// What the session of a configuration belongs to: the host, or the domain that shares it.
    pub fn session_site<'v>(&'v self, config: &'v LoginConfig) -> &'v str {
        config.cookie_domain.as_deref().unwrap_or(&self.origin)
    }

    /// Whether the request belongs to a login of this configuration, wherever its rule would apply.
    pub(crate) fn is_for(&self, config: &LoginConfig) -> bool {
        match self.kind {
            VisitKind::Login | VisitKind::Logout => {
                self.query_parameter("auth_id").unwrap_or_default() == config.auth_id
            }
            VisitKind::Callback => {
                let name =
                    self.query_parameter("state").map(|state| self.login_cookie(config, &state));
                name.is_some_and(|name| self.cookies.get(&name).is_some())
            }
            VisitKind::Navigation | VisitKind::Call => false,
        }
    }

    /// The name of the cookie of a login on its way.
    pub fn login_cookie(&self, config: &LoginConfig, state: &str) -> String {
        let kind = CookieKind::Login { state };
        let tag = config.cookie_tag(self.session_site(config));
        cookie_name(&config.cookie_prefix, &tag, kind, (self.is_secure, false))
    }

    /// The name of the cookie with a part of a session.
    pub fn session_cookie(&self, config: &LoginConfig, chunk: usize) -> String {
        let kind = CookieKind::Session { chunk };
        let tag = config.cookie_tag(self.session_site(config));
        let is_shared = config.cookie_domain.is_some();
        cookie_name(&config.cookie_prefix, &tag, kind, (self.is_secure, is_shared))
    }
}

fn classify_visit(path: &str, method: &Method, headers: &HeaderMap) -> VisitKind {
    match path {
        LOGIN_PATH => VisitKind::Login,
        LOGOUT_PATH => VisitKind::Logout,
        CALLBACK_PATH => VisitKind::Callback,
        _ if is_navigation(method, headers) => VisitKind::Navigation,
        _ => VisitKind::Call,
    }
}

/// Whether somebody looks at the response who can go elsewhere.
fn is_navigation(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if ![Method::GET, Method::HEAD].contains(method) || headers.contains_key(UPGRADE) {
        return false;
    }
    match text("sec-fetch-mode") {
        Some(mode) => mode == "navigate",
        None if text("x-requested-with") == Some("XMLHttpRequest") => false,
        None => text(ACCEPT.as_str()).is_some_and(|accept| {
            accept.split(',').any(|kind| {
                let kind = kind.split(';').next().unwrap_or_default().trim();
                ["text/html", "application/xhtml+xml"].contains(&kind)
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn scripts_are_told_from_those_who_look_at_pages() {
        let accept = ("accept", "text/html, */*");
        for (headers, expected) in [
            (vec![accept], true),
            (vec![], false),
            (vec![("accept", "application/json")], false),
            (vec![accept, ("x-requested-with", "XMLHttpRequest")], false),
            // The app that a browser view is in.
            (vec![accept, ("x-requested-with", "com.example.app")], true),
            (vec![accept, ("sec-fetch-mode", "cors")], false),
            (vec![("sec-fetch-mode", "navigate")], true),
            (vec![accept, ("upgrade", "websocket")], false),
        ] {
            let mut request = Request::get("/");
            for (name, value) in &headers {
                request = request.header(*name, *value);
            }
            let (head, ()) = request.body(()).unwrap().into_parts();

            assert_eq!(is_navigation(&head.method, &head.headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn an_origin_has_one_form_and_what_was_wanted_stays_as_it_is() {
        for (host, scheme, origin, name) in [
            ("app.test", "https", "https://app.test", "app.test"),
            ("App.Test.:443", "https", "https://app.test", "app.test"),
            ("app.test:8443", "https", "https://app.test:8443", "app.test"),
            ("app.test:80", "http", "http://app.test", "app.test"),
            ("app.test:443", "https", "https://app.test", "app.test"),
            ("app.test:80", "https", "https://app.test:80", "app.test"),
            ("[::1]:8080", "http", "http://[::1]:8080", "[::1]"),
        ] {
            let request = Request::get("/A%2fb/../c?x=%20&Y").header(HOST, host);
            // The gateway has read which scheme counts. The field itself decides nothing.
            let request = request.header("x-forwarded-proto", "https, http");
            let (head, ()) = request.body(()).unwrap().into_parts();

            let target = (&head.method, &head.uri);
            let visit =
                LoginVisit::from_request(target, &head.headers, &head.extensions, scheme).unwrap();

            assert_eq!((visit.origin.as_str(), visit.host.as_str()), (origin, name), "{host}");
            assert_eq!(visit.target, "/A%2fb/../c?x=%20&Y");
        }
    }
}
