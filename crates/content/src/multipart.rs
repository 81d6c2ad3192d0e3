//! Bodies in parts (RFC 2046, section 5.1; RFC 7578), even if they are cut off.
//!
//! `multer` and `multra` cannot do this: they are asynchronous, read only `multipart/form-data`, and reject a body that is
//! cut off, as captured ones often are.

use ginnel_http1::{media_type_in, media_type_parameters};

use crate::charset::Charset;
use crate::disposition::Disposition;
use crate::head_text::{PartHeader, decode_head, find_header, part_headers};

/// The largest number of parts that are split off.
const MAX_PARTS: usize = 2000;
/// The largest boundary that is searched for. RFC 2046 allows 70 bytes.
const MAX_BOUNDARY_BYTES: usize = 250;
/// The largest head of a part.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// The field of a form that names its charset (RFC 7578, section 4.6).
const CHARSET_FIELD: &str = "_charset_";
/// The longest value of that field.
const MAX_LABEL_BYTES: usize = 60;

/// A body that was split into parts.
#[derive(Debug)]
pub struct Multipart<'a> {
    /// The boundary, without the hyphens in front of it.
    pub boundary: String,
    /// The text before the first part. Readers ignore it.
    pub preamble: &'a [u8],
    /// The parts in their order.
    pub parts: Vec<BodyPart<'a>>,
    /// The text after the last part. Readers ignore it.
    pub epilogue: &'a [u8],
    /// If true, the last boundary is there, so that the last part is complete.
    pub is_whole: bool,
    /// If true, there are more parts, which were not split off.
    pub has_more: bool,
}

/// A part of a body.
#[derive(Debug)]
pub struct BodyPart<'a> {
    /// The lines in front of the content, as text.
    pub head: String,
    /// The headers in the head.
    pub headers: Vec<(String, String)>,
    /// The name of the field.
    pub name: Option<String>,
    /// The name of the file.
    pub file_name: Option<String>,
    /// The value of `Content-Type`, or an empty text.
    pub content_type: String,
    /// The content.
    pub bytes: &'a [u8],
    /// If true, the end of the part is missing.
    pub is_cut: bool,
    /// The charset of parts that name none, from a field `_charset_` or from the header of the body.
    pub form_charset: Option<Charset>,
}

/// A field of a form that is written in parts.
#[derive(Debug)]
pub struct FormField<'f> {
    /// The name of the field.
    pub name: &'f str,
    /// The name of the file.
    pub file_name: Option<&'f str>,
    /// The value of `Content-Type`.
    pub content_type: Option<&'f str>,
    /// The content.
    pub content: &'f [u8],
}

/// Writes a form in parts, with names that are quoted as browsers quote them (HTML, section 4.10.22.8).
pub fn write_form(boundary: &str, fields: &[FormField<'_>]) -> Vec<u8> {
    let quote = |text: &str| text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
    let heads = fields.iter().map(|field| {
        let mut disposition = format!("form-data; name=\"{}\"", quote(field.name));
        if let Some(file_name) = field.file_name {
            disposition += &format!("; filename=\"{}\"", quote(file_name));
        }
        let content_type = field.content_type.map(|it| it.replace(['\r', '\n'], " "));
        let named = [
            Some(("Content-Disposition", disposition)),
            content_type.map(|it| ("Content-Type", it)),
        ];
        named.into_iter().flatten().map(|(name, value)| (name.to_owned(), value)).collect()
    });
    let heads: Vec<Vec<PartHeader>> = heads.collect();
    let contents = fields.iter().map(|field| field.content);
    write_parts(boundary, heads.iter().map(Vec::as_slice).zip(contents))
}

/// Writes parts as a body.
pub fn write_parts<'p>(
    boundary: &str,
    parts: impl Iterator<Item = (&'p [(String, String)], &'p [u8])>,
) -> Vec<u8> {
    let mut body = Vec::new();
    for (headers, content) in parts {
        body.extend(format!("--{boundary}\r\n").into_bytes());
        for (name, value) in headers {
            body.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        body.extend(b"\r\n");
        body.extend(content);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--\r\n").into_bytes());
    body
}

/// Splits a body by the boundary in its `Content-Type`. Returns `None` if the body has no such boundary.
///
/// Lines may end with CR LF or LF, and a text may precede the first boundary. If the type names no boundary, the first line
/// that could be one is it.
pub fn split_parts<'a>(content_type: &str, body: &'a [u8]) -> Option<Multipart<'a>> {
    let media_type = media_type_in(content_type).to_ascii_lowercase();
    if !media_type.starts_with("multipart/") {
        return None;
    }
    let parameters = media_type_parameters(content_type);
    let parameter = |name: &str| {
        parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    };
    let boundary = match parameter("boundary").map(str::trim_end) {
        Some(boundary) if !boundary.is_empty() => boundary.to_owned(),
        _ => guess_boundary(body)?,
    };
    if boundary.len() > MAX_BOUNDARY_BYTES {
        return None;
    }
    let named = parameter("charset").and_then(|label| Charset::from_label(label, b""));
    split_by(boundary, body, named)
}

