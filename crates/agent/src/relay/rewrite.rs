//! The changes that the relay makes to heads: the host, and where redirects lead.

use ginnel_base::address::{Authority, Scheme};
use ginnel_http1::{
    FORWARDED_HOST, HTTP2_SETTINGS, HeadWriter, head_lines, is_proper_upgrade, list_elements,
};

/// What a local service sees as `Host`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// What the visitor sent.
    #[default]
    Preserve,
    /// The address that the tunnel forwards to.
    Rewrite,
    /// A fixed value.
    Value(String),
}

impl HostHeader {
    /// The meaning of the setting `host_header`.
    pub fn of_setting(text: &str) -> Self {
        match text {
            "" | "preserve" => Self::Preserve,
            "rewrite" => Self::Rewrite,
            value => Self::Value(value.to_owned()),
        }
    }
}

/// The head of a request for another host; the visitor's host goes to `X-Forwarded-Host` and, for
/// services that knew older agents, to `X-Original-Host`.
pub(super) fn rewrite_request_head(head: &[u8], original: Option<&[u8]>, host: &str) -> Vec<u8> {
    let mut forwarded = false;
    let mut output = Vec::with_capacity(head.len() + 128);
    let mut writer = HeadWriter::resume(&mut output);
    for line in head_lines(head) {
        if line.has_name("host") {
            writer.field("Host", host);
        } else if !line.has_name("x-original-host") {
            forwarded |= line.has_name(FORWARDED_HOST);
            writer.lines(line.0);
        }
    }
    if let Some(original) = original {
        if !forwarded {
            writer.field("X-Forwarded-Host", original);
        }
        writer.field("X-Original-Host", original);
    }
    writer.end();
    output
}

/// The head of a request without what asks the local service for a protocol that it may not be asked for,
/// such as `h2c`: on such a connection, requests would pass no rule and no capture.
pub(super) fn without_improper_upgrades(head: &[u8]) -> Vec<u8> {
    let protocols = head_lines(head).filter(|line| line.has_name("upgrade"));
    let has_proper = protocols.flat_map(|line| list_elements(line.value())).any(is_proper_upgrade);
    let mut output = Vec::with_capacity(head.len());
    let mut writer = HeadWriter::resume(&mut output);
    for line in head_lines(head) {
        let stays = |element: &&[u8]| match () {
            () if line.has_name("upgrade") => is_proper_upgrade(element),
            () if element.eq_ignore_ascii_case(b"upgrade") => has_proper,
            () => !element.eq_ignore_ascii_case(HTTP2_SETTINGS.as_bytes()),
        };
        if line.has_name("upgrade") || line.has_name("connection") {
            let left: Vec<&[u8]> = list_elements(line.value()).filter(stays).collect();
            if !left.is_empty() {
                writer.field(line.name(), left.join(&b", "[..]));
            }
        } else if !line.has_name(HTTP2_SETTINGS) {
            writer.lines(line.0);
        }
    }
    writer.end();
    output
}

/// The head of a response whose `Location`, `Content-Location` or `Refresh` names the local host, with the public
/// one instead. Returns `None` if the head can stay as it is.
pub(super) fn rewrite_response_head(
    head: &[u8],
    local: &str,
    public: &[u8],
    scheme: &str,
) -> Option<Vec<u8>> {
    let mut changed = false;
    let mut output = Vec::with_capacity(head.len() + 64);
    let mut writer = HeadWriter::resume(&mut output);
    for line in head_lines(head) {
        let map = RedirectMap { local, public, scheme };
        let field = REDIRECTS.iter().find(|(name, _)| line.has_name(name));
        match field.and_then(|(name, find)| Some((name, map.rewrite_value(line.0, *find)?))) {
            Some((name, value)) => {
                writer.field(name, value);
                changed = true;
            }
            None => {
                writer.lines(line.0);
            }
        }
    }
    writer.end();
    changed.then_some(output)
}

/// Finds the URL in the value of a field, by its bounds.
type FindUrl = fn(&str) -> Option<(usize, usize)>;

/// The fields that lead to other places.
const REDIRECTS: [(&str, FindUrl); 3] = [
    ("Location", |value| Some((0, value.len()))),
    ("Content-Location", |value| Some((0, value.len()))),
    ("Refresh", refresh_url),
];

/// A local service and its public address.
struct RedirectMap<'a> {
    /// The host that the local service sees, with a port unless it is the default.
    local: &'a str,
    public: &'a [u8],
    scheme: &'a str,
}

impl RedirectMap<'_> {
    /// The value of a field whose URL leads to the local service, with the public address instead.
    fn rewrite_value(&self, line: &[u8], find: FindUrl) -> Option<Vec<u8>> {
        let value = line.get(line.iter().position(|byte| *byte == b':')? + 1..)?.trim_ascii();
        // Bytes outside ASCII may follow the host, in any encoding.
        let text = value.iter().map(|byte| if byte.is_ascii() { *byte as char } else { '_' });
        let text: String = text.collect();
        let (start, end) = find(&text)?;
        let url = text.get(start..end)?;
        let rest = url.len() - self.rest_behind(url)?.len();
        let (before, after) = (value.get(..start)?, value.get(start + rest..)?);
        Some([before, self.scheme.as_bytes(), b"://", self.public, after].concat())
    }

    /// Returns the part behind the authority of a URL that leads to the local service.
    fn rest_behind<'u>(&self, url: &'u str) -> Option<&'u str> {
        // Without a scheme, that of the local service is meant, and a local service has only one port.
        let absolute = url.starts_with("//").then(|| format!("http:{url}"));
        let (authority, rest) = Authority::split_url(absolute.as_deref().unwrap_or(url)).ok()?;
        if !matches!(authority.scheme, Scheme::Http | Scheme::Https) {
            return None;
        }
        let own = Authority::with_scheme(authority.scheme, self.local).ok()?;
        (own == authority).then(|| url.get(url.len() - rest.len()..))?
    }
}

