//! Escapes in quoted texts of JSON, YAML and JavaScript, and references to characters in XML.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use percent_encoding::percent_decode_str;

use super::work;

/// The longest reference to a character or an entity, in bytes.
const MAX_REFERENCE_BYTES: usize = 64;
/// The largest number of bytes that entities add to one text.
const MAX_RESOLVED_BYTES: usize = 4096;
/// The replacement of an entity that is not read, because the entity may be a part of the name of a secret.
const UNREAD_ENTITY: &str = "secret";
/// How many entities may be inside each other.
const MAX_ENTITY_DEPTH: u8 = 4;

/// Returns a text with its escapes read. Escapes that are not known stay.
pub(super) fn unescape_text(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let mut read = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            read.push(letter);
            continue;
        }
        match letters.next() {
            Some('x') => read.extend(read_code_point(&mut letters, 2)),
            Some('u') => read.extend(read_code_point(&mut letters, 4)),
            Some('U') => read.extend(read_code_point(&mut letters, 8)),
            Some('n') => read.push('\n'),
            Some('t') => read.push('\t'),
            Some('r') => read.push('\r'),
            Some('_' | 'N' | 'L' | 'P') => read.push(' '),
            // A line that continues.
            Some('\n') | None => {}
            Some(other) => read.push(other),
        }
    }
    read.into()
}

/// Reads the digits of an escape. JavaScript may have them in braces.
fn read_code_point(letters: &mut Peekable<Chars<'_>>, length: usize) -> Option<char> {
    let is_braced = letters.next_if_eq(&'{').is_some();
    let mut number = 0;
    for _ in 0..if is_braced { 8 } else { length } {
        let Some(digit) = letters.next_if(char::is_ascii_hexdigit) else { break };
        number = number * 16 + digit.to_digit(16)?;
    }
    if is_braced {
        letters.next_if_eq(&'}');
    }
    char::from_u32(number)
}

/// The entities of a document.
#[derive(Debug, Default)]
pub(super) struct Entities<'a> {
    texts: BTreeMap<&'a str, &'a str>,
    /// The number of bytes that entities may still add to the texts of the document.
    budget: Cell<usize>,
}

impl<'a> Entities<'a> {
    /// `texts` are the texts of entities by their names. All of them together add at most `budget` bytes.
    pub fn new(texts: BTreeMap<&'a str, &'a str>, budget: usize) -> Self {
        Self { texts, budget: Cell::new(budget) }
    }

    fn spend_budget(&self, bytes: usize) -> bool {
        let left = self.budget.get().checked_sub(bytes);
        self.budget.set(left.unwrap_or(self.budget.get()));
        left.is_some()
    }
}

/// Returns a text of XML or HTML with its references read. References that are not known stay.
pub(super) fn resolve_references<'a>(text: &'a str, entities: &Entities<'_>) -> Cow<'a, str> {
    if !text.contains('&') {
        return text.into();
    }
    let mut read = String::with_capacity(text.len());
    let limit = text.len() + MAX_RESOLVED_BYTES;
    append_resolved(text, entities, (MAX_ENTITY_DEPTH, limit), &mut read);
    read.into()
}

/// Reads the references of a text. The limit is that of the bytes in `read`.
fn append_resolved(
    text: &str,
    entities: &Entities<'_>,
    (depth, limit): (u8, usize),
    read: &mut String,
) {
    work::count_bytes(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, after) = rest.split_at(at);
        read.push_str(before);
        let name = after.get(1..).unwrap_or_default();
        let end = name.bytes().take(MAX_REFERENCE_BYTES).position(|byte| byte == b';');
        let name = end.and_then(|end| name.get(..end));
        let length = name.map_or(0, |name| name.len() + 2);
        let inner = name.and_then(|name| entities.texts.get(name));
        let may_read = |inner: &str| {
            depth > 0 && read.len() + inner.len() <= limit && entities.spend_budget(inner.len())
        };
        let length = match (name.and_then(reference_character), inner) {
            (Some(letter), _) => {
                read.push(letter);
                length
            }
            (None, Some(inner)) if may_read(inner) => {
                append_resolved(inner, entities, (depth - 1, limit), read);
                length
            }
            (None, Some(_)) => {
                read.push_str(UNREAD_ENTITY);
                length
            }
            (None, None) => {
                read.push('&');
                1
            }
        };
        rest = after.get(length..).unwrap_or_default();
    }
    read.push_str(rest);
}

fn reference_character(name: &str) -> Option<char> {
    let Some(number) = name.strip_prefix('#') else {
        return match name {
            "amp" | "AMP" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            "colon" => Some(':'),
            "equals" => Some('='),
            "lowbar" => Some('_'),
            "nbsp" | "Tab" | "NewLine" => Some(' '),
            _ => None,
        };
    };
    let number = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    };
    char::from_u32(number?)
}

/// Returns a text as XML and HTML write it.
pub(super) fn escape_markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A text without percent encoding.
pub(super) fn percent_decoded(name: &str) -> Cow<'_, str> {
    percent_decode_str(name).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_all_notations_are_read() {
        for (text, expected) in [
            (r"pass\x77ord", "password"),
            (r"pass\u0077ord", "password"),
            (r"pass\u{77}ord", "password"),
            (r"pass\U00000077ord", "password"),
            (r"pass\word", "password"),
            (r"a\x", "a\0"),
            (r"a\", "a"),
            ("a", "a"),
        ] {
            assert_eq!(unescape_text(text), expected, "{text}");
        }
    }

    #[test]
    fn references_are_read() {
        let long = "a".repeat(MAX_RESOLVED_BYTES + 100);
        let texts = [("w", "&#119;"), ("loop", "a&loop;&loop;"), ("long", &long)];
        let entities = Entities::new(texts.into(), 10_000);
        for (text, expected) in [
            ("pass&#119;ord", "password"),
            ("pass&#x77;ord", "password"),
            ("pass&w;ord", "password"),
            ("a &amp; b & c &no; &#xffffffff;", "a & b & c &no; &#xffffffff;"),
        ] {
            assert_eq!(resolve_references(text, &entities), expected, "{text}");
        }
        assert!(resolve_references("&loop;", &entities).len() < 2 * MAX_RESOLVED_BYTES);
        assert_eq!(resolve_references("a&long;b", &entities), "asecretb");
        let spent = Entities::new(texts.into(), 11);
        assert_eq!(resolve_references("&w;&w;", &spent), "wsecret");
    }
}
