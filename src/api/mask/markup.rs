//! Masks secrets in XML, even where it is cut off.

use super::MASK;
use crate::api::secrets::is_secret;

/// The text with the attributes masked whose names are secret, and what stands in elements that are.
/// An element is secret by its own name, or by that which an attribute gives it.
pub(super) fn masked(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut secret = false;
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(length(rest));
        rest = after;
        match piece.as_bytes() {
            [b'<', b'?', ..] => masked.push_str(piece),
            [b'<', b'!', ..] if !piece.starts_with(CDATA.0) => masked.push_str(piece),
            [b'<', b'!', ..] if secret => masked.push_str(MASK),
            [b'<', b'!', ..] => masked.push_str(piece),
            [b'<', b'/', ..] => {
                secret = false;
                masked.push_str(piece);
            }
            [b'<', ..] => secret = tag(piece, &mut masked) && !piece.ends_with("/>"),
            _ if secret && !piece.trim().is_empty() => masked.push_str(MASK),
            _ => masked.push_str(piece),
        }
    }
    masked
}

const CDATA: (&str, &str) = ("<![CDATA[", "]]>");

/// How long what the text begins with is: a tag, a comment and its like, or text until the next.
fn length(text: &str) -> usize {
    for (start, end) in [CDATA, ("<!--", "-->"), ("<?", "?>")] {
        if text.starts_with(start) {
            return text.find(end).map_or(text.len(), |at| at + end.len());
        }
    }
    if !text.starts_with('<') {
        return text.find('<').unwrap_or(text.len());
    }
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match (quote, byte) {
            (None, b'>') => return at + 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            // A tag does not reach into the next one.
            (_, b'<') => return at,
            _ => {}
        }
    }
    text.len()
}

/// Attributes that hold what a form or a page says, under the name that another attribute gives.
const VALUES: [&str; 2] = ["value", "content"];

/// Writes a tag with its secret attributes masked; whether its element is secret.
fn tag(piece: &str, masked: &mut String) -> bool {
    let name_end = piece.find([' ', '\t', '\r', '\n', '/', '>']).unwrap_or(piece.len());
    let (name, attributes) = piece.split_at(name_end);
    let mut is_named = false;
    each_attribute(attributes, |_, name, value| {
        is_named |= name.eq_ignore_ascii_case("name") && is_secret(value.0);
    });
    masked.push_str(name);
    let rest = each_attribute(attributes, |before, name, (value, quote, end)| {
        let is_value = VALUES.iter().any(|known| name.eq_ignore_ascii_case(known));
        let is_masked = (is_secret(name) || is_named && is_value) && !value.is_empty();
        masked.extend([before, quote, if is_masked { MASK } else { value }, end]);
    });
    masked.push_str(rest);
    is_named || is_secret(local(name.trim_start_matches('<')))
}

/// Goes through attributes whose values are in quotes: what stands before the value, the name, and the
/// value with its quotes, of which the second is empty where it is cut off. What is left has none.
fn each_attribute<'a>(
    mut rest: &'a str,
    mut each: impl FnMut(&'a str, &'a str, (&'a str, &'a str, &'a str)),
) -> &'a str {
    while let Some(start) = rest.find(['"', '\'']) {
        let (before, quoted) = rest.split_at(start);
        let (quote, value) = quoted.split_at(1);
        let (value, after) = value.split_at(value.find(quote).unwrap_or(value.len()));
        let name = before.trim_end().trim_end_matches('=').split_whitespace().next_back();
        let end = if after.is_empty() { "" } else { quote };
        each(before, local(name.unwrap_or_default()), (value, quote, end));
        rest = after.strip_prefix(quote).unwrap_or_default();
    }
    rest
}

/// A name without its namespace.
fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_attributes_are_masked_and_nothing_else_changes() {
        for (text, expected) in [
            ("<a><b>1</b><Token x='1'>abc</Token></a>", "<a><b>1</b><Token x='1'>#</Token></a>"),
            ("<s:password>a&lt;b</s:password>", "<s:password>#</s:password>"),
            ("<p name=\"password\">abc</p>", "<p name=\"password\">#</p>"),
            ("<a key=\"k\" b='>' apiKey='abc'/>c", "<a key=\"#\" b='>' apiKey='#'/>c"),
            ("<input name=\"password\" value=\"abc\">d", "<input name=\"password\" value=\"#\">#"),
            ("<meta content='abc' name='csrf-token'/>d", "<meta content='#' name='csrf-token'/>d"),
            ("<input name='user' value='shown'>", "<input name='user' value='shown'>"),
            ("<secret> <in>shown</in> </secret>", "<secret> <in>shown</in> </secret>"),
            ("<pwd><![CDATA[a]]b]]></pwd>", "<pwd>#</pwd>"),
            ("<pwd/>shown", "<pwd/>shown"),
            ("<!-- <pwd> --><?pi a='>'?>shown", "<!-- <pwd> --><?pi a='>'?>shown"),
            ("<pwd>cut o", "<pwd>#"),
            ("<pwd><![CDATA[cut o", "<pwd>#"),
            ("<a token='cut o", "<a token='#"),
            ("<a b='<pwd>abc</pwd>", "<a b='<pwd>#</pwd>"),
            ("<", "<"),
            ("", ""),
        ] {
            assert_eq!(masked(text), expected.replace('#', MASK), "{text}");
        }
    }
}
