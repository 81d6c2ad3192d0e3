//! Texts of no form that is known: names with values, elements, and what credentials look like.

use std::borrow::Cow;
use std::sync::LazyLock;

use percent_encoding::percent_decode_str;
use regex::{Captures, Regex};

use super::{MASK, markup};
use crate::api::secrets::is_secret;

/// A name that a value follows: `name: value`, `name=value`, `"name": "value"`.
const NAMED: &str = r#"([A-Za-z0-9_.%-]+)["']?\s{0,8}[:=]\s{0,8}"#;
/// The value that follows a name.
const VALUE: &str = r#"(?xs)^(?:
    "(?:[^"\\]|\\.)*"?
    | '(?:[^'\\]|\\.)*'?
    | (?i:(?:basic|bearer|digest|token)\s{1,4})?[^\s,;&<>{}"']+
)"#;
/// Credentials that need no name: after their scheme, before the host of an address, tokens in JSON
/// and of our own, and those of others that say what they are.
const CREDENTIALS: &str = r#"(?x)
    \b(?P<scheme>(?i:basic|bearer)\s{1,4})[A-Za-z0-9_.~+/=-]{8,}
    | (?P<slashes>(?:^|:)//)[^\s/?\#"'<>]+@
    | \beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?
    | \b[0-9A-Za-z]{27}_[0-9][0-9A-Za-z]{20}\b
    | \b(?:sk|rk|whsec|gh[opsur]|github_pat|glpat|xox[abprs])[_-][A-Za-z0-9_-]{8,}
"#;

/// How long a token is at least that says by its prefix what it is, in bytes.
const MIN_TOKEN_BYTES: usize = 11;

/// A text without what looks like a secret.
pub fn text(shown: &str) -> Cow<'_, str> {
    if is_plain(shown) {
        return shown.into();
    }
    let elements = match shown.contains('<') {
        true => Cow::Owned(markup::masked(shown)),
        false => Cow::Borrowed(shown),
    };
    let named = then(elements, named);
    then(named, credentials)
}

/// A text without credentials that need no name.
pub(super) fn credentials(shown: &str) -> Cow<'_, str> {
    if is_plain(shown) {
        return shown.into();
    }
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(CREDENTIALS).ok());
    let Some(pattern) = PATTERN.as_ref() else { return MASK.into() };
    pattern.replace_all(shown, |found: &Captures<'_>| {
        if let Some(scheme) = found.name("scheme") {
            return format!("{}{MASK}", scheme.as_str());
        }
        match found.name("slashes") {
            Some(slashes) => format!("{}{MASK}@", slashes.as_str()),
            None => MASK.to_owned(),
        }
    })
}

/// Whether a text cannot hold a secret, as one look at its letters says: most paths and parameters are
/// such, and lines of the terminal are written for each request.
fn is_plain(shown: &str) -> bool {
    let (mut joined, mut dotted) = (false, false);
    for byte in shown.bytes() {
        match byte {
            b':' | b'=' | b'<' => return false,
            b'_' | b'-' => joined = true,
            b'.' => dotted = true,
            byte if !byte.is_ascii() || byte.is_ascii_whitespace() => return false,
            _ => {}
        }
    }
    !shown.starts_with("//")
        && (!joined || shown.len() < MIN_TOKEN_BYTES)
        && (!dotted || !shown.contains("eyJ"))
}

/// The text with the values masked that follow the name of a secret.
fn named(shown: &str) -> Cow<'_, str> {
    static PATTERNS: LazyLock<Option<(Regex, Regex)>> =
        LazyLock::new(|| Regex::new(NAMED).ok().zip(Regex::new(VALUE).ok()));
    let Some((name, value)) = PATTERNS.as_ref() else { return MASK.into() };
    let mut masked = String::new();
    let mut copied = 0;
    for found in name.captures_iter(shown) {
        let (Some(whole), Some(name)) = (found.get(0), found.get(1)) else { continue };
        let rest = shown.get(whole.end()..).unwrap_or_default();
        if whole.start() < copied || !is_secret(&decoded(name.as_str())) {
            continue;
        }
        let Some(found) = value.find(rest).filter(|found| !is_masked(found.as_str())) else {
            continue;
        };
        masked.push_str(shown.get(copied..whole.end()).unwrap_or_default());
        masked.push_str(MASK);
        copied = whole.end() + found.end();
    }
    if copied == 0 {
        return shown.into();
    }
    masked.push_str(shown.get(copied..).unwrap_or_default());
    masked.into()
}

fn is_masked(value: &str) -> bool {
    value.trim_matches(['"', '\'']) == MASK
}

fn decoded(name: &str) -> Cow<'_, str> {
    percent_decode_str(name).decode_utf8_lossy()
}

/// Masks what was masked before.
fn then<'a>(shown: Cow<'a, str>, mask: fn(&str) -> Cow<'_, str>) -> Cow<'a, str> {
    match shown {
        Cow::Borrowed(shown) => mask(shown),
        Cow::Owned(shown) => mask(&shown).into_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_masked_and_nothing_else_changes() {
        for (shown, expected) in [
            ("Authorization: Basic swordfish", "Authorization: $"),
            ("see https://me:sword@fish@x.test/", "see https://$@x.test/"),
            ("see https://x.test/me@y.test", "see https://x.test/me@y.test"),
            ("a eyJhbGciOi.swordfish.0f1e2d b", "a $ b"),
            ("say bearer swordfish.", "say bearer $"),
            ("{\"password\": \"swordfish\", \"cut", "{\"password\": $, \"cut"),
            ("<a><Token x='1'>swordfish</Token></a>", "<a><Token x='1'>$</Token></a>"),
            ("<a token=\"swordfish\" b='c'>d</a>", "<a token=\"$\" b='c'>d</a>"),
            ("a=1&%74oken=swordfish&b", "a=1&%74oken=$&b"),
            ("secret = 'sword fish', a", "secret = $, a"),
            ("nothing: here, at 12:30", "nothing: here, at 12:30"),
            ("eyJhbGciOi.swordfish", "$"),
            ("sk_12345678", "$"),
            ("sk_1234567", "sk_1234567"),
            ("//me:swordfish@x.test", "//$@x.test"),
            ("//me@x.test", "//$@x.test"),
            ("", ""),
        ] {
            let expected = expected.replace('$', MASK);
            assert_eq!(text(shown), expected, "{shown}");
            assert_eq!(text(&expected), expected, "{shown} twice");
        }
    }
}
