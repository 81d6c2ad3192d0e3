//! The pieces of XML and HTML: tags, comments and their like, and texts.

use super::work;

/// Elements that have no end tag in HTML. XML has some of them with content, such as `param`.
pub(super) const VOID_ELEMENTS: [&str; 13] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "wbr",
];
/// Elements of HTML whose content is not markup.
pub(super) const RAW_ELEMENTS: [&str; 2] = ["script", "style"];
/// Contents of the types of scripts that are markup.
const TEMPLATE_TYPES: [&str; 2] = ["template", "text/x-"];
/// The marks of a page of HTML, which are near its beginning.
const PAGE_MARKS: [&str; 2] = ["<html", "<!doctype html"];
const MAX_MARK_BYTES: usize = 1024;
const CDATA: (&str, &str) = ("<![CDATA[", "]]>");

/// Iterates over the pieces of a text with their places. No byte is searched more than a few times.
pub(super) struct Pieces<'a> {
    text: &'a str,
    at: usize,
    is_page: bool,
    /// The element whose content is not markup, if one is open.
    raw: Option<&'static str>,
    /// Such elements that have no end tag in the rest of the text.
    unclosed: Vec<&'static str>,
}

impl<'a> Pieces<'a> {
    pub fn of(text: &'a str) -> Self {
        Self { text, at: 0, is_page: is_page(text), raw: None, unclosed: Vec::new() }
    }

    fn next_length(&mut self, rest: &str) -> usize {
        let raw = self.raw.take().filter(|name| !self.unclosed.contains(name));
        match raw.map(|name| (name, raw_length(rest, name))) {
            Some((_, Some(length))) if length > 0 => length,
            Some((name, None)) => {
                self.unclosed.push(name);
                first_piece_length(rest)
            }
            _ => first_piece_length(rest),
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let piece = rest.get(..self.next_length(rest)).unwrap_or(rest);
        work::count_bytes(piece.len());
        if self.is_page && piece.starts_with('<') {
            self.raw = raw_element(piece);
        }
        let place = self.at;
        self.at += piece.len();
        Some((place, piece))
    }
}

fn raw_element(tag: &str) -> Option<&'static str> {
    let name = tag_name(tag);
    let raw = RAW_ELEMENTS.into_iter().find(|known| name.eq_ignore_ascii_case(known))?;
    let is_template = TEMPLATE_TYPES.iter().any(|known| tag.contains(known));
    (!tag.starts_with("</") && !tag.ends_with("/>") && !is_template).then_some(raw)
}

/// Returns the length of the content of an element that is not markup; `None` if it has no end tag.
pub(super) fn raw_length(rest: &str, name: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = rest.get(at..).and_then(|rest| rest.find("</")) {
        at += found;
        let end = rest.get(at + 2..at + 2 + name.len());
        if end.is_some_and(|end| end.eq_ignore_ascii_case(name)) {
            work::count_bytes(at);
            return Some(at);
        }
        at += 2;
    }
    work::count_bytes(rest.len());
    None
}

/// Returns true for a page of HTML.
pub(super) fn is_page(text: &str) -> bool {
    let mut end = text.len().min(MAX_MARK_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let start = text.get(..end).unwrap_or_default().to_ascii_lowercase();
    PAGE_MARKS.iter().any(|mark| start.contains(mark))
}

/// Returns the length of the first piece: a tag, a comment and its like, or text until the next.
fn first_piece_length(text: &str) -> usize {
    for (start, end) in [CDATA, ("<!--", "-->"), ("<?", "?>")] {
        if text.starts_with(start) {
            return text.find(end).map_or(text.len(), |at| at + end.len());
        }
    }
    if !begins_tag(text.as_bytes()) {
        return text_length(text.as_bytes());
    }
    // The text of an entity may be markup.
    let may_contain_tags = text.starts_with("<!ENTITY");
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match (quote, byte) {
            (None, b'>') => return at + 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            (Some(_), b'<') if may_contain_tags => {}
            // A tag does not reach into the next one.
            (_, b'<') => return at,
            _ => {}
        }
    }
    text.len()
}

fn begins_tag(text: &[u8]) -> bool {
    let is_start =
        |byte: u8| byte.is_ascii_alphabetic() || byte >= 0x80 || b"_:/!?".contains(&byte);
    matches!(text, [b'<', next, ..] if is_start(*next)) || text == b"<"
}

fn text_length(text: &[u8]) -> usize {
    let mut places = text.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'<');
    let found = places.find(|(at, _)| text.get(*at..).is_some_and(begins_tag));
    found.map_or(text.len(), |(at, _)| at)
}

/// Returns the name of a tag, with its namespace.
pub(super) fn tag_name(tag: &str) -> &str {
    let name = tag.trim_start_matches('<');
    name.get(..name.find([' ', '\t', '\r', '\n', '/', '>']).unwrap_or(name.len())).unwrap_or(name)
}

/// Returns a name without its namespace.
pub(super) fn local_name(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_at_tags() {
        for (text, expected) in [
            ("<a b='>'>c</a>", vec!["<a b='>'>", "c", "</a>"]),
            ("a < b <c <d>", vec!["a < b ", "<c ", "<d>"]),
            ("<!-- <a> --><![CDATA[<b>]]>", vec!["<!-- <a> -->", "<![CDATA[<b>]]>"]),
            ("<!ENTITY a '<b>'>", vec!["<!ENTITY a '<b>'>"]),
            ("<html><script>a<b</b></SCRIPT>", vec!["<html>", "<script>", "a<b</b>", "</SCRIPT>"]),
            ("<html><script></script>", vec!["<html>", "<script>", "</script>"]),
            ("<script><b>", vec!["<script>", "<b>"]),
            ("<<<", vec!["<<", "<"]),
        ] {
            let pieces: Vec<_> = Pieces::of(text).map(|(_, piece)| piece).collect();
            assert_eq!(pieces, expected, "{text}");
        }
    }
}
