//! URLs, taken apart.

/// The parts of an absolute URL with an authority; parts that are missing are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlParts<'a> {
    pub scheme: &'a str,
    pub authority: &'a str,
    pub user_password: &'a str,
    pub host: &'a str,
    pub port: Option<u16>,
    pub path: &'a str,
    pub query: &'a str,
    pub fragment: &'a str,
}

impl<'a> UrlParts<'a> {
    /// Takes a URL apart, or says that it is none.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if text.chars().any(|it| it.is_whitespace() || it.is_control()) {
            return None;
        }
        let (scheme, rest) = text.split_once("://")?;
        let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user_password, address) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (host, port) = split_port(address)?;
        let is_url = is_scheme(scheme) && !host.is_empty();
        is_url.then_some(Self {
            scheme,
            authority,
            user_password,
            host,
            port,
            path,
            query,
            fragment,
        })
    }
}

fn is_scheme(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_part)
}

/// The host and the port of an address; an IPv6 host keeps its brackets.
fn split_port(address: &str) -> Option<(&str, Option<u16>)> {
    let end_of_host = address.rfind(']').map_or(0, |end| end + 1);
    match address[end_of_host..].find(':') {
        None => Some((address, None)),
        Some(colon) => {
            let (host, port) = address.split_at(end_of_host + colon);
            Some((host, Some(port[1..].parse().ok()?)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port_and_brackets() {
        let url = UrlParts::parse("tcp://[::1]:5432").unwrap();

        assert_eq!((url.host, url.port, url.path), ("[::1]", Some(5432), ""));
        assert_eq!(UrlParts::parse("https://a.internal").unwrap().port, None);
    }

    #[test]
    fn what_has_no_scheme_or_host_is_no_url() {
        for text in ["", "/path", "example.com", "https://", "1x://a", "http://a:x", "http://a b"] {
            assert_eq!(UrlParts::parse(text), None, "{text}");
        }
    }
}
