//! Masks what should not be seen over a shoulder or travel in an export.

use std::borrow::Cow;
use std::ops::Range;

use percent_encoding::percent_decode_str;

/// What stands instead of a secret; as long for every secret.
pub(super) const MASK: &str = "••••••";

/// Names that hold secrets when they contain one of these.
const PARTS: [&str; 15] = [
    "authoriz",
    "cookie",
    "token",
    "secret",
    "signature",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "hmac",
    "apikey",
    "accesskey",
    "privatekey",
    "sessionid",
    "jwt",
];
/// Names that hold secrets when they are one of these.
const WHOLE: [&str; 6] = ["auth", "key", "pass", "pwd", "sig", "sid"];

/// Whether a header, a parameter or a member of this name holds a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let letters = name.chars().filter(|letter| letter.is_ascii_alphanumeric());
    let plain = letters.map(|letter| letter.to_ascii_lowercase()).collect::<String>();
    WHOLE.contains(&plain.as_str()) || PARTS.iter().any(|part| plain.contains(part))
}

/// The value of a header: of credentials the scheme stays.
pub(super) fn header<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
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

/// A target: path and query.
pub(super) fn target(target: &str) -> Cow<'_, str> {
    match target.split_once('?') {
        Some((path, query)) => format!("{path}?{}", pairs(query)).into(),
        None => target.into(),
    }
}

/// Parameters as they stand in queries and forms.
pub(super) fn pairs(pairs: &str) -> String {
    let masked = pairs.split('&').map(|pair| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_secret(&decoded(name)) => {
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

/// The string, number or word that is the value of the key that ends here.
fn value_after(text: &str, key_end: usize) -> Option<Range<usize>> {
    let rest = text.get(key_end..)?;
    let after = rest.trim_start().strip_prefix(':')?.trim_start();
    let start = text.len() - after.len();
    match after.bytes().next()? {
        b'"' => Some(start..string_end(text, start)),
        b'{' | b'[' => None,
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
    fn names_of_secrets_are_known_in_any_spelling() {
        for name in [
            "Authorization",
            "Cookie",
            "Set-Cookie",
            "X-Hub-Signature-256",
            "X-Api-Key",
            "access_token",
            "clientSecret",
            "key",
            "sig",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["Host", "Accept", "keyboard", "author", "design", "Content-Type"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn headers_keep_their_scheme() {
        assert_eq!(header("Authorization", "Bearer abc"), format!("Bearer {MASK}"));
        assert_eq!(header("Cookie", "a=b c"), MASK);
        assert_eq!(header("Accept", "*/*"), "*/*");
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
        assert_eq!(json(r#"{"token": "cut of"#), "{\"token\": \"••••••\"");
        assert_eq!(json("\"token"), "\"token");
    }
}
