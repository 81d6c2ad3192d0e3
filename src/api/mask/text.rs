//! Texts of no form that is known: names with values, elements, and what credentials look like.

use std::borrow::Cow;
use std::sync::LazyLock;

use percent_encoding::percent_decode_str;
use regex::{Captures, Regex};

use super::{MASK, brackets, json, markup, name_value, yaml};
use crate::api::secrets::{is_secret, is_visible_scalar};

/// How many texts may be inside each other, such as JSON in a string of JSON.
pub(super) const MAX_DEPTH: u8 = 8;

/// A name that a value follows: `name: value`, `name=value`, `"name": "value"`.
const NAMED: &str = r#"(\$?)([A-Za-z0-9_.%-]+)(\\?["']?)\s{0,8}(?:=>|[:=])\s{0,8}"#;
/// The value that follows a name.
const VALUE: &str = r#"(?xs)^(?:
    (?:[\[\]A-Za-z0-9_!]+\s{0,8}=\s{0,8})?"""(?:[^"]|"[^"]|""[^"])*(?:""")?
    | [\[\]A-Za-z0-9_!]+\s{0,8}=\s{0,8}"(?:[^"\\]|\\.)*"?
    | \\"(?:[^"\\]|\\\\\\"|\\[^"])*(?:\\")?
    | "(?:[^"\\]|\\.)*"?
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

/// Headers whose values may have blanks and separators in them.
const HEADERS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "set-cookie"];

/// The maximum length of a type in GraphQL, in bytes. Longer texts are values.
const MAX_TYPE_BYTES: usize = 256;

/// How long a token is at least that says by its prefix what it is, in bytes.
const MIN_TOKEN_BYTES: usize = 11;

/// A text without what looks like a secret.
pub fn text(shown: &str) -> Cow<'_, str> {
    nested(shown, MAX_DEPTH)
}

/// The same, where `depth` more texts may be inside.
pub(super) fn nested(shown: &str, depth: u8) -> Cow<'_, str> {
    if is_plain(shown) {
        return shown.into();
    }
    if shown.trim_start().starts_with(['{', '[']) {
        return json::nested(shown, depth).into();
    }
    let elements = match shown.contains('<') {
        true => Cow::Owned(markup::masked(shown)),
        false => Cow::Borrowed(shown),
    };
    match yaml::looks_like_yaml(&elements) {
        true => Cow::Owned(yaml::masked(&elements, false)),
        false => then(elements, loose),
    }
}

/// A text without the values that follow the names of secrets or are in a pair with one, and without credentials.
pub(super) fn loose(shown: &str) -> Cow<'_, str> {
    loose_with(shown, false)
}

