//! Masks what should not be seen over a shoulder, or travel in an export or a log.
//!
//! This is the only place that does: the agent's page and its exports, lines of the terminal, tables of
//! the command line, events, cassettes, and what Python shows of captured traffic all come here. The operation
//! tables decide ([`CallMask`]), names ([`secrets`](super::secrets)), and the forms that credentials are known by.
//! Below a secret name, all but a number, a boolean or null is hidden, and so is text that cannot be parsed there. Too much is masked rather
//! than too little. The bytes themselves stay exact, wherever they can be had.

mod body;
mod brackets;
mod call;
mod events;
mod json;
mod mark;
mod markup;
mod message;
mod parts;
mod text;
mod yaml;

use std::borrow::Cow;
use std::path::Path;

use percent_encoding::percent_decode_str;

pub use body::body;
pub use call::{CallMask, CallSide, arguments, record};
pub use json::{json, value, value_in_form};
pub use mark::MASK;
pub use message::message;
pub use text::text;

use super::secrets::{is_secret, is_secret_parameter, is_visible_scalar};

/// Headers whose values are addresses.
const ADDRESSES: [&str; 3] = ["location", "referer", "content-location"];
/// Headers that hold no secret, although their values may look like it: a host and its port read like
/// a name and its value, and a challenge begins like the credentials that it asks for.
const PLAIN: [&str; 3] = ["host", "www-authenticate", "proxy-authenticate"];
/// Headers that hold a secret, although such names elsewhere do not.
const SECRETS: [&str; 2] = ["authentication", "dpop"];
/// How credentials begin where a colon stands instead of a space.
const BEARER: &str = "bearer:";
/// How a value begins that is made of credentials (the registry of HTTP authentication schemes, and what
/// others made up).
const SCHEMES: [&str; 26] = [
    "apikey",
    "api-key",
    "aws",
    "aws4-hmac-sha256",
    "basic",
    "bearer",
    "digest",
    "dpop",
    "gnap",
    "googlelogin",
    "hawk",
    "hmac",
    "hoba",
    "jwt",
    "mac",
    "negotiate",
    "ntlm",
    "oauth",
    "privatetoken",
    "scram-sha-1",
    "scram-sha-256",
    "sharedkey",
    "sharedkeylite",
    "ssws",
    "token",
    "vapid",
];
/// How many times an address may stand inside a parameter of another.
const NESTED: u8 = 2;

/// The value of a header: of credentials the scheme stays, of cookies their names, of addresses all but
/// user names, passwords and parameters.
pub fn header<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    let name = name.to_ascii_lowercase();
    if name == "cookie" {
        return value.split(';').map(cookie).collect::<Vec<_>>().join("; ").into();
    }
    if name == "set-cookie" {
        let (first, attributes) = value.split_at(value.find(';').unwrap_or(value.len()));
        return format!("{}{attributes}", cookie(first)).into();
    }
    if PLAIN.contains(&name.as_str()) {
        return value.into();
    }
    if let Some(scheme) = scheme(value) {
        return format!("{scheme} {MASK}").into();
    }
    if name == "sec-websocket-protocol" && value.split(',').any(is_credential_word) {
        return MASK.into();
    }
    if is_visible_scalar(&name, value, false) {
        return value.into();
    }
    if is_secret(&name) || SECRETS.contains(&name.as_str()) {
        return match value.split_once(' ') {
            Some((scheme, _)) if name.contains("authoriz") => format!("{scheme} {MASK}").into(),
            _ => MASK.into(),
        };
    }
    match ADDRESSES.contains(&name.as_str()) {
        true => target(value),
        false => text(value),
    }
}

/// The scheme of a value that is made of credentials, with the colon that some put after it.
fn scheme(value: &str) -> Option<&str> {
    let value = value.trim_start();
    let start = value.get(..BEARER.len()).filter(|start| start.eq_ignore_ascii_case(BEARER));
    if start.is_some_and(|start| value.len() > start.len()) {
        return start;
    }
    let (scheme, rest) = value.split_once([' ', '\t'])?;
    (is_scheme(scheme) && !rest.trim().is_empty()).then_some(scheme)
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Whether the name of a protocol of WebSockets is there for the credentials beside or inside it:
/// browsers can send them nowhere else.
fn is_credential_word(protocol: &str) -> bool {
    let protocol = protocol.trim().to_ascii_lowercase();
    is_scheme(&protocol) || is_secret(&protocol) || protocol.contains("bearer")
}

fn cookie(pair: &str) -> String {
    match pair.trim().split_once('=') {
        Some((name, _)) => format!("{name}={MASK}"),
        None if pair.trim().is_empty() => String::new(),
        None => MASK.to_owned(),
    }
}

/// A target or an address: who asks, and parameters in its path, its query and its fragment.
pub fn target(target: &str) -> Cow<'_, str> {
    nested(target, NESTED)
}

