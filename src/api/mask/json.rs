//! JSON, even where it is cut off.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::{MASK, text};
use crate::api::secrets::is_secret;

/// The text of some JSON: members with the names of secrets are masked whatever they are, and all other
/// strings as texts are. Nothing else changes, unless it is no JSON: then it is masked as a text too.
pub fn json(source: &str) -> String {
    let masked = members(source);
    match serde_json::from_str::<IgnoredAny>(source) {
        Err(error) if error.is_syntax() => text(&masked).into_owned(),
        _ => masked,
    }
}

fn members(source: &str) -> String {
    let mut masked = String::with_capacity(source.len());
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = next_string(source, at) {
        at = found.end;
        let (place, instead) = match value_after(source, found.end) {
            // What follows is a value: it is looked at next.
            NextToken::Member(_)
                if !is_secret(&name(source.get(found.clone()).unwrap_or_default())) =>
            {
                continue;
            }
            NextToken::Member(Some(value)) => (value, Some(format!("\"{MASK}\""))),
            NextToken::Member(None) => continue,
            NextToken::Other => (found.clone(), string(source.get(found).unwrap_or_default())),
        };
        let Some(instead) = instead else { continue };
        masked.push_str(source.get(copied..place.start).unwrap_or_default());
        masked.push_str(&instead);
        copied = place.end;
        at = place.end;
    }
    masked.push_str(source.get(copied..).unwrap_or_default());
    masked
}

/// Masks what is secret in a value, as [`json`] does.
pub fn value(shown: &mut Value) {
    match shown {
        Value::Object(members) => {
            for (name, member) in members {
                let is_empty = member.is_null() || member.as_str().is_some_and(str::is_empty);
                match is_secret(name) && !is_empty {
                    true => *member = MASK.into(),
                    false => value(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(value),
        Value::String(inner) => *inner = text(inner).into_owned(),
        _ => {}
    }
}

/// The name of a member, which stands in quotes and may be written with escapes.
fn name(quoted: &str) -> Cow<'_, str> {
    let read = || serde_json::from_str(quoted).ok().map(Cow::Owned);
    quoted.contains('\\').then(read).flatten().unwrap_or(quoted.into())
}

/// A string with its quotes, masked; none where there is nothing to mask.
fn string(quoted: &str) -> Option<String> {
    let Ok(inner) = serde_json::from_str::<String>(quoted) else {
        // It is cut off.
        let masked = text(quoted);
        return (masked != quoted).then(|| masked.into_owned());
    };
    let masked = text(&inner);
    if masked == inner.as_str() {
        return None;
    }
    serde_json::to_string(&masked).ok()
}

/// What comes after a string.
enum NextToken {
    /// A colon, so the string is the name of a member, and its value if there is one.
    Member(Option<Range<usize>>),
    /// Something else.
    Other,
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

/// Where the list or object ends that starts here; at the end of the text when it is cut off.
fn nested_end(text: &str, start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => {
                at = string_end(text, at);
                continue;
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 1 => return at + 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// The value of the key that ends here.
fn value_after(text: &str, key_end: usize) -> NextToken {
    let rest = text.get(key_end..).unwrap_or_default();
    match rest.trim_start().strip_prefix(':') {
        Some(after) => NextToken::Member(member(text, text.len() - after.trim_start().len())),
        None => NextToken::Other,
    }
}

fn member(text: &str, start: usize) -> Option<Range<usize>> {
    let after = text.get(start..)?;
    match after.bytes().next()? {
        b'"' => Some(start..string_end(text, start)),
        b'[' | b'{' => Some(start..nested_end(text, start)),
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
    fn members_are_masked_and_nothing_else_changes() {
        let text = r#"{ "user": "token", "password" : "a\"b", "n": {"secret": 12, "x": [1.50]} }"#;
        let expected = r#"{ "user": "token", "password" : "#.to_owned()
            + "\"••••••\", \"n\": {\"secret\": \"••••••\", \"x\": [1.50]} }";

        assert_eq!(json(text), expected);
        assert_eq!(
            json(r#"{"tokens": ["a]", 2], "keys": ["b"], "secrets": [{"x": 1}, ["y"#),
            "{\"tokens\": \"••••••\", \"keys\": [\"b\"], \"secrets\": \"••••••\""
        );
        assert_eq!(
            json(r#"{"password": {"a": "}", "b": [1]}, "pass\u0077ord": "x", "c": {"d": 1}}"#),
            "{\"password\": \"••••••\", \"pass\\u0077ord\": \"••••••\", \"c\": {\"d\": 1}}"
        );
        assert_eq!(json("{'password': 'a', pin:\"b\"}"), "{'password': ••••••, pin:••••••}");
        assert_eq!(json(r#"{"token": "cut of"#), "{\"token\": \"••••••\"");
        assert_eq!(json("\"token"), "\"token");
    }

    #[test]
    fn strings_are_masked_as_texts() {
        for (source, expected) in [
            (r#"{"a": "Bearer swordfish"}"#, r#"{"a": "Bearer #"}"#),
            (r#"["x", "https://me:pass@a.test/"]"#, r##"["x", "https://#@a.test/"]"##),
            (r#"{"a": "say \"token=abc\" twice"}"#, r#"{"a": "say \"token=#\" twice"}"#),
            (r#"{"a": "token=ab"#, r#"{"a": "token=#"#),
            (r#"{"a": "b", "c": ["d"]}"#, r#"{"a": "b", "c": ["d"]}"#),
        ] {
            assert_eq!(json(source), expected.replace('#', MASK), "{source}");
        }
    }
}