/// The same. If `is_typed` is true, numbers, booleans and null stay.
pub(super) fn loose_with(shown: &str, is_typed: bool) -> Cow<'_, str> {
    let shown = then(name_value::masked(shown), |shown| named(shown, is_typed));
    then(shown, credentials)
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
fn named(shown: &str, is_typed: bool) -> Cow<'_, str> {
    static PATTERNS: LazyLock<Option<(Regex, Regex)>> =
        LazyLock::new(|| Regex::new(NAMED).ok().zip(Regex::new(VALUE).ok()));
    let Some((name, value)) = PATTERNS.as_ref() else { return MASK.into() };
    let mut masked = String::new();
    let mut copied = 0;
    for found in name.captures_iter(shown) {
        let (Some(whole), Some(dollar), Some(name), Some(quote)) =
            (found.get(0), found.get(1), found.get(2), found.get(3))
        else {
            continue;
        };
        let rest = shown.get(whole.end()..).unwrap_or_default();
        let name = decoded(name.as_str());
        // In YAML, the next line is not the value of a key.
        let is_empty = is_typed && whole.as_str().contains('\n');
        if whole.start() < copied || is_empty || !is_secret(&name) {
            continue;
        }
        let is_header = HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known));
        let length = match rest.as_bytes().first() {
            Some(first)
                if is_header
                    && quote.is_empty()
                    && !matches!(first, b'"' | b'\'' | b'[' | b'{') =>
            {
                rest.find(['\r', '\n']).unwrap_or(rest.len())
            }
            Some(b'[' | b'{') if !is_declaration(rest) => brackets::end(rest, 0),
            _ => value.find(rest).map_or(0, |found| found.len()),
        };
        let written = rest.get(..length).unwrap_or_default();
        // In GraphQL, the type of a variable follows its name.
        let is_type = !dollar.is_empty()
            && written.len() <= MAX_TYPE_BYTES
            && !written.contains(['"', '[', '{', '=']);
        if length == 0
            || is_type
            || is_masked(written)
            || is_visible_scalar(
                &name,
                written.trim_end_matches([')', ']']),
                is_typed || !quote.is_empty(),
            )
        {
            continue;
        }
        masked.push_str(shown.get(copied..whole.end()).unwrap_or_default());
        masked.push_str(MASK);
        copied = whole.end() + length;
    }
    if copied == 0 {
        return shown.into();
    }
    masked.push_str(shown.get(copied..).unwrap_or_default());
    masked.into()
}

fn is_masked(value: &str) -> bool {
    value.trim_matches(['"', '\'', '\\']) == MASK
}

/// Returns true for the type of a list in GraphQL that has a default, such as `[String!] = ["a"]`.
fn is_declaration(rest: &str) -> bool {
    let inner = rest.strip_prefix('[').unwrap_or_default();
    let end = inner.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let after = end.and_then(|end| inner.get(end..)).unwrap_or_default();
    after.trim_start_matches(['!', ']']).trim_start().starts_with("= \"")
}

fn decoded(name: &str) -> Cow<'_, str> {
    percent_decode_str(name).decode_utf8_lossy()
}

/// Masks what was masked before.
fn then<'a>(shown: Cow<'a, str>, mask: impl Fn(&str) -> Cow<'_, str>) -> Cow<'a, str> {
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
            ("{\"password\": \"swordfish\", \"cut", "{\"password\": \"$\", \"cut"),
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
            ("log {\"passwords\": [\"swordfish\", \"b\"]} end", "log {\"passwords\": $} end"),
            ("[info] tokens = ['swordfish', 2] user: me", "[info] tokens = $ user: me"),
            ("max_tokens=100 total_tokens: 5, pin: 1234", "max_tokens=100 total_tokens: 5, pin: $"),
            ("\"pin\": 1234", "\"pin\": 1234"),
            ("{:password=>\"swordfish\", :a=>1}", "{:password=>$, :a=>1}"),
        ] {
            let expected = expected.replace('$', MASK);
            assert_eq!(text(shown), expected, "{shown}");
            assert_eq!(text(&expected), expected, "{shown} twice");
        }
    }

    #[test]
    fn arguments_of_graphql_are_masked() {
        for (shown, expected) in [
            (
                "mutation { login(user: \"ada\", password: \"swordfish\") { id } }",
                "mutation { login(user: \"ada\", password: #) { id } }",
            ),
            ("mutation { a(tokens: [\"swordfish\"], b: 1) }", "mutation { a(tokens: #, b: 1) }"),
            (
                "mutation { a(in: {password: {v: \"swordfish\"}}) }",
                "mutation { a(in: {password: #}) }",
            ),
            ("{ a(secret: \"\"\"sword \"fish\" x\"\"\") }", "{ a(secret: #) }"),
            (
                "query A($password: String!) { a(max_tokens: 5) }",
                "query A($password: String!) { a(max_tokens: 5) }",
            ),
            ("query A($password: String = \"swordfish\") { a }", "query A($password: #) { a }"),
        ] {
            assert_eq!(text(shown), expected.replace('#', MASK), "{shown}");
        }
    }
}
