//! Lists in the values of fields (RFC 9110, section 5.6.1), and the elements of `Upgrade` and `Cookie`. The elements of
//! `Forwarded` are in `forwarded_field`.

use std::borrow::Cow;

use http::header::{AsHeaderName, UPGRADE};
use http::{HeaderMap, HeaderValue};

/// The elements of a list. Empty ones are skipped (RFC 9110, section 5.6.1.2).
pub fn list_elements(list: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let parts = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    parts.filter(|element| !element.is_empty())
}

/// The parts between separators that are not in a quoted string, without the blanks around them. Returns `None` if a
/// quoted string has no end (RFC 9110, section 5.6.4).
pub fn split_outside_quotes(list: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in list.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            byte if *byte == separator && !is_quoted => {
                parts.push(list.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list.get(start..).unwrap_or_default());
    (!is_quoted).then(|| parts.into_iter().map(<[u8]>::trim_ascii).collect())
}

/// The elements of all lists with that name, in their order.
pub fn elements_of(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &[u8]> {
    headers.get_all(name).into_iter().map(HeaderValue::as_bytes).flat_map(list_elements)
}

/// Whether a word is in the lists with that name, in any case.
pub fn has_token(headers: &HeaderMap, name: impl AsHeaderName, token: &str) -> bool {
    elements_of(headers, name).any(|one| one.eq_ignore_ascii_case(token.as_bytes()))
}

/// The protocols in all `Upgrade` fields that an upstream may be asked for.
pub fn proper_upgrades(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    elements_of(headers, UPGRADE).filter(|protocol| is_proper_upgrade(protocol))
}

/// Returns true if an upstream may be asked for a protocol: it is a token with or without a version
/// (RFC 9110, section 7.8), and not HTTP. On a connection that speaks HTTP/2 from then on, requests would
/// pass no rule.
pub fn is_proper_upgrade(protocol: &[u8]) -> bool {
    let mut parts = protocol.splitn(2, |byte| *byte == b'/');
    let name = parts.next().unwrap_or_default();
    let starts = |start: &[u8]| {
        name.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    is_token(name) && parts.all(is_token) && !starts(b"h2") && !starts(b"http")
}

/// Returns a value without the blanks around it (RFC 9110, section 5.6.3). Other white space of Unicode is part of a
/// value.
pub fn trim_blanks(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

/// Returns true for a token (RFC 9110, section 5.6.2).
pub(super) fn is_token(text: &[u8]) -> bool {
    let is_sign = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_sign)
}

/// The names and values of the cookies in a `Cookie` field, without the quotes around a value
/// (RFC 6265, section 5.4).
pub fn cookie_pairs(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let pairs = line.split(|byte| *byte == b';');
    pairs.filter_map(|pair| {
        let (name, value) = pair.split_at_checked(pair.iter().position(|byte| *byte == b'=')?)?;
        let value = value.strip_prefix(b"=").unwrap_or(value).trim_ascii();
        let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        Some((name.trim_ascii(), inner.unwrap_or(value)))
    })
}

/// The text of the name or the value of a cookie: UTF-8, or Latin-1 if it is not UTF-8.
pub fn cookie_text(bytes: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into(),
    }
}

#[cfg(test)]
mod tests {
    use http::header::TE;

    use super::*;

    #[test]
    fn all_lines_of_a_field_are_one_list() {
        let lines = ["gzip ,\tTrailers, ,", "", " , ,", "deflate;q=0.5"];
        let headers: HeaderMap =
            lines.into_iter().map(|line| (TE, HeaderValue::from_static(line))).collect();
        let all: [&[u8]; 3] = [b"gzip", b"Trailers", b"deflate;q=0.5"];

        assert_eq!(elements_of(&headers, TE).collect::<Vec<_>>(), all);
        assert!(has_token(&headers, TE, "trailers") && has_token(&headers, "te", "GZIP"));
        assert!(!has_token(&headers, TE, "deflate") && !has_token(&headers, "trailer", "gzip"));
    }

    #[test]
    fn a_separator_in_quotes_separates_nothing() {
        let parts = split_outside_quotes(b"a, \"b,\\\",c\" ,,d\\", b',');
        assert_eq!(parts, Some(vec![&b"a"[..], b"\"b,\\\",c\"", b"", b"d\\"]));
        for open in ["\"", "a\"b,c", "\"\\\""] {
            assert_eq!(split_outside_quotes(open.as_bytes(), b','), None, "{open}");
        }
    }

    #[test]
    fn no_upstream_is_asked_for_http() {
        for protocol in ["websocket", "WebSocket", "TLS/1.0", "x", "tailscale-control-protocol"] {
            assert!(is_proper_upgrade(protocol.as_bytes()), "{protocol}");
        }
        for protocol in
            ["h2c", "H2C", "h2", "h2c-14", "HTTP/2.0", "http2", "", "x h2c", "\"x\"", "x/", "x;h2c"]
        {
            assert!(!is_proper_upgrade(protocol.as_bytes()), "{protocol}");
        }
        let lines = ["x, h2c ,websocket", "H2C", "\th2c,y"];
        let headers: HeaderMap =
            lines.into_iter().map(|line| (UPGRADE, HeaderValue::from_static(line))).collect();
        assert_eq!(proper_upgrades(&headers).collect::<Vec<_>>(), [&b"x"[..], b"websocket", b"y"]);
    }

    #[test]
    fn each_cookie_is_read_for_itself() {
        let line = b"a=1; city=\xe6\x9d\xb1; name=Zo\xeb;no value;q=\"x=y\";=z";
        let pairs: Vec<_> =
            cookie_pairs(line).map(|pair| (cookie_text(pair.0), cookie_text(pair.1))).collect();
        let expected = [("a", "1"), ("city", "東"), ("name", "Zoë"), ("q", "x=y"), ("", "z")];
        assert_eq!(pairs, expected.map(|(name, value)| (name.into(), value.into())));
    }
}
