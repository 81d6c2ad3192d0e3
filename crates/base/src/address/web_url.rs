//! URLs of the web.

use std::fmt;

use url::Url;

use super::host_name::has_blank;
use super::{AddressError, Authority, Host, Scheme};

/// A URL of `http` or `https`.
///
/// The host and the port are read by [`Authority`] before the URL parser sees the text. The parser then normalizes
/// the path and the query. If it finds another host or port, the text is not a `WebUrl`.
#[derive(Debug, Clone)]
pub struct WebUrl {
    written: String,
    authority: Authority,
    url: Url,
}

impl WebUrl {
    /// Parses a URL without a user and a password.
    ///
    /// # Errors
    /// If the text is not such a URL.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let parsed = Self::parse_with_login(text)?;
        if parsed.has_login() { Err(AddressError::Login) } else { Ok(parsed) }
    }

    /// Parses a URL that may have a user and a password.
    ///
    /// # Errors
    /// If the text is not such a URL.
    pub fn parse_with_login(text: &str) -> Result<Self, AddressError> {
        const SCHEMES: &str = "http:// or https://";
        reject_blanks(text)?;
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme(SCHEMES))?;
        let scheme = match Scheme::from_name(scheme) {
            Some(scheme @ (Scheme::Http | Scheme::Https)) => scheme,
            _ => return Err(AddressError::Scheme(SCHEMES)),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (place, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let (login, place) = split_login(place)?;
        let authority = Authority::with_scheme(scheme, place)?;
        let login = login.map(|login| format!("{login}@")).unwrap_or_default();
        let plain = format!("{}://{login}{}{rest}", scheme.name(), authority.host_header());
        // The parser rejects `xn--` labels that are not valid, which host names may contain.
        let url = Url::parse(&plain).map_err(|_| AddressError::International)?;
        let host = url.host_str().and_then(|host| Host::parse(host).ok());
        if host.as_ref() != Some(&authority.host)
            || url.port_or_known_default() != Some(authority.port)
        {
            return Err(AddressError::International);
        }
        Ok(Self { written: text.to_owned(), authority, url })
    }

    /// Resolves a reference, such as the value of a `Location` header, against this URL (RFC 3986, section 5.2).
    /// Servers send references with spaces, which are percent-encoded here.
    ///
    /// # Errors
    /// If the reference leads to a host that has more than one reading, or is not a URL of `http` or `https`.
    pub fn join(&self, reference: &str) -> Result<Self, AddressError> {
        let reference = reference.trim_matches(' ').replace(' ', "%20");
        reject_blanks(&reference)?;
        if reference.starts_with("//") {
            let scheme = self.authority.scheme.name();
            return Self::parse_with_login(&format!("{scheme}:{reference}"));
        }
        let first_segment = reference.split(['/', '?', '#']).next().unwrap_or_default();
        if first_segment.contains(':') {
            return Self::parse_with_login(&reference);
        }
        let url = self.url.join(&reference).map_err(|_| AddressError::International)?;
        Self::parse_with_login(url.as_str())
    }

    /// The text that was parsed.
    pub fn as_written(&self) -> &str {
        &self.written
    }

    /// The normal form.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The scheme, the host and the port.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.authority.host
    }

    /// The port, or the default port of the scheme.
    pub fn port(&self) -> u16 {
        self.authority.port
    }

    /// Returns true for `https`.
    pub fn is_https(&self) -> bool {
        self.authority.scheme == Scheme::Https
    }

    /// The path, which begins with a slash.
    pub fn path(&self) -> &str {
        self.url.path()
    }

    /// The query, if the URL has one.
    pub fn query(&self) -> Option<&str> {
        self.url.query()
    }

    /// The path and the query, as a request line contains them.
    pub fn request_target(&self) -> String {
        match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        }
    }

    /// The fragment, which no request contains.
    pub fn fragment(&self) -> Option<&str> {
        self.url.fragment()
    }

    /// Returns true if the URL has a user or a password.
    pub fn has_login(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }

    /// The form that HTTP libraries take.
    pub fn as_url(&self) -> &Url {
        &self.url
    }

    /// Appends a name and a value, which are percent-encoded already, to the query.
    pub fn append_query(&mut self, name: &str, value: &str) {
        let pair = format!("{name}={value}");
        let (before, fragment) = match self.written.split_once('#') {
            Some((before, fragment)) => (before, format!("#{fragment}")),
            None => (self.written.as_str(), String::new()),
        };
        let separator = if before.contains('?') { '&' } else { '?' };
        self.written = format!("{before}{separator}{pair}{fragment}");
        let query = match self.url.query() {
            Some(query) => format!("{query}&{pair}"),
            None => pair,
        };
        self.url.set_query(Some(&query));
    }
}