fn split_by(boundary: String, body: &[u8], named: Option<Charset>) -> Option<Multipart<'_>> {
    let mark = format!("--{boundary}").into_bytes();
    let mut delimiters = Delimiters { body, mark: &mark, at: 0 };
    let first = delimiters.next()?;
    let preamble = body.get(..first.start).unwrap_or_default();
    let (mut contents, mut start) = (Vec::new(), first.end);
    let (mut epilogue, mut is_whole, mut has_more) = (&b""[..], first.is_last, false);
    if !is_whole {
        for delimiter in delimiters.by_ref() {
            contents.push(body.get(start..delimiter.start.max(start)).unwrap_or_default());
            start = delimiter.end;
            is_whole = delimiter.is_last;
            has_more = !is_whole && contents.len() == MAX_PARTS;
            if is_whole || has_more {
                break;
            }
        }
    }
    match is_whole || has_more {
        true => epilogue = body.get(start..).unwrap_or_default(),
        false => contents.push(body.get(start..).unwrap_or_default()),
    }
    let last = contents.len();
    let mut parts: Vec<_> = contents
        .into_iter()
        .zip(1..)
        .map(|(content, number)| {
            let is_cut = number == last && !is_whole && !has_more;
            read_part(content, is_cut, named)
        })
        .collect();
    if let Some(charset) = charset_of_form(&parts) {
        for part in &mut parts {
            part.form_charset = Some(charset);
        }
    }
    Some(Multipart { boundary, preamble, parts, epilogue, is_whole, has_more })
}

/// A line with the boundary.
struct Delimiter {
    /// The place of the line end in front of the boundary, which is a part of the delimiter.
    start: usize,
    /// The place behind the line.
    end: usize,
    /// If true, two hyphens follow the boundary.
    is_last: bool,
}

struct Delimiters<'a> {
    body: &'a [u8],
    mark: &'a [u8],
    at: usize,
}

impl Iterator for Delimiters<'_> {
    type Item = Delimiter;

    fn next(&mut self) -> Option<Delimiter> {
        loop {
            let line_start = self.at;
            let rest = self.body.get(line_start..).filter(|rest| !rest.is_empty())?;
            let length =
                rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            self.at += length;
            let line = rest.get(..length).unwrap_or(rest);
            let Some(after) = line.strip_prefix(self.mark) else { continue };
            let (after, is_last) = match after.strip_prefix(b"--") {
                Some(after) => (after, true),
                None => (after, false),
            };
            // Blanks may follow the boundary (RFC 2046, section 5.1.1).
            if after.trim_ascii().is_empty() {
                let start = line_end_before(self.body, line_start);
                return Some(Delimiter { start, end: self.at, is_last });
            }
        }
    }
}

fn line_end_before(body: &[u8], at: usize) -> usize {
    match body.get(..at) {
        Some([.., b'\r', b'\n']) => at - 2,
        Some([.., b'\n']) => at - 1,
        _ => at,
    }
}

