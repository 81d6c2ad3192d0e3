//! Bodies in parts (`multipart/form-data` and its like), even where they are cut off.
//!
//! `multer` and `multra` cannot do this: they are asynchronous, read only `multipart/form-data`, and reject a body that is
//! cut off, as captured ones often are.

use std::borrow::Cow;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use percent_encoding::percent_decode_str;
use regex::{Captures, Regex};

use super::fields::{SecretGroups, find_bytes};
use super::labels::{PairRole, pair_role};
use super::mark::MASK;
use super::object_kinds::is_file_name;
use super::{body, work};
use crate::secrets::is_secret_parameter;

/// A word in another charset. The blanks between two of them are not a part of the text.
const ENCODED_WORD: &str = r"=\?[^?\s]*\?([QqBb])\?([^?\s]*)\?=(?:\s+(?-u:\B))?";
/// How many bodies in parts may stand inside each other; what is deeper is masked as a whole.
pub(super) const MAX_DEPTH: usize = 4;

/// A body in parts, of any bytes; none where it is not one. Parts with the name of a secret are masked, and
/// all others as bodies of their own types are.
///
/// Lines should end with CR LF. Archives and copies have bodies whose lines end with LF or CR.
pub(super) fn mask_parts(whole: &[u8], depth: usize) -> Option<Vec<u8>> {
    let (start, boundary) = first_boundary(whole)?;
    let from_start = whole.get(start..)?;
    let mut masked = Vec::with_capacity(whole.len());
    push_masked(&mut masked, whole.get(..start)?);
    let (parts, rest) = split_parts(from_start, boundary);
    let groups = secret_groups(&parts);
    for FormPart { head, content, line_end } in parts {
        masked.extend_from_slice(boundary);
        masked.extend_from_slice(head);
        match mask_part(head, content, (depth, &groups)) {
            Some(safe) => masked.extend_from_slice(&safe),
            None => masked.extend_from_slice(content),
        }
        masked.extend_from_slice(line_end);
    }
    push_masked(&mut masked, rest);
    Some(masked)
}

/// The largest number of lines that are examined to find the first boundary.
const MAX_BOUNDARY_LINES: usize = 64;

/// Finds the first boundary and its place. There may be a text before it, whose lines may look like boundaries.
fn first_boundary(whole: &[u8]) -> Option<(usize, &[u8])> {
    let mut at = 0;
    let mut first = None;
    let mut lines = body_lines(whole).peekable();
    for _ in 0..MAX_BOUNDARY_LINES {
        let Some(line) = lines.next() else { break };
        let boundary = line.trim_ascii_end();
        let next = lines.peek().copied().unwrap_or_default();
        let is_head = next.contains(&b':') || next.trim_ascii().is_empty();
        let has_end = line.ends_with(b"\n") || line.ends_with(b"\r");
        if has_end && boundary.starts_with(b"--") && boundary.len() > 2 {
            if is_head {
                return Some((at, boundary));
            }
            first = first.or(Some((at, boundary)));
        }
        at += line.len();
    }
    first
}