/// Rejects characters that the URL parser removes, and backslashes that it takes for slashes.
fn reject_blanks(text: &str) -> Result<(), AddressError> {
    let place_and_path = text.split(['?', '#']).next().unwrap_or_default();
    let has_blank_behind = text.chars().any(|it| it.is_whitespace() || it.is_control());
    if has_blank(place_and_path) || has_blank_behind {
        return Err(AddressError::Blank);
    }
    Ok(())
}

/// Splits the user and the password, in the characters that RFC 3986, section 3.2.1, allows, from a host.
fn split_login(place: &str) -> Result<(Option<&str>, &str), AddressError> {
    let Some((login, place)) = place.rsplit_once('@') else { return Ok((None, place)) };
    let is_allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:%".contains(&byte);
    if login.bytes().all(is_allowed) {
        Ok((Some(login), place))
    } else {
        Err(AddressError::LoginCharacter)
    }
}

/// URLs are equal if requests to them are.
impl PartialEq for WebUrl {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

impl Eq for WebUrl {}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_one_form() {
        for (text, shown) in [
            ("http://a.test", "http://a.test/"),
            ("HTTPS://A.TEST.:443/x/../y?q#f", "https://a.test/y?q#f"),
            ("https://b\u{fc}cher.test/\u{fc}", "https://xn--bcher-kva.test/%C3%BC"),
            ("http://a.test:8080?q=\\", "http://a.test:8080/?q=\\"),
            ("http://[::1]:80/", "http://[::1]/"),
            ("http://127.0.0.1:/", "http://127.0.0.1/"),
        ] {
            assert_eq!(
                WebUrl::parse(text).map(|it| it.to_string()).as_deref(),
                Ok(shown),
                "{text}"
            );
        }
    }

    #[test]
    fn texts_with_two_readings_are_rejected() {
        for (text, problem) in [
            ("http://127.1/", AddressError::Number),
            ("http://0x7f000001/", AddressError::Number),
            ("http://2130706433/", AddressError::Number),
            ("http://0177.0.0.1/", AddressError::Number),
            ("http://\u{ff11}27.0.0.1/", AddressError::LookAlike("127.0.0.1".to_owned())),
            ("http://a%2etest/", AddressError::Name),
            ("http://a\n.test/", AddressError::Blank),
            (" http://a.test/", AddressError::Blank),
            ("http://a.test/x\ty", AddressError::Blank),
            ("http://a.test/?x y", AddressError::Blank),
            ("http:\\\\a.test/", AddressError::Blank),
            ("http://a.test\\@b.test/", AddressError::Blank),
            ("http://a.test/\\b", AddressError::Blank),
            ("http://ada@a.test/", AddressError::Login),
            ("http://ada:secret@a.test/", AddressError::Login),
            ("http://ada@b@a.test/", AddressError::LoginCharacter),
            ("http:///a.test", AddressError::NoHost),
            ("http://a.test:0/", AddressError::Port { lowest: 1 }),
            ("http://a.test:080/", AddressError::Port { lowest: 1 }),
            ("http://a.test:99999/", AddressError::Port { lowest: 1 }),
            ("http://fe80::1/", AddressError::Brackets),
        ] {
            assert_eq!(WebUrl::parse(text), Err(problem), "{text:?}");
        }
        for text in ["http:a.test", "http:/a.test", "ftp://a.test", "a.test", "", "ws://a.test/"] {
            assert!(matches!(WebUrl::parse(text), Err(AddressError::Scheme(_))), "{text:?}");
        }
    }

    #[test]
    fn references_lead_to_one_place() {
        let base = WebUrl::parse("https://a.test/one/two?q").unwrap();
        for (reference, expected) in [
            ("/x", "https://a.test/x"),
            ("x y", "https://a.test/one/x%20y"),
            ("?y", "https://a.test/one/two?y"),
            ("../z", "https://a.test/z"),
            ("//b.test/x", "https://b.test/x"),
            ("HTTP://B.test", "http://b.test/"),
            ("/x:y", "https://a.test/x:y"),
            ("", "https://a.test/one/two?q"),
        ] {
            assert_eq!(
                base.join(reference).map(|it| it.to_string()).as_deref(),
                Ok(expected),
                "{reference:?}"
            );
        }
        for reference in [
            "//127.1/",
            "http://0x7f.1/",
            "\\\\b.test/",
            "/\\b.test/",
            "http:b.test",
            "https:/b.test",
            "ftp://b.test/",
            "javascript:alert(1)",
            "//b.test\\@c.test/",
            "/\tx",
            "///b.test/",
        ] {
            assert!(base.join(reference).is_err(), "{reference:?}");
        }
    }

    #[test]
    fn a_query_is_appended_before_the_fragment() {
        let mut url = WebUrl::parse("https://a.test/x#part").unwrap();

        url.append_query("a", "b%20c");
        url.append_query("d", "");

        assert_eq!(url.as_str(), "https://a.test/x?a=b%20c&d=#part");
        assert_eq!(url.as_written(), "https://a.test/x?a=b%20c&d=#part");
        assert_eq!(url.request_target(), "/x?a=b%20c&d=");
    }
}
