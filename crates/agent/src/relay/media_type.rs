//! Media types of files: from a table of extensions and, if the table has no type, from the first bytes.

use std::path::Path;
use std::str;

/// Number of bytes at the start of a file that decide whether the file is text.
pub(super) const SNIFFED_BYTES: u64 = 512;

const PLAIN_TEXT: &str = "text/plain";
const UNKNOWN: &str = "application/octet-stream";

/// Extensions for which the table has an obsolete type, or one that browsers do not show.
const OWN_TYPES: &[(&str, &str)] = &[
    ("map", "application/json"),
    ("md", PLAIN_TEXT),
    ("mjs", "text/javascript"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xml", "application/xml"),
];
/// Extensions of TypeScript sources, which the table has as video.
const SHARED_EXTENSIONS: &[&str] = &["cts", "mts", "ts"];

/// Returns the media type of a file that begins with the bytes `start`.
pub(super) fn media_type(place: &Path, start: &[u8]) -> String {
    let extension = place.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let known = known_type(&extension).unwrap_or(UNKNOWN);
    let is_ambiguous = known == UNKNOWN || SHARED_EXTENSIONS.contains(&extension.as_str());
    let found = if is_ambiguous && is_text(start) { PLAIN_TEXT } else { known };
    match found.starts_with("text/") && is_utf8(start) {
        true => format!("{found}; charset=utf-8"),
        false => found.to_owned(),
    }
}

fn known_type(extension: &str) -> Option<&'static str> {
    let own = OWN_TYPES.iter().find(|(known, _)| *known == extension);
    own.map(|(_, media_type)| *media_type).or_else(|| mime_guess::from_ext(extension).first_raw())
}

/// Returns true if there is a byte order mark, or no byte that only binary files have (WHATWG MIME Sniffing, section 7.2).
fn is_text(start: &[u8]) -> bool {
    const MARKS: [&[u8]; 3] = [b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe"];
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    MARKS.iter().any(|mark| start.starts_with(mark)) || !start.iter().any(is_binary)
}

/// Returns true if the bytes are UTF-8. The last letter may be incomplete if the file has more bytes.
fn is_utf8(start: &[u8]) -> bool {
    let has_more = start.len() as u64 == SNIFFED_BYTES;
    str::from_utf8(start).map_or_else(|error| has_more && error.error_len().is_none(), |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, start: &[u8]) -> String {
        media_type(Path::new(name), start)
    }

    #[test]
    fn known_extensions_decide_in_any_case() {
        assert_eq!(of("a.HTML", b"<p>"), "text/html; charset=utf-8");
        assert_eq!(of("a.mjs", b"export {}"), "text/javascript; charset=utf-8");
        assert_eq!(of("a.avif", b"text"), "image/avif");
        assert_eq!(of("a.webmanifest", b"{}"), "application/manifest+json");
        assert_eq!(of("a.wasm", b"\0asm"), "application/wasm");
    }

    #[test]
    fn other_files_are_text_if_they_look_like_it() {
        assert_eq!(of("README", b"a\tb\x1b[0m\r\n"), "text/plain; charset=utf-8");
        assert_eq!(of("README", b""), "text/plain; charset=utf-8");
        assert_eq!(of("a.conf-old", b"key = 1\n"), "text/plain; charset=utf-8");
        assert_eq!(of("core", b"\x7fELF\x02\x01\x01\0"), UNKNOWN);
        assert_eq!(of("a.ts", b"const a = 1;"), "text/plain; charset=utf-8");
        assert_ne!(of("a.ts", b"\x47\x40\0\0"), "text/plain; charset=utf-8");
    }

    #[test]
    fn a_charset_is_only_named_if_it_is_the_one_of_the_file() {
        assert_eq!(of("a.txt", b"caf\xe9 noir"), "text/plain");
        assert_eq!(of("page.html", b"<meta charset=latin1>\xe9t\xe9"), "text/html");
        assert_eq!(of("wide", b"\xff\xfea\0"), "text/plain");
        // The last letter goes on after the bytes that were read.
        let first = [vec![b'a'; SNIFFED_BYTES as usize - 1], vec![0xc3]].concat();
        assert_eq!(of("a.txt", &first), "text/plain; charset=utf-8");
        assert_eq!(of("a.txt", b"caf\xc3"), "text/plain");
    }
}
