//! Readable bodies without secrets: what pages, exports, copies and cards show.

use ginnel_api::mask::{self, CallMask, CallSide, MASK};
use ginnel_content::form::form_pairs;
use ginnel_content::multipart::write_parts;
use ginnel_content::{BodyKind, BodyPart, Multipart, ReadableBody, split_parts};

/// A body, or its parts, with secrets masked unless they are to be shown.
#[derive(Debug, Default)]
pub struct MaskedBody {
    /// The text; `None` if the body is not text.
    pub text: Option<String>,
    /// The names and values of a form in one line.
    pub pairs: Vec<(String, String)>,
    /// The parts of a body in parts.
    pub parts: Vec<MaskedPart>,
    /// If true, the last part is complete. Other bodies have no such end.
    pub is_whole: bool,
    /// The content without its codings, for a body that is not text; empty if it is hidden.
    pub bytes: Vec<u8>,
    /// The body to send instead of the masked one, without its codings; `None` if nothing is masked.
    pub replacement: Option<Vec<u8>>,
    /// If true, the body is not shown, because it may have secrets that cannot be found.
    pub is_hidden: bool,
}

/// A part of a body.
#[derive(Debug)]
pub struct MaskedPart {
    /// The headers in their order.
    pub headers: Vec<(String, String)>,
    /// The name of the field.
    pub name: Option<String>,
    /// The name of the file.
    pub file_name: Option<String>,
    /// The media type in lower case; empty if the head has none.
    pub media_type: String,
    /// The kind of the content.
    pub kind: BodyKind,
    /// The text; `None` if the content is not text.
    pub text: Option<String>,
    /// The content, if it is not text.
    pub bytes: Vec<u8>,
    /// The number of bytes of the content as it was sent.
    pub size: usize,
}

impl MaskedBody {
    /// Masks a body of a call, of which it is `side`.
    pub fn new(body: &ReadableBody<'_>, call: &CallMask, side: CallSide, reveal: bool) -> Self {
        if let Some(split) = body.parts() {
            return Self::from_parts(&split, reveal);
        }
        if !body.is_text() {
            return Self::from_bytes(body, call, side, reveal);
        }
        let text = body.text();
        let masked = match reveal {
            true => None,
            false => call.body(body.masking_type(), text.as_bytes(), side),
        };
        let masked = masked.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let pairs = body.form().filter(|_| body.kind() == BodyKind::Form);
        Self {
            pairs: pairs.map_or_else(Vec::new, |pairs| masked_pairs(pairs, reveal)),
            // The charset may not have the letters of the mask.
            replacement: masked
                .as_ref()
                .map(|text| body.encode_text(text).unwrap_or_else(|_| text.clone().into_bytes())),
            text: Some(masked.unwrap_or_else(|| text.into_owned())),
            ..Self::default()
        }
    }

    /// Masks a body that is not text. A coding that cannot be removed may hide secrets.
    fn from_bytes(body: &ReadableBody<'_>, call: &CallMask, side: CallSide, reveal: bool) -> Self {
        if !reveal && body.unread_coding().is_some() && body.kind() != BodyKind::Empty {
            return Self { is_hidden: true, replacement: Some(Vec::new()), ..Self::default() };
        }
        let masked = match reveal {
            true => None,
            false => call.body(body.masking_type(), body.bytes(), side),
        };
        let bytes = masked.clone().unwrap_or_else(|| body.bytes().to_vec());
        Self { bytes, replacement: masked, ..Self::default() }
    }

    fn from_parts(split: &Multipart<'_>, reveal: bool) -> Self {
        let read: Vec<_> = split.parts.iter().map(ReadableBody::read_part).collect();
        let contents: Vec<Vec<u8>> = read.iter().map(readable_bytes).collect();
        let masked = if reveal { None } else { mask_parts(split, &contents) };
        let shown = masked.as_ref().unwrap_or(&contents);
        let parts = split.parts.iter().zip(&read).zip(shown);
        let parts: Vec<_> =
            parts.map(|((part, body), bytes)| MaskedPart::new(part, body, bytes, reveal)).collect();
        let has_secrets = !reveal && has_secrets_around(split);
        let replacement = (masked.is_some() || has_secrets).then(|| {
            let heads = parts.iter().map(|part| part.headers.as_slice());
            write_parts(&split.boundary, heads.zip(shown.iter().map(Vec::as_slice)))
        });
        Self { parts, is_whole: split.is_whole, replacement, ..Self::default() }
    }