fn nested(target: &str, depth: u8) -> Cow<'_, str> {
    let (rest, fragment) = split(target, '#');
    let (path, query) = split(rest, '?');
    let mut masked = segments(path);
    if let Some(query) = query {
        masked = format!("{masked}?{}", parameters(query, depth)).into();
    }
    if let Some(fragment) = fragment {
        // Applications in a page have paths with queries in there.
        let (before, query) = split(fragment, '?');
        masked = match query {
            Some(query) => {
                let before = parameters(before, depth);
                format!("{masked}#{before}?{}", parameters(query, depth)).into()
            }
            None => format!("{masked}#{}", parameters(before, depth)).into(),
        };
    }
    masked
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// A path: parameters of its segments, and what is known for a token.
fn segments(path: &str) -> Cow<'_, str> {
    let path = text::credentials(path);
    if !path.contains('=') {
        return path;
    }
    let segments = path.split('/').map(|segment| joined(segment, &[';'], |_, value| value.into()));
    segments.collect::<Vec<_>>().join("/").into()
}

/// The name of a file, unless it is what a file should hold: keys are put where names belong.
pub fn path(path: &Path) -> Cow<'_, str> {
    if is_content(path) { MASK.into() } else { path.to_string_lossy() }
}

/// Whether what should name a file is several lines, or PEM.
pub fn is_content(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.contains(['\n', '\r']) || text.contains("-----BEGIN")
}

/// Parameters as they stand in queries and forms.
pub fn pairs(pairs: &str) -> String {
    parameters(pairs, NESTED)
}

fn parameters(parameters: &str, depth: u8) -> String {
    joined(parameters, &['&', ';', '?'], |name, value| parameter(name, value, depth))
}

/// The value of a parameter whose name says nothing; it may be an address with parameters.
fn parameter<'a>(name: Option<&str>, value: &'a str, depth: u8) -> Cow<'a, str> {
    if depth > 0 && value.contains(['%', '+']) {
        let decoded = decoded(value);
        // Where there is no name, all of a pair may be in escapes.
        if name.is_none() && parameters(&decoded, depth - 1) != decoded
            || nested(&decoded, depth - 1) != decoded
            || text(&decoded) != decoded
        {
            return MASK.into();
        }
    }
    text(value)
}

