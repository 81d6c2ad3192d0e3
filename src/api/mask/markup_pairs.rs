//! Elements of XML that have the name and the value of a secret: `<name>password</name><value>x</value>`, and in
//! property lists `<key>password</key><string>x</string>`.

use std::collections::BTreeMap;

use super::markup::{VOID_ELEMENTS, length, local, tag_name};
use super::name_value::{PairRole, pair_role};
use crate::api::secrets::is_secret;

/// The element of property lists whose value is the next element, whatever that is called.
const KEY: &str = "key";
/// The largest depth of elements that are kept apart.
const MAX_DEPTH: usize = 256;

/// Returns the names of secrets by the places of the tags whose elements have the values.
pub(super) fn secret_values(text: &str) -> BTreeMap<usize, &str> {
    let mut found = BTreeMap::new();
    let mut open = vec![Element::new("", 0)];
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let piece = rest.get(..length(rest)).unwrap_or(rest);
        match piece.as_bytes() {
            [b'<', b'/', ..] => end_tag(piece, &mut open, &mut found),
            [b'<', b'?', ..] => {}
            [b'<', b'!', ..] => add_text(&mut open, cdata(piece)),
            [b'<', ..] => start_tag(piece, at, &mut open, &mut found),
            _ => add_text(&mut open, piece),
        }
        at += piece.len();
    }
    while !open.is_empty() {
        close(&mut open, &mut found);
    }
    found
}

/// An element that is open.
struct Element<'a> {
    name: &'a str,
    /// The place of its tag.
    start: usize,
    /// The first text in it.
    text: &'a str,
    /// The name of a secret that a child has.
    secret: Option<&'a str>,
    /// The name of a secret, if the last child was a key that has it.
    key: Option<&'a str>,
    /// The children that have values.
    values: Vec<usize>,
}

impl<'a> Element<'a> {
    fn new(name: &'a str, start: usize) -> Self {
        Self { name, start, text: "", secret: None, key: None, values: Vec::new() }
    }
}

fn cdata(piece: &str) -> &str {
    piece.strip_prefix("<![CDATA[").map_or("", |text| text.trim_end_matches("]]>"))
}

fn add_text<'a>(open: &mut [Element<'a>], text: &'a str) {
    if let Some(element) = open.last_mut()
        && element.text.is_empty()
    {
        element.text = text.trim();
    }
}

fn start_tag<'a>(
    piece: &'a str,
    at: usize,
    open: &mut Vec<Element<'a>>,
    found: &mut BTreeMap<usize, &'a str>,
) {
    let name = tag_name(piece);
    if let Some(parent) = open.last_mut()
        && let Some(secret) = parent.key.take()
        && !local(name).eq_ignore_ascii_case(KEY)
    {
        found.insert(at, secret);
    }
    let is_void = VOID_ELEMENTS.iter().any(|known| name.eq_ignore_ascii_case(known));
    if !piece.ends_with("/>") && !is_void && open.len() < MAX_DEPTH {
        open.push(Element::new(name, at));
    }
}

fn end_tag<'a>(piece: &str, open: &mut Vec<Element<'a>>, found: &mut BTreeMap<usize, &'a str>) {
    let name = piece.trim_start_matches("</").trim_end_matches('>').trim();
    let is_it = |element: &Element<'_>| element.name.eq_ignore_ascii_case(name);
    let Some(depth) = open.iter().rposition(is_it).filter(|depth| *depth > 0) else { return };
    while open.len() > depth {
        close(open, found);
    }
}

/// Closes the innermost element.
fn close<'a>(open: &mut Vec<Element<'a>>, found: &mut BTreeMap<usize, &'a str>) {
    let Some(element) = open.pop() else { return };
    if let Some(secret) = element.secret {
        found.extend(element.values.into_iter().map(|value| (value, secret)));
    }
    let Some(parent) = open.last_mut() else { return };
    let name = local(element.name);
    match pair_role(name) {
        Some(PairRole::Name) if is_secret(element.text) => {
            parent.secret = Some(element.text);
            parent.key = name.eq_ignore_ascii_case(KEY).then_some(element.text);
        }
        Some(PairRole::Value) => parent.values.push(element.start),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::MASK;
    use super::super::markup::masked;

    #[test]
    fn values_in_pairs_with_a_secret_name_are_hidden() {
        for (source, expected) in [
            (
                "<dict><key>password</key><string>fish</string><key>b</key><true/></dict>",
                "<dict><key>#</key><string>#</string><key>#</key><true/></dict>",
            ),
            (
                "<key>tokens</key>\n<array><string>fish</string></array><a>kept</a>",
                "<key>#</key>\n<array>#</array><a>kept</a>",
            ),
            (
                "<p><name>password</name><value>fish</value></p><p><value>kept</value></p>",
                "<p><name>password</name><value>#</value></p><p><value>kept</value></p>",
            ),
            (
                "<p><x:value><b>fish</b></x:value><x:name>password</x:name></p>",
                "<p><x:value>#</x:value><x:name>password</x:name></p>",
            ),
            (
                "<p><name><![CDATA[password]]></name><value>fi",
                "<p><name><![CDATA[password]]></name><value>#",
            ),
            (
                "<p><name>shop</name><value>kept</value></p>",
                "<p><name>shop</name><value>kept</value></p>",
            ),
            (
                "<p><name>max_tokens</name><value>5</value></p>",
                "<p><name>max_tokens</name><value>5</value></p>",
            ),
        ] {
            assert_eq!(masked(source), expected.replace('#', MASK), "{source}");
        }
    }
}
