//! Masks what should not be seen over a shoulder or travel in an export.

use std::borrow::Cow;
use std::ops::Range;

use percent_encoding::percent_decode_str;

pub(super) use crate::api::secrets::is_secret;
use crate::api::secrets::is_secret_parameter;

/// What stands instead of a secret; as long for every secret.
pub(super) const MASK: &str = "••••••";

/// Headers whose values are addresses.
const ADDRESSES: [&str; 3] = ["location", "referer", "content-location"];

/// The value of a header: of credentials the scheme stays, of addresses all but their parameters.
pub(super) fn header<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    if ADDRESSES.iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return target(value);
    }
    if !is_secret(name) {
        return value.into();
    }
    match value.split_once(' ') {
        Some((scheme, _)) if name.to_ascii_lowercase().contains("authoriz") => {
            format!("{scheme} {MASK}").into()
        }
        _ => MASK.into(),
    }
}

/// A target or an address: parameters in its query, and in the fragment that redirects may have.
pub(super) fn target(target: &str) -> Cow<'_, str> {
    let (rest, fragment) = match target.split_once('#') {
        Some((rest, fragment)) => (rest, format!("#{}", pairs(fragment))),
        None => (target, String::new()),
    };
    match rest.split_once('?') {
        Some((path, query)) => format!("{path}?{}{fragment}", pairs(query)).into(),
        None if fragment.is_empty() => target.into(),
        None => format!("{rest}{fragment}").into(),
    }
}

/// Parameters as they stand in queries and forms.
pub(super) fn pairs(pairs: &str) -> String {
    let masked = pairs.split('&').map(|pair| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_secret_parameter(&decoded(name)) => {
            format!("{name}={MASK}")
        }
        _ => pair.to_owned(),
    });
    masked.collect::<Vec<_>>().join("&")
}

fn decoded(name: &str) -> String {
    percent_decode_str(name).decode_utf8_lossy().into_owned()
}

/// JSON, even where it is cut off; members with strings and numbers are masked.
pub(super) fn json(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut copied = 0;
    let mut at = 0;
    while let Some(key) = next_string(text, at) {
        at = key.end;
        let Some(value) = value_after(text, key.end) else { continue };
        if !is_secret(text.get(key).unwrap_or_default()) {
            // The value itself may be the next key's neighbour, never a key.
            at = value.end;
            continue;
        }
        masked.push_str(text.get(copied..value.start).unwrap_or_default());
        masked.push('"');
        masked.push_str(MASK);
        masked.push('"');
        copied = value.end;
        at = value.end;
    }
    masked.push_str(text.get(copied..).unwrap_or_default());
    masked
}

/// A form in parts, of any bytes; none where it is not one. Parts with the name of a secret are
/// masked.
pub(super) fn parts(body: &[u8]) -> Option<Vec<u8>> {
    let end = body.windows(2).position(|two| two == b"\r\n")?;
    let boundary = body.get(..end).filter(|line| line.len() > 2 && line.starts_with(b"--"))?;
    let mut masked = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(part) = rest.strip_prefix(boundary) {
        let next = find(part, &[b"\r\n", boundary].concat());
        let (part, after) = part.split_at(next.map_or(part.len(), |at| at + 2));
        let head = find(part, b"\r\n\r\n").map_or(part.len(), |at| at + 4);
        let (head, content) = part.split_at(head);
        masked.extend_from_slice(boundary);
        masked.extend_from_slice(head);
        if !content.is_empty() && is_secret_parameter(&part_name(head)) {
            masked.extend_from_slice(MASK.as_bytes());
            masked.extend_from_slice(if next.is_some() { b"\r\n" } else { b"" });
        } else {
            masked.extend_from_slice(content);
        }
        rest = after;
    }
    masked.extend_from_slice(rest);
    Some(masked)
}