/// Finds the URL in `5; url=http://a.test/`, as browsers do: `url` in any case, and quotes are optional.
fn refresh_url(value: &str) -> Option<(usize, usize)> {
    let begin = value.find([';', ','])? + 1;
    let trimmed = |at: usize| value.get(at..).map(|rest| value.len() - rest.trim_start().len());
    let mut at = trimmed(begin)?;
    let is_named = value.get(at..at + 3).is_some_and(|name| name.eq_ignore_ascii_case("url"));
    if is_named {
        let equals = trimmed(at + 3)?;
        if !value.get(equals..)?.starts_with('=') {
            return None;
        }
        at = trimmed(equals + 1)?;
    }
    let rest = value.get(at..)?;
    match rest.chars().next()? {
        quote @ ('"' | '\'') => {
            let length = rest.get(1..)?.find(quote).unwrap_or(rest.len() - 1);
            Some((at + 1, at + 1 + length))
        }
        _ => Some((at, value.len())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn another_host_keeps_the_visitors_aside() {
        let head = b"GET / HTTP/1.1\r\nhost: shop.test\r\nA: 1\r\n\r\n";

        let output = rewrite_request_head(head, Some(b"shop.test"), "localhost:80");

        let expected = "GET / HTTP/1.1\r\nHost: localhost:80\r\nA: 1\r\n\
            X-Forwarded-Host: shop.test\r\nX-Original-Host: shop.test\r\n\r\n";
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }

    fn redirected(field: &str, local: &str) -> Option<String> {
        let head = format!("HTTP/1.1 302 Found\r\n{field}\r\n\r\n");
        let output = rewrite_response_head(head.as_bytes(), local, b"shop.test", "https")?;
        let output = String::from_utf8(output).unwrap();
        Some(output.lines().nth(1).unwrap().to_owned())
    }

    #[test]
    fn no_local_service_is_asked_for_http_2() {
        let rewritten = |lines: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}HTTP2-Settings: AAM\r\n\r\n");
            String::from_utf8(without_improper_upgrades(head.as_bytes())).unwrap()
        };

        for (lines, left) in [
            ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n", ""),
            ("Connection: close, upgrade\r\nUpgrade: \tH2C \r\n", "Connection: close\r\n"),
            (
                "Upgrade: h2c\r\nConnection: Upgrade\r\nUPGRADE: x, h2c\r\n",
                "Connection: Upgrade\r\nUPGRADE: x\r\n",
            ),
            (
                "Connection: Upgrade\r\nUpgrade: websocket,h2c\r\n",
                "Connection: Upgrade\r\nUpgrade: websocket\r\n",
            ),
        ] {
            assert_eq!(rewritten(lines), format!("GET / HTTP/1.1\r\nHost: a\r\n{left}\r\n"));
        }
    }

    #[test]
    fn a_redirect_to_the_local_host_leads_to_the_public_one() {
        for (field, expected) in [
            ("Location: http://LOCALHOST:80/a?b", "Location: https://shop.test/a?b"),
            ("location: HTTP://localhost/a", "Location: https://shop.test/a"),
            ("Location: //localhost/a", "Location: https://shop.test/a"),
            ("Location: http://localhost.:80", "Location: https://shop.test"),
            ("Location: https://localhost:443#a", "Location: https://shop.test#a"),
            ("Location: http://localhost:/a", "Location: https://shop.test/a"),
            ("Content-Location: http://localhost/a", "Content-Location: https://shop.test/a"),
            ("Refresh: 0; url=http://localhost/a", "Refresh: 0; url=https://shop.test/a"),
            ("Refresh: 5;URL = 'http://localhost/a'", "Refresh: 5;URL = 'https://shop.test/a'"),
            ("Refresh: 5, http://localhost/a", "Refresh: 5, https://shop.test/a"),
        ] {
            assert_eq!(redirected(field, "localhost").as_deref(), Some(expected), "{field}");
        }
        let with_port = redirected("Location: //localhost:8080/\u{e9}", "localhost:8080");
        assert_eq!(with_port.as_deref(), Some("Location: https://shop.test/\u{e9}"));
    }

    #[test]
    fn other_redirects_stay() {
        for field in [
            "Location: http://localhost:8080/a",
            "Location: http://localhost:443/a",
            "Location: http://user@localhost/a",
            "Location: http://localhost.test/a",
            "Location: http://local%68ost/a",
            "Location: ftp://localhost/a",
            "Location: /a",
            "Location: localhost/a",
            "Location:",
            "Refresh: 5",
            "Refresh: 5; url",
            "Refresh: 5; url=\"",
            "Refresh: 5; url=/a",
            "Link: <http://localhost/a>",
        ] {
            assert_eq!(redirected(field, "localhost"), None, "{field}");
        }
    }
}