    /// Returns true if something of the body is masked.
    pub fn is_masked(&self) -> bool {
        self.replacement.is_some()
    }
}

impl MaskedPart {
    fn new(part: &BodyPart<'_>, body: &ReadableBody<'_>, bytes: &[u8], reveal: bool) -> Self {
        let is_masked = bytes == MASK.as_bytes();
        let is_text = body.is_text() || is_masked || body.kind() == BodyKind::Empty;
        let text = is_text.then(|| String::from_utf8_lossy(bytes).into_owned());
        let masked = |(name, value): &(String, String)| {
            let value = if reveal { value.clone() } else { mask::header(name, value).into_owned() };
            (name.clone(), value)
        };
        Self {
            headers: part.headers.iter().map(masked).collect(),
            name: part.name.clone(),
            file_name: part.file_name.clone(),
            media_type: match part.content_type.trim() {
                "" => String::new(),
                _ => body.media_type().to_owned(),
            },
            kind: if is_masked { BodyKind::Text } else { body.kind() },
            bytes: if text.is_some() { Vec::new() } else { bytes.to_vec() },
            text,
            size: part.bytes.len(),
        }
    }
}

/// The content of a part: UTF-8 if it is text.
fn readable_bytes(body: &ReadableBody<'_>) -> Vec<u8> {
    if body.is_text() { body.text().into_owned().into_bytes() } else { body.bytes().to_vec() }
}

/// Masks the contents of parts. Returns `None` if nothing is masked.
///
/// The masker reads the parts with UTF-8 contents and a boundary that no content has, so that it sees the parts that the
/// page shows.
fn mask_parts(split: &Multipart<'_>, contents: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let mut random = [0; 16];
    // Without random bytes, a content could have the boundary. Then everything is masked.
    if getrandom::fill(&mut random).is_err() {
        return Some(vec![MASK.as_bytes().to_vec(); contents.len()]);
    }
    let boundary = format!("part-{:032x}", u128::from_be_bytes(random));
    let heads = split.parts.iter().map(|part| part.headers.as_slice());
    let whole = write_parts(&boundary, heads.zip(contents.iter().map(Vec::as_slice)));
    let masked = mask::body("multipart/form-data", &whole)?;
    let content_type = format!("multipart/form-data; boundary={boundary}");
    let parts = split_parts(&content_type, &masked).map(|split| split.parts).unwrap_or_default();
    let all = parts.iter().map(|part| part.bytes.to_vec()).collect::<Vec<_>>();
    let is_complete = all.len() == contents.len();
    Some(if is_complete { all } else { vec![MASK.as_bytes().to_vec(); contents.len()] })
}

/// Returns true if there are secrets before the first part or after the last one.
fn has_secrets_around(split: &Multipart<'_>) -> bool {
    [split.preamble, split.epilogue].iter().any(|text| mask::body("text/plain", text).is_some())
}