/// The name in the head of a part, as it stands in `Content-Disposition`.
fn part_name(head: &[u8]) -> String {
    let head = String::from_utf8_lossy(head);
    let mut parameters = head.split([';', '\r', '\n']).map(str::trim);
    let name = parameters.find_map(|one| {
        let (name, value) = one.split_once('=')?;
        name.trim().eq_ignore_ascii_case("name").then(|| value.trim().trim_matches('"').to_owned())
    });
    name.unwrap_or_default()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The next string at or after a place, with its quotes.
fn next_string(text: &str, from: usize) -> Option<Range<usize>> {
    let start = from + text.get(from..)?.find('"')?;
    Some(start..string_end(text, start))
}

/// Where the string ends that starts here; at the end of the text when it is cut off.
fn string_end(text: &str, start: usize) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(start + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Where the list ends that starts here; none when there is more in it than strings and numbers.
fn list_end(text: &str, start: usize) -> Option<usize> {
    let mut at = start + 1;
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => at = string_end(text, at),
            b']' => return Some(at + 1),
            b'[' | b'{' => return None,
            _ => at += 1,
        }
    }
    Some(text.len())
}

/// The string, number, word, or list of such, that is the value of the key that ends here.
fn value_after(text: &str, key_end: usize) -> Option<Range<usize>> {
    let rest = text.get(key_end..)?;
    let after = rest.trim_start().strip_prefix(':')?.trim_start();
    let start = text.len() - after.len();
    match after.bytes().next()? {
        b'"' => Some(start..string_end(text, start)),
        b'[' => list_end(text, start).map(|end| start..end),
        b'{' => None,
        _ => {
            let length = after.find([',', '}', ']', '\n', ' ']).unwrap_or(after.len());
            Some(start..start + length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_keep_their_scheme() {
        assert_eq!(header("Authorization", "Bearer abc"), format!("Bearer {MASK}"));
        assert_eq!(header("Cookie", "a=b c"), MASK);
        assert_eq!(header("Accept", "*/*"), "*/*");
        assert_eq!(
            header("Location", "https://a.test/b?state=1&access_token=x#id_token=y&z=1"),
            format!("https://a.test/b?state=1&access_token={MASK}#id_token={MASK}&z=1")
        );
        assert_eq!(header("Referer", "https://a.test/#token"), "https://a.test/#token");
    }

    #[test]
    fn parameters_are_masked_in_place() {
        assert_eq!(target("/a?x=1&token=abc&y=2"), format!("/a?x=1&token={MASK}&y=2"));
        assert_eq!(target("/a?api%5Fkey=abc&token="), format!("/a?api%5Fkey={MASK}&token="));
        assert_eq!(target("/token/abc"), "/token/abc");
    }

    #[test]
    fn members_are_masked_and_nothing_else_changes() {
        let text = r#"{ "user": "token", "password" : "a\"b", "n": {"secret": 12, "x": [1.50]} }"#;
        let wanted = r#"{ "user": "token", "password" : "#.to_owned()
            + "\"••••••\", \"n\": {\"secret\": \"••••••\", \"x\": [1.50]} }";

        assert_eq!(json(text), wanted);
        assert_eq!(
            json(r#"{"tokens": ["a]", 2], "keys": ["b"], "secrets": [{"x": 1}, ["y"#),
            "{\"tokens\": \"••••••\", \"keys\": [\"b\"], \"secrets\": [{\"x\": 1}, [\"y"
        );
        assert_eq!(json(r#"{"token": "cut of"#), "{\"token\": \"••••••\"");
        assert_eq!(json("\"token"), "\"token");
    }

    #[test]
    fn parts_of_forms_are_masked() {
        let part = |name: &str, content: &str| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}")
        };
        let form = |secret: &str| {
            let parts = [part("a", "1\r\n"), part("password", secret), part("b", "2\r\n--B--\r\n")];
            parts.concat().into_bytes()
        };

        let masked = form(&format!("{MASK}\r\n"));
        assert_eq!(parts(&form("x\r\n--\r\ny\r\n")), Some(masked));
        let cut = parts(part("token", "cut o\u{fffd}").as_bytes());
        assert_eq!(cut, Some(part("token", MASK).into_bytes()));
        assert_eq!(parts(b"no form"), None);
        assert_eq!(parts(b"--B\r\n"), Some(b"--B\r\n".to_vec()));
    }
}
