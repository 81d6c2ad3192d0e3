//! The names of cookies, and how they are taken out of requests.

use std::fmt;

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

/// What the names of all cookies of logins hold, so that no upstream gets one.
const MARKER: &str = "ginnel-login-";

/// Over how many cookies a session may be spread.
pub const MAX_COOKIE_CHUNKS: usize = 4;

/// What a cookie is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieKind<'a> {
    /// A part of a session.
    Session {
        /// Which part.
        chunk: usize,
    },
    /// A login on its way, by its state.
    Login {
        /// The state.
        state: &'a str,
    },
}

/// The name of a cookie. The prefixes of browsers see to it that nobody but this host sets it: `__Host-`
/// for this host alone, `__Secure-` where a domain shares it, none without TLS.
pub fn cookie_name(
    prefix: &str,
    tag: &str,
    kind: CookieKind<'_>,
    (is_secure, is_shared): (bool, bool),
) -> String {
    let guard = match (is_secure, is_shared) {
        (true, false) => "__Host-",
        (true, true) => "__Secure-",
        (false, _) => "",
    };
    match kind {
        CookieKind::Session { chunk } => format!("{guard}{prefix}{MARKER}{tag}-s{chunk}"),
        CookieKind::Login { state } => format!("{guard}{prefix}{MARKER}{tag}-l{state}"),
    }
}

/// The cookies of logins that a request carried, in its extensions: they are for those who check them,
/// and neither for expressions nor for upstreams.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WithheldCookies(pub Vec<(String, String)>);

impl fmt::Debug for WithheldCookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl WithheldCookies {
    /// The value of a cookie; the first one where there are several.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Whether the value of a `Cookie` field holds what [`withhold_cookies`] takes out.
pub fn has_login_cookie(value: &[u8]) -> bool {
    value.windows(MARKER.len()).any(|part| part.eq_ignore_ascii_case(MARKER.as_bytes()))
}

/// Takes the cookies of logins out of a request.
pub fn withhold_cookies(headers: &mut HeaderMap) -> Option<WithheldCookies> {
    if !headers.get_all(COOKIE).iter().any(|value| has_login_cookie(value.as_bytes())) {
        return None;
    }
    let mut withheld = WithheldCookies::default();
    let fields: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    headers.remove(COOKIE);
    for field in fields {
        let mut kept: Vec<&[u8]> = Vec::new();
        for pair in field.as_bytes().split(|byte| *byte == b';') {
            let pair = pair.trim_ascii();
            if !has_login_cookie(pair) {
                kept.push(pair);
                continue;
            }
            let text = std::str::from_utf8(pair).unwrap_or_default();
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            withheld.0.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        kept.retain(|pair| !pair.is_empty());
        if let Ok(rest) = HeaderValue::from_bytes(&kept.join(&b"; "[..]))
            && !rest.is_empty()
        {
            headers.append(COOKIE, rest);
        }
    }
    Some(withheld)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (COOKIE, value.parse().unwrap())).collect()
    }

    #[test]
    fn cookies_of_logins_are_taken_out_and_others_stay() {
        let mut headers =
            headers(&["a=1; __Host-ginnel-login-x-s0=secret;b=2", "__Secure-Ginnel-Login-y=z"]);

        let withheld = withhold_cookies(&mut headers).unwrap();

        assert_eq!(headers.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2"]);
        assert_eq!(withheld.get("__Host-ginnel-login-x-s0"), Some("secret"));
        assert_eq!(withheld.get("__Secure-Ginnel-Login-y"), Some("z"));
    }

    #[test]
    fn a_request_without_such_a_cookie_stays_as_it_is() {
        let mut headers = headers(&["a=1;b=2"]);

        assert_eq!(withhold_cookies(&mut headers), None);
        assert_eq!(headers[COOKIE], "a=1;b=2");
    }

    #[test]
    fn what_is_no_pair_does_not_pass_either() {
        let mut headers = headers(&["ginnel-login-x; a=\"b; ginnel-login-y=1\""]);

        withhold_cookies(&mut headers).unwrap();

        assert!(!has_login_cookie(headers[COOKIE].as_bytes()));
    }
}