/// Masks the names and values of a form. They are masked together, because one field may name the secret in another.
fn masked_pairs(pairs: Vec<(String, String)>, reveal: bool) -> Vec<(String, String)> {
    if reveal {
        return pairs;
    }
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    let form = form.extend_pairs(&pairs).finish();
    let masked = mask::body("application/x-www-form-urlencoded", form.as_bytes());
    masked.map_or(pairs, |masked| form_pairs(&masked, None))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use ginnel_content::{BodyHead, MAX_DECODED_BYTES};

    use super::*;

    fn read<'a>(content_type: &str, coding: &str, body: &'a [u8]) -> ReadableBody<'a> {
        let content_encoding = if coding.is_empty() { Vec::new() } else { vec![coding.as_bytes()] };
        let head = BodyHead { content_type, content_encoding, ..BodyHead::default() };
        ReadableBody::read(&head, body, MAX_DECODED_BYTES)
    }

    fn masked(content_type: &str, body: &[u8]) -> MaskedBody {
        let body = read(content_type, "", body);
        MaskedBody::new(&body, &CallMask::default(), CallSide::Request, false)
    }

    fn wide(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_be_bytes).collect()
    }

    #[test]
    fn text_in_any_charset_is_masked() {
        let utf16 = wide("{\"token\": \"swordfish\", \"größe\": \"kept\"}");
        for (content_type, body) in [
            ("application/json", utf16.clone()),
            ("application/json; charset=utf-16be", utf16),
            ("text/plain; charset=utf-16", wide("\u{feff}password=swordfish größe kept")),
            ("", b"password=swordfish\nkept caf\xe9".to_vec()),
            ("image/png", b"password=swordfish\nkept".to_vec()),
            ("application/x-www-form-urlencoded", b"a=kept&password=swordfish".to_vec()),
            (
                "application/x-www-form-urlencoded; charset=gbk",
                b"a=%B2%E8kept&pin=swordfish".to_vec(),
            ),
        ] {
            let shown = masked(content_type, &body);

            let all = format!("{shown:?}");
            assert!(all.contains("kept") && shown.is_masked(), "{content_type}: {all}");
            assert!(!all.contains("swordfish"), "{content_type}: {all}");
            let replacement = String::from_utf8_lossy(shown.replacement.as_ref().unwrap());
            assert!(!replacement.replace('\0', "").contains("swordfish"), "{content_type}");
        }
    }

    #[test]
    fn parts_are_masked_by_the_boundary_of_the_header() {
        let part = |head: &str, content: &[u8]| {
            [
                format!("--XX\r\nContent-Disposition: form-data; {head}\r\n\r\n").as_bytes(),
                content,
                b"\r\n",
            ]
            .concat()
        };
        let typed = [
            &b"--XX\r\nContent-Disposition: form-data; name=c\r\nContent-Type: text/plain; charset=utf-16be\r\n\r\n"[..],
            &wide("password=swordfish"),
            b"\r\n",
        ]
        .concat();
        let named = part("name=\"password\"", b"swordfish \xe9");
        let latin = part("name=a", b"kept caf\xe9 password=swordfish");
        let kept = part("name=b; filename=t.txt", b"kept");
        for (what, body) in [
            ("a name", [&kept[..], &named, b"--XX--"].concat()),
            ("Latin-1", [&kept[..], &latin, b"--XX--"].concat()),
            ("UTF-16", [&kept[..], &typed, b"--XX--"].concat()),
            ("a preamble", [b"password=swordfish\r\n", &kept[..], b"--XX--"].concat()),
            (
                "another boundary before",
                [b"--Y\r\nX: kept\r\n", &kept[..], &named, b"--XX--"].concat(),
            ),
            (
                "line feeds",
                [&kept[..], &named, b"--XX--"]
                    .concat()
                    .into_iter()
                    .filter(|it| *it != b'\r')
                    .collect(),
            ),
            ("a cut", [&kept[..], &named].concat()),
            (
                "pairs",
                [part("name=name", b"password"), part("name=value", b"swordfish"), kept.clone()]
                    .concat(),
            ),
        ] {
            let shown = masked("multipart/form-data; boundary=XX", &body);

            let texts: Vec<_> = shown.parts.iter().filter_map(|it| it.text.clone()).collect();
            assert!(texts.iter().any(|text| text.contains("kept")), "{what}: {texts:?}");
            let all = format!("{shown:?}");
            assert!(shown.is_masked() && !all.contains("swordfish"), "{what}: {all}");
            let replacement = shown.replacement.unwrap();
            let letters: Vec<u8> = replacement.into_iter().filter(|it| *it != 0).collect();
            assert!(!String::from_utf8_lossy(&letters).contains("swordfish"), "{what}");
        }
        let whole = [&kept[..], b"--XX--"].concat();
        assert!(!masked("multipart/form-data; boundary=XX", &whole).is_masked());
    }

    #[test]
    fn a_body_whose_coding_cannot_be_removed_is_hidden_unless_it_is_text() {
        let shown = |coding: &str, body: &[u8], reveal| {
            let body = read("application/json", coding, body);
            MaskedBody::new(&body, &CallMask::default(), CallSide::Request, reveal)
        };
        let hidden = shown("zstd", b"\x28\xb5\x2f\xfd\xff\xff\0", false);
        assert!(hidden.is_hidden && hidden.is_masked() && hidden.bytes.is_empty());
        assert!(!shown("zstd", b"\x28\xb5\x2f\xfd\xff\xff\0", true).is_masked());
        assert_eq!(shown("utf-8", b"{\"a\": 1}", false).text.as_deref(), Some("{\"a\": 1}"));
        let masked = shown("utf-8", b"{\"token\": \"swordfish\"}", false);
        assert_eq!(masked.text.unwrap(), format!("{{\"token\": \"{MASK}\"}}"));
    }
}