/// Finds the first line that begins with two hyphens and could be a boundary.
fn guess_boundary(body: &[u8]) -> Option<String> {
    let start = body.get(..body.len().min(MAX_HEAD_BYTES)).unwrap_or(body);
    let line = start.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"--"))?;
    let boundary = String::from_utf8(line.trim_ascii_end().to_vec()).ok()?;
    (!boundary.is_empty()).then_some(boundary)
}

fn read_part(part: &[u8], is_cut: bool, form_charset: Option<Charset>) -> BodyPart<'_> {
    let (head, bytes) = part.split_at(head_length(part));
    let head = decode_head(head, form_charset);
    let head = head.trim_matches(['\r', '\n']).to_owned();
    let headers = part_headers(&head);
    let disposition = find_header(&headers, "content-disposition").unwrap_or_default();
    let Disposition { name, file_name } = Disposition::parse(disposition);
    let content_type = find_header(&headers, "content-type").unwrap_or_default().to_owned();
    BodyPart { head, headers, name, file_name, content_type, bytes, is_cut, form_charset }
}

/// Returns the length of the head with the empty line behind it. A part that begins with an empty line has no head.
fn head_length(part: &[u8]) -> usize {
    let mut at = 0;
    for line in part.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        if matches!(line, b"\n" | b"\r\n") || at > MAX_HEAD_BYTES {
            return at;
        }
    }
    part.len()
}

