//! The parts of the address of a database.

use std::borrow::Cow;

/// The parts of `postgres://user@host:port/database?name=value`, still percent-encoded.
pub(super) struct ServerAddress<'a> {
    pub user: &'a str,
    /// If true, the address has a password.
    pub has_password: bool,
    /// The host, which may be empty. IPv6 addresses are in brackets.
    pub host: &'a str,
    pub port: Option<&'a str>,
    /// The name of the database, behind a slash.
    pub path: &'a str,
    query: &'a str,
}

impl<'a> ServerAddress<'a> {
    /// Splits an address; returns `None` if it has another form.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        // Paths of files in the query may contain spaces and backslashes.
        if text.contains(|letter: char| letter.is_control() || letter == '#') {
            return None;
        }
        let rest = text.strip_prefix("postgres://").or(text.strip_prefix("postgresql://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if rest.contains(|letter: char| letter.is_whitespace() || letter == '\\') {
            return None;
        }
        let (place, path) = rest.split_at_checked(rest.find('/').unwrap_or(rest.len()))?;
        let (login, place) = place.rsplit_once('@').unwrap_or(("", place));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (login, None),
        };
        // Other readers end the user at the first one.
        if user.contains('@') {
            return None;
        }
        let end_of_host = place.rfind(']').map_or(0, |end| end + 1);
        let colon = place.get(end_of_host..)?.find(':').map(|colon| end_of_host + colon);
        let (host, port) = match colon {
            Some(colon) => (place.get(..colon)?, place.get(colon + 1..)),
            None => (place, None),
        };
        Some(Self { user, has_password: password.is_some(), host, port, path, query })
    }

    /// The names and values of the query, decoded.
    pub(super) fn query_parameters(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
        url::form_urlencoded::parse(self.query.as_bytes())
    }
}