/// Pairs between separators; `other` masks what has not the name of a secret.
///
/// What follows a secret without being a pair itself is taken for more of it: not everybody takes all
/// of these for separators.
fn joined<'a>(
    pairs: &'a str,
    separators: &[char],
    other: impl Fn(Option<&str>, &'a str) -> Cow<'a, str>,
) -> String {
    let mut masked = String::with_capacity(pairs.len());
    let mut after_secret = false;
    for piece in pairs.split_inclusive(separators) {
        let pair = piece.trim_end_matches(separators);
        let separator = piece.get(pair.len()..).unwrap_or_default();
        let named = pair.split_once('=').filter(|(_, value)| !value.trim_matches('=').is_empty());
        match named {
            Some((name, value)) => {
                let decoded_name = decoded(name);
                after_secret = is_secret_parameter(&decoded_name)
                    && !is_visible_scalar(&decoded_name, value, false);
                masked.extend([name, "="]);
                match after_secret {
                    true => masked.push_str(MASK),
                    false => masked.push_str(&other(Some(name), value)),
                }
            }
            None if after_secret && !pair.is_empty() => masked.push_str(MASK),
            None => masked.push_str(&other(None, pair)),
        }
        masked.push_str(separator);
        after_secret &= !separator.contains('&') && !separator.is_empty();
    }
    masked
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mask: impl Fn(&str) -> String, cases: &[(&str, &str)]) {
        for (shown, expected) in cases {
            let expected = expected.replace('$', MASK);
            assert_eq!(mask(shown), expected, "{shown}");
            assert_eq!(mask(&expected), expected, "{shown} twice");
        }
    }

    #[test]
    fn headers_keep_what_says_nothing() {
        for (name, value, expected) in [
            ("Authorization", "Bearer abc", "Bearer $"),
            ("Authorization", "abc", "$"),
            ("Authorization", "Custom abc", "Custom $"),
            ("X-Foo", "Bearer abc", "Bearer $"),
            ("X-Foo", "bearer\tabc", "bearer $"),
            ("X-Foo", "ApiKey abc", "ApiKey $"),
            ("X-Foo", "Token token=\"abc\"", "Token $"),
            ("X-Foo", "Digest username=\"me\", response=\"abc\"", "Digest $"),
            ("X-Foo", "Bearer:abc", "Bearer: $"),
            ("X-Foo", "Bearer: abc", "Bearer: $"),
            ("X-Foo", "bearer:", "bearer:"),
            ("Authentication", "abc", "$"),
            ("DPoP", "abc", "$"),
            ("Sec-WebSocket-Protocol", "bearer, abc", "$"),
            ("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.abc, v4", "$"),
            ("Sec-WebSocket-Protocol", "graphql-ws, mqtt", "graphql-ws, mqtt"),
            ("X-Foo", "bearer", "bearer"),
            ("X-Foo", "Bears eat", "Bears eat"),
            ("X-RateLimit-Remaining-Tokens", "4000", "4000"),
            ("X-Token", "4000", "$"),
            ("X-Foo", "a=1, api_key=abc", "a=1, api_key=$"),
            ("WWW-Authenticate", "Basic realm=\"shop\"", "Basic realm=\"shop\""),
            ("Cookie", "a=b; c=d;e", "a=$; c=$; $"),
            ("Set-Cookie", "a=b; Path=/; Secure", "a=$; Path=/; Secure"),
            ("Accept", "*/*", "*/*"),
            ("Host", "token:8080", "token:8080"),
            (
                "Location",
                "https://a.test/b?state=1&access_token=x#id_token=y&z=1",
                "https://a.test/b?state=1&access_token=$#id_token=$&z=1",
            ),
            ("Referer", "https://a.test/#token", "https://a.test/#token"),
            ("Referer", "https://me:pass@a.test/b", "https://$@a.test/b"),
        ] {
            assert_eq!(header(name, value), expected.replace('$', MASK), "{name}: {value}");
        }
    }

    #[test]
    fn parameters_are_masked_in_place() {
        check(
            |shown| target(shown).into_owned(),
            &[
                ("/a?x=1&token=abc&y=2", "/a?x=1&token=$&y=2"),
                ("/a?api%5Fkey=abc&token=", "/a?api%5Fkey=$&token="),
                ("/a?%74oken=abc", "/a?%74oken=$"),
                ("/token/abc", "/token/abc"),
                ("/a?x=1;token=abc;y=2", "/a?x=1;token=$;y=2"),
                ("/a?token=abc;def&y=2", "/a?token=$;$&y=2"),
                ("/a?token=abc;def==&y=2", "/a?token=$;$&y=2"),
                ("/a;token=abc/b;v=1", "/a;token=$/b;v=1"),
                ("/a;jsessionid=abc?x=1", "/a;jsessionid=$?x=1"),
                ("/a;%74oken=abc", "/a;%74oken=$"),
                ("/token=abc/b", "/token=$/b"),
                ("/a#token=abc&y=2", "/a#token=$&y=2"),
                ("/a#/b?code=abc&y=2", "/a#/b?code=$&y=2"),
                ("http://me:pass@a.test/b", "http://$@a.test/b"),
                ("//me:pass@a.test/b", "//$@a.test/b"),
                ("/a?next=http://me:pass@a.test/", "/a?next=http://$@a.test/"),
                ("/a?next=http%3A%2F%2Fa.test%2F%3Ftoken%3Dabc&y=2", "/a?next=$&y=2"),
                (
                    "/a?next=http%3A%2F%2Fa.test%2F%3Fy%3D2",
                    "/a?next=http%3A%2F%2Fa.test%2F%3Fy%3D2",
                ),
                ("/a?mail=me@a.test&y", "/a?mail=me@a.test&y"),
                ("/a?token%3Dabc&y=2", "/a?$&y=2"),
                ("/a?y%3Dabc&token", "/a?y%3Dabc&token"),
                ("/a?max_tokens=100&token=100", "/a?max_tokens=100&token=$"),
                ("*", "*"),
                ("", ""),
            ],
        );
    }

    #[test]
    fn a_key_where_a_name_belongs_is_masked() {
        for text in ["-----BEGIN PRIVATE KEY-----", "a\nb", "swordfish\r"] {
            assert_eq!(path(Path::new(text)), MASK, "{text}");
        }
        assert_eq!(path(Path::new("/srv/token=1/a key.pem")), "/srv/token=1/a key.pem");
    }

    #[test]
    fn values_are_masked_by_the_names_of_their_members() {
        let mut shown = serde_json::json!({
            "token": "abc", "empty_token": "", "a": [{"secret": [1]}, "x?token=abc"], "b": null,
            "max_tokens": 1,
        });
        value(&mut shown);
        let expected = serde_json::json!({
            "token": MASK, "empty_token": "", "a": [{"secret": MASK}, format!("x?token={MASK}")],
            "b": null, "max_tokens": 1,
        });
        assert_eq!(shown, expected);
    }
}