fn charset_of_form(parts: &[BodyPart<'_>]) -> Option<Charset> {
    let field = parts.iter().find(|part| part.name.as_deref() == Some(CHARSET_FIELD))?;
    let label = std::str::from_utf8(field.bytes.get(..field.bytes.len().min(MAX_LABEL_BYTES))?);
    Charset::from_label(label.ok()?.trim(), b"")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=XX";
    const FORM: &str = "--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nfirst\r\n--XX\r\n\
         Content-Disposition: form-data; name=\"b\"\r\n\r\nsecond\r\n--XX--\r\n";

    /// The names and contents of the parts, and whether the end is there.
    fn split(content_type: &str, body: &[u8]) -> Option<(Vec<(String, String)>, bool)> {
        let split = split_parts(content_type, body)?;
        let pairs = split.parts.iter().map(|part| {
            let name = part.name.clone().unwrap_or_else(|| "-".to_owned());
            (name, String::from_utf8_lossy(part.bytes).into_owned())
        });
        Some((pairs.collect(), split.is_whole))
    }

    #[test]
    fn a_form_is_read_as_it_was_written() {
        let field = FormField {
            name: "a\"b\r\nc",
            file_name: Some("tea.txt"),
            content_type: Some("text/plain"),
            content: b"green\r\n--X",
        };
        let plain = FormField { name: "n", file_name: None, content_type: None, content: b"" };

        let body = write_form("XX", &[field, plain]);

        let split = split_parts(TYPE, &body).unwrap();
        let [first, second] = split.parts.as_slice() else { panic!("{split:?}") };
        assert_eq!(first.name.as_deref(), Some("a\"b\r\nc"));
        assert_eq!(first.file_name.as_deref(), Some("tea.txt"));
        assert_eq!(
            (first.content_type.as_str(), first.bytes),
            ("text/plain", &b"green\r\n--X"[..])
        );
        assert_eq!((second.name.as_deref(), second.bytes), (Some("n"), &b""[..]));
        assert!(split.is_whole);
    }

    #[test]
    fn forms_are_split_as_clients_send_them() {
        let both = [("a", "first"), ("b", "second")];
        let line_feeds = FORM.replace("\r\n", "\n");
        for (what, body, expected) in [
            ("as browsers send it", FORM.to_owned(), &both[..]),
            ("line feeds", line_feeds.clone(), &both),
            ("an empty line first", format!("\r\n{FORM}"), &both),
            ("a preamble", format!("ignore this\r\n--other\r\n{FORM}"), &both),
            ("blanks behind the boundary", FORM.replace("--XX\r\n", "--XX \t\r\n"), &both),
            ("no line behind the end", FORM.trim_end().to_owned(), &both),
            ("an epilogue", format!("{FORM}--XX\r\n\r\nmore"), &both),
            (
                "a longer line",
                FORM.replace("second", "--XXX\r\nsecond"),
                &[("a", "first"), ("b", "--XXX\r\nsecond")],
            ),
            ("an empty part", FORM.replace("first", ""), &[("a", ""), ("b", "second")]),
            ("no head", "--XX\r\n\r\nfirst\r\n--XX--".to_owned(), &[("-", "first")]),
            ("no line before the end", "--XX\r\n--XX--".to_owned(), &[("-", "")]),
            ("only the end", "--XX--\r\n".to_owned(), &[]),
        ] {
            let (found, is_whole) = split(TYPE, body.as_bytes()).unwrap();

            let found: Vec<_> = found.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!((found.as_slice(), is_whole), (expected, true), "{what}");
        }
    }

    #[test]
    fn a_body_that_is_cut_off_has_parts_as_far_as_it_goes() {
        for length in 4..FORM.trim_end().len() {
            let (found, is_whole) = split(TYPE, &FORM.as_bytes()[..length]).unwrap();

            assert!(!is_whole, "{length}");
            assert!(found.iter().all(|(name, _)| ["a", "b", "-", ""].contains(&name.as_str())));
        }
        let cut = split_parts(TYPE, &FORM.as_bytes()[..FORM.find("ond").unwrap()]).unwrap();
        let seen: Vec<_> = cut.parts.iter().map(|part| (part.is_cut, part.bytes)).collect();
        assert_eq!(seen, [(false, &b"first"[..]), (true, b"sec")]);
    }

    #[test]
    fn the_boundary_is_that_of_the_header() {
        for (content_type, is_split) in [
            ("multipart/form-data; boundary=\"XX\"", true),
            ("Multipart/Mixed; charset=utf-8; BOUNDARY=XX", true),
            ("multipart/related;boundary=XX ", true),
            ("multipart/form-data", true),
            ("multipart/form-data; boundary=", true),
            ("multipart/form-data; boundary=X", false),
            ("multipart/form-data; boundary=xx", false),
            ("text/plain; boundary=XX", false),
        ] {
            assert_eq!(
                split_parts(content_type, FORM.as_bytes()).is_some(),
                is_split,
                "{content_type}"
            );
        }
        assert!(split_parts(TYPE, b"no parts").is_none());
        assert!(split_parts(TYPE, b"").is_none());
        let odd = FORM.replace("XX", "a:b=c'(d)");
        assert!(split("multipart/form-data; boundary=\"a:b=c'(d)\"", odd.as_bytes()).is_some());
    }

    #[test]
    fn heads_may_be_folded_and_in_other_charsets() {
        let body = b"--XX\r\nContent-Disposition: form-data;\r\n name=\"Gr\xf6\xdfe\"\r\nX: 1\r\n\r\n1\r\n--XX--";
        assert_eq!(split(TYPE, body).unwrap().0, [("Größe".to_owned(), "1".to_owned())]);
        let named = "multipart/form-data; boundary=XX; charset=shift_jis";
        let body = b"--XX\nContent-Disposition: form-data; name=\"\x8c\x8e\"\n\n1\n--XX--";
        assert_eq!(split(named, body).unwrap().0, [("月".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn a_field_names_the_charset_of_the_form() {
        let body = FORM.replace("name=\"a\"", "name=\"_charset_\"").replace("first", "gbk");
        let split = split_parts(TYPE, body.as_bytes()).unwrap();
        let charset = Charset::from_label("gbk", b"");
        assert!(split.parts.iter().all(|part| part.form_charset == charset));
    }

    #[test]
    fn many_parts_are_split_up_to_a_limit() {
        let body = "--XX\r\n\r\na\r\n".repeat(5000) + "--XX--";
        let split = split_parts(TYPE, body.as_bytes()).unwrap();
        assert_eq!((split.parts.len(), split.has_more), (MAX_PARTS, true));
    }
}
