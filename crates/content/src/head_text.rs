//! Heads of parts: their lines as text.

use std::borrow::Cow;

use crate::charset::Charset;

/// A header of a part.
pub(crate) type PartHeader = (String, String);

/// Decodes the head of a part: UTF-8, or else the charset of the form, or else Latin-1.
pub(crate) fn decode_head(head: &[u8], form_charset: Option<Charset>) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(head) {
        return Cow::Borrowed(text);
    }
    let named = form_charset.filter(|it| !it.is_wide()).map(|it| it.decode(head, false));
    match named.filter(|decoded| !decoded.has_errors) {
        Some(decoded) => decoded.text,
        None => Charset::LATIN_1.decode(head, false).text,
    }
}

/// Returns the headers of a head. A line that begins with a blank continues the header before it (RFC 5322,
/// section 2.2.3). A line without a colon is left out.
pub(crate) fn part_headers(head: &str) -> Vec<PartHeader> {
    let mut headers: Vec<PartHeader> = Vec::new();
    for line in head.lines() {
        let is_continued = line.starts_with([' ', '\t']);
        match (line.split_once(':'), headers.last_mut()) {
            (_, Some((_, value))) if is_continued => {
                value.push(' ');
                value.push_str(line.trim());
            }
            (Some((name, value)), _) => {
                headers.push((name.trim().to_owned(), value.trim().to_owned()));
            }
            (None, _) => {}
        }
    }
    headers
}

/// Returns the first value of a header.
pub(crate) fn find_header<'a>(headers: &'a [PartHeader], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}