/// Returns the lines of a body with their ends: CR LF, LF or CR.
fn body_lines(whole: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = whole;
    std::iter::from_fn(move || {
        let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let length = match end {
            Some(end) if rest.get(end..end + 2) == Some(b"\r\n") => end + 2,
            Some(end) => end + 1,
            None => rest.len(),
        };
        let (line, after) = rest.split_at(length);
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

/// A part of a body, which may be cut off.
struct FormPart<'a> {
    head: &'a [u8],
    content: &'a [u8],
    /// The line end in front of the next boundary.
    line_end: &'a [u8],
}

/// Splits a body into its parts, and what stands behind the last of them.
fn split_parts<'a>(mut rest: &'a [u8], boundary: &[u8]) -> (Vec<FormPart<'a>>, &'a [u8]) {
    let mut parts = Vec::new();
    while let Some(part) = rest.strip_prefix(boundary) {
        let next = next_boundary(part, boundary);
        work::count_bytes(next.unwrap_or(part.len()));
        let (part, after) = part.split_at(next.unwrap_or(part.len()));
        let line_end = match (next, part) {
            (None, _) => 0,
            (_, [.., b'\r', b'\n']) => 2,
            _ => 1,
        };
        let (part, line_end) = part.split_at(part.len() - line_end);
        let (head, content) = part.split_at(head_length(part));
        parts.push(FormPart { head, content, line_end });
        rest = after;
    }
    (parts, rest)
}

/// Returns the place of the next boundary at the beginning of a line.
fn next_boundary(part: &[u8], boundary: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + find_bytes(part.get(from..)?, boundary)?;
        if at
            .checked_sub(1)
            .and_then(|before| part.get(before))
            .is_some_and(|it| b"\r\n".contains(it))
        {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Returns the length of a part's head with the empty line behind it.
fn head_length(part: &[u8]) -> usize {
    let mut at = 0;
    for line in body_lines(part) {
        let is_first = at == 0;
        at += line.len();
        if !is_first && matches!(line, b"\n" | b"\r\n" | b"\r") {
            return at;
        }
    }
    part.len()
}

/// Finds parts whose content is the name of a secret.
fn secret_groups(parts: &[FormPart<'_>]) -> SecretGroups {
    SecretGroups::from_labels(parts.iter().filter_map(|part| {
        let name = part_name(&head_text(part.head));
        let content = std::str::from_utf8(part.content).ok()?;
        (pair_role(&name) == Some(PairRole::Name)).then(|| (name, content.to_owned()))
    }))
}

/// Adds what stands before the first part, or behind the last.
fn push_masked(masked: &mut Vec<u8>, beside: &[u8]) {
    match body::mask_nested_body("text/plain", beside, 0) {
        Some(safe) => masked.extend_from_slice(&safe),
        None => masked.extend_from_slice(beside),
    }
}

/// What may be shown of a part; none where that is all of it.
fn mask_part(
    head: &[u8],
    content: &[u8],
    (depth, secret_groups): (usize, &SecretGroups),
) -> Option<Vec<u8>> {
    if content.is_empty() {
        return None;
    }
    let head = head_text(head);
    let media_type = media_type(&head);
    let is_too_deep = depth == 0 && media_type.starts_with("multipart/");
    let name = part_name(&head);
    // Stores of files have uploads with the name of the file in a part with this name.
    let is_file =
        name.eq_ignore_ascii_case("key") && std::str::from_utf8(content).is_ok_and(is_file_name);
    let is_named = is_secret_parameter(&name) && !is_file;
    let is_hidden = is_too_deep || is_named || secret_groups.hides_parameter(&name);
    match is_hidden || has_coded_secret(&head, content, depth) {
        true => Some(MASK.as_bytes().to_vec()),
        false => body::mask_nested_body(&media_type, content, depth.saturating_sub(1)),
    }
}

/// Returns the text of a head, whose lines end with LF.
fn head_text(head: &[u8]) -> String {
    String::from_utf8_lossy(head).replace("\r\n", "\n").replace('\r', "\n")
}

/// Returns true if the content of a part is in base64 and has secrets.
fn has_coded_secret(head: &str, content: &[u8], depth: usize) -> bool {
    if depth == 0 || head_field(head, "Content-Transfer-Encoding") != "base64" {
        return false;
    }
    let coded: Vec<u8> =
        content.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let decoded = STANDARD.decode(coded).unwrap_or_default();
    body::mask_nested_body(&media_type(head), &decoded, depth - 1).is_some()
}

/// The type in the head of a part, without parameters and in small letters.
fn media_type(head: &str) -> String {
    head_field(head, "content-type")
}

/// Returns a field in the head of a part, without parameters and in small letters.
fn head_field(head: &str, wanted: &str) -> String {
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case(wanted).then_some(value)
    });
    let without = value.unwrap_or_default().split(';').next().unwrap_or_default();
    without.trim().to_ascii_lowercase()
}

/// The name in the head of a part: the parameter `name` of `Content-Disposition`.
///
/// It may have another charset (RFC 8187 or RFC 2047) or be in several pieces (RFC 2231), and HTML writes quotes as `%22`.
fn part_name(head: &str) -> String {
    let mut plain = None;
    let mut extended = None;
    let mut pieces = String::new();
    for parameter in split_parameters(head) {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        let name = name.trim().to_ascii_lowercase();
        let value = unquote_value(value.trim());
        match name.strip_prefix("name") {
            Some("") => plain = plain.or(Some(percent_decoded(&encoded_words(&value)))),
            Some("*") => extended = extended.or(Some(extended_value(&value))),
            Some(number) if number.starts_with('*') => match number.ends_with('*') {
                true => pieces.push_str(&extended_value(&value)),
                false => pieces.push_str(&value),
            },
            _ => {}
        }
    }
    let pieces = Some(pieces).filter(|pieces| !pieces.is_empty());
    extended.or(pieces).or(plain).unwrap_or_default()
}

/// Splits the lines of a head at semicolons outside of quotes.
fn split_parameters(head: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    head.split(move |letter| match letter {
        _ if is_escaped => {
            is_escaped = false;
            false
        }
        '\\' => {
            is_escaped = is_quoted;
            false
        }
        '"' => {
            is_quoted = !is_quoted;
            false
        }
        '\n' => {
            is_quoted = false;
            true
        }
        letter => letter == ';' && !is_quoted,
    })
}

fn unquote_value(value: &str) -> String {
    let inner = value.strip_prefix('"').map(|inner| inner.strip_suffix('"').unwrap_or(inner));
    inner.map_or(value.to_owned(), |inner| inner.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// Returns the text of `UTF-8'en'pass%77ord`.
fn extended_value(value: &str) -> String {
    let coded = value.splitn(3, '\'').nth(2).unwrap_or(value);
    percent_decoded(coded)
}

/// Returns a text with its encoded words read, such as `=?utf-8?Q?pass=77ord?=` (RFC 2047).
fn encoded_words(text: &str) -> Cow<'_, str> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ENCODED_WORD).ok());
    let Some(pattern) = PATTERN.as_ref().filter(|_| text.contains("=?")) else {
        return text.into();
    };
    pattern.replace_all(text, |word: &Captures<'_>| {
        let part = |number| word.get(number).map_or("", |part| part.as_str());
        let bytes = match part(1) {
            "Q" | "q" => {
                let escapes = part(2).replace('%', "=25").replace('=', "%").replace('_', " ");
                return percent_decoded(&escapes);
            }
            _ => STANDARD.decode(part(2)).or_else(|_| STANDARD_NO_PAD.decode(part(2))),
        };
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    })
}

fn percent_decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parts(body: &[u8]) -> Option<Vec<u8>> {
        mask_parts(body, MAX_DEPTH)
    }

    #[test]
    fn parts_of_forms_are_masked() {
        let part = |name: &str, content: &str| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}")
        };
        let form = |secret: &str| {
            let parts = [part("a", "1\r\n"), part("password", secret), part("b", "2\r\n--B--\r\n")];
            parts.concat().into_bytes()
        };

        let masked = form(&format!("{MASK}\r\n"));
        assert_eq!(parts(&form("x\r\n--\r\ny\r\n")), Some(masked));
        let cut = parts(part("token", "cut o\u{fffd}").as_bytes());
        assert_eq!(cut, Some(part("token", MASK).into_bytes()));
        assert_eq!(parts(b"no form"), None);
        assert_eq!(parts(b"--B\r\n"), Some(b"--B\r\n".to_vec()));
    }

    #[test]
    fn each_part_is_masked_as_a_body_of_its_type() {
        let form = |media_type: &str, content: &str| {
            let head = match media_type {
                "" => String::new(),
                media_type => format!("content-type: {media_type}\r\n"),
            };
            format!(
                "--B\r\nContent-Disposition: form-data; name=j\r\n{head}\r\n{content}\r\n--B--\r\n"
            )
        };
        for (media_type, content, expected) in [
            ("application/json", "{\"token\":\"S\",\"a\":1}", "{\"token\":\"#\",\"a\":1}"),
            ("Application/JSON; charset=utf-8", "{\"token\":\"S\"}", "{\"token\":\"#\"}"),
            ("application/x-www-form-urlencoded", "a=1&token=S", "a=1&token=#"),
            ("text/xml", "<a><token>S</token></a>", "<a><token>#</token></a>"),
            ("", "{\"token\":\"S\"}", "{\"token\":\"#\"}"),
            ("", "Bearer swordfish", "Bearer #"),
            ("application/octet-stream", "password=S", "password=#"),
            ("image/png", "token=S", "token=S"),
            ("application/json", "{\"token\":\"\"}", "{\"token\":\"#\"}"),
            ("text/plain", "plain", "plain"),
        ] {
            let shown =
                String::from_utf8(parts(form(media_type, content).as_bytes()).unwrap()).unwrap();
            assert_eq!(shown, form(media_type, &expected.replace('#', MASK)), "{content}");
        }
    }

    #[test]
    fn boundaries_and_codings_of_parts_are_read() {
        let part = |end: &str, secret: &str| {
            format!(
                "-- hello{end}--B {end}Content-Disposition: form-data; name=a{end}{end}kept{end}--B{end}Content-Disposition: form-data; name=\"pin\"{end}{end}{secret}{end}--B--{end}"
            )
        };
        for end in ["\r\n", "\n", "\r"] {
            let shown = parts(part(end, "fish").as_bytes());
            assert_eq!(shown, Some(part(end, MASK).into_bytes()));
        }
        let coded = STANDARD.encode("{\"token\": \"swordfish\"}");
        let form = |content: &str| {
            format!("--B\nContent-Transfer-Encoding: BASE64\n\n{content}\n--B--\n").into_bytes()
        };
        assert_eq!(parts(&form(&coded)), Some(form(MASK)));
        assert_eq!(parts(&form("a2VwdA==")), Some(form("a2VwdA==")));
    }

    #[test]
    fn names_of_parts_are_read_in_all_forms() {
        for parameter in [
            "name=\"password\"",
            "name=\"=?utf-8?Q?pass=77ord?=\"",
            "name==?UTF-8?b?cGFzc3dvcmQ=?=",
            "name=\"=?utf-8?q?pass?= =?utf-8?B?d29yZA?=\"",
            "name=password",
            "NAME = \"password\"",
            "name*=UTF-8''pass%77ord",
            "name=\"x\"; name*=utf-8'en'pass%77ord",
            "name*0=\"pass\"; name*1=\"word\"",
            "name*0*=UTF-8''pass%77; name*1=\"ord\"",
            "filename=\"a;name=b\"; name=\"password\"",
            "filename=\"a\\\"; name=b\"; name=\"user[pass\\word]\"",
        ] {
            for end in ["\r\n", "\n", "\r"] {
                let form = |content: &str| {
                    let lines = [
                        "--B",
                        &format!("Content-Disposition: form-data; {parameter}"),
                        "",
                        content,
                        "--B",
                        "Content-Disposition: form-data; name=\"a\"",
                        "",
                        "kept",
                        "--B--",
                        "",
                    ];
                    lines.join(end).into_bytes()
                };
                let shown = parts(&form("sword\nfish")).unwrap();
                assert_eq!(shown, form(MASK), "{parameter}");
            }
        }
        let form =
            "--B\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\na/b.png\r\n--B--\r\n";
        assert_eq!(parts(form.as_bytes()), Some(form.as_bytes().to_vec()));
    }

    #[test]
    fn a_part_with_the_value_of_a_secret_name_is_masked() {
        let part = |name: &str, content: &str| {
            format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
        };
        let form = |secret: &str| {
            let others = [part("b[key]", "shop"), part("b[value]", "kept"), "--B--\r\n".to_owned()];
            [part("a[value]", secret), part("a[key]", "pin")].concat() + &others.concat()
        };

        assert_eq!(parts(form("1234").as_bytes()), Some(form(MASK).into_bytes()));
    }

    #[test]
    fn parts_inside_of_parts_are_masked_however_deep() {
        for depth in [1, 2, MAX_DEPTH, 3 * MAX_DEPTH] {
            let mut whole = "{\"token\":\"swordfish\"}".to_owned();
            let mut media_type = "application/json".to_owned();
            for level in 0..depth {
                whole = format!(
                    "before\r\n--b{level}x\r\nContent-Type: {media_type}\r\n\r\n{whole}\r\n--b{level}x--\r\n"
                );
                media_type = format!("multipart/mixed; boundary=b{level}x");
            }

            let shown = String::from_utf8(parts(whole.as_bytes()).unwrap()).unwrap();

            assert!(!shown.contains("swordfish"), "{depth}: {shown}");
            assert!(shown.contains(MASK), "{depth}: {shown}");
        }
    }
}
