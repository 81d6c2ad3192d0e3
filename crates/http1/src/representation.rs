//! Changes of a representation on its way (RFC 9110, section 3.2): the fields of a head that describe the former bytes.
//!
//! A program that sends other bytes than it got calls [`change_representation`]. No other code changes these fields.

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, IF_MATCH,
    IF_NONE_MATCH, TRANSFER_ENCODING, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::lists::{elements_of, has_token};

/// Digests of the content or of the representation (RFC 9530, RFC 3230, RFC 1864).
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// A change of the bytes that a message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepresentationChange {
    /// The same content with a content coding.
    Coded {
        /// The name of the coding.
        coding: &'static str,
        /// The number of bytes. `None` if it is not known yet.
        length: Option<usize>,
    },
    /// Other content, which has no content coding.
    Replaced {
        /// The number of bytes. `None` if it is not known yet.
        length: Option<usize>,
    },
}

/// Makes the head of a request or a response agree with a change of its content.
///
/// Digests, `Accept-Ranges` and `Content-Range` describe the former bytes and are removed. Coded content keeps its entity
/// tag as a weak one, because it means the same (RFC 9110, section 8.8.1), and varies by `Accept-Encoding`. Other content
/// loses the tag.
pub fn change_representation(headers: &mut HeaderMap, change: RepresentationChange) {
    headers.remove(ACCEPT_RANGES);
    headers.remove(CONTENT_RANGE);
    headers.remove(TRANSFER_ENCODING);
    remove_digests(headers);
    let length = match change {
        RepresentationChange::Coded { coding, length } => {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
            add_vary(headers, "Accept-Encoding");
            weaken_etag(headers);
            length
        }
        RepresentationChange::Replaced { length } => {
            headers.remove(CONTENT_ENCODING);
            headers.remove(ETAG);
            length
        }
    };
    match length {
        Some(length) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
        None => drop(headers.remove(CONTENT_LENGTH)),
    }
}

/// Removes the digests of former bytes from a head or from trailers.
pub fn remove_digests(headers: &mut HeaderMap) {
    for digest in &DIGESTS {
        headers.remove(digest);
    }
}

/// Returns true for a field that describes exactly the bytes of one representation, so that it is wrong for other bytes.
pub fn describes_bytes(name: &str) -> bool {
    let others = [ACCEPT_RANGES, CONTENT_RANGE, ETAG];
    DIGESTS.iter().chain(&others).any(|field| name.eq_ignore_ascii_case(field.as_str()))
}

/// Returns true if responses with this status may have content (RFC 9110, sections 15.2, 15.3.5, 15.3.6 and 15.4.5).
pub fn has_content(status: StatusCode) -> bool {
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED];
    !status.is_informational() && !bodiless.contains(&status)
}

/// Adds a field name to `Vary`, unless the name or `*` is in it.
pub fn add_vary(headers: &mut HeaderMap, name: &'static str) {
    if !has_token(headers, VARY, name) && !has_token(headers, VARY, "*") {
        headers.append(VARY, HeaderValue::from_static(name));
    }
}

/// Makes a strong entity tag weak.
pub fn weaken_etag(headers: &mut HeaderMap) {
    let strong = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    let weak = strong.map(|tag| [b"W/", tag.as_bytes()].concat());
    if let Some(weak) = weak.and_then(|weak| HeaderValue::from_bytes(&weak).ok()) {
        headers.insert(ETAG, weak);
    }
}

/// Adds the strong form of weak entity tags to the conditions of a request.
///
/// Visitors know the weak form of the origin's tag from responses that were coded on their way. The origin would reject
/// each `If-Match` with a weak tag (RFC 9110, section 13.1.1). Where its own tag is weak, the strong form does not match.
pub fn restore_strong_etags(headers: &mut HeaderMap) {
    for name in [IF_MATCH, IF_NONE_MATCH] {
        let mut tags: Vec<_> = elements_of(headers, &name).collect();
        let strong: Vec<_> = tags.iter().filter_map(|tag| tag.strip_prefix(b"W/")).collect();
        if strong.is_empty() {
            continue;
        }
        tags.extend(strong);
        // One line, because some servers read only the first. Its parts were valid.
        if let Ok(line) = HeaderValue::from_bytes(&tags.join(&b", "[..])) {
            headers.insert(name, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    fn text(headers: &HeaderMap) -> String {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
        };
        let mut lines: Vec<_> = headers.iter().map(line).collect();
        lines.sort();
        lines.join("\n")
    }

    const PLAIN: [(&str, &str); 10] = [
        ("accept-ranges", "bytes"),
        ("content-digest", "sha-256=:a:"),
        ("content-length", "9"),
        ("content-md5", "a"),
        ("content-range", "bytes 0-8/9"),
        ("content-type", "text/plain"),
        ("digest", "sha-256=a"),
        ("etag", "\"a\""),
        ("last-modified", "Sat, 28 Nov 2026 10:00:00 GMT"),
        ("repr-digest", "sha-256=:a:"),
    ];

    #[test]
    fn fields_of_the_former_bytes_are_removed() {
        let mut coded = headers(&PLAIN);
        change_representation(
            &mut coded,
            RepresentationChange::Coded { coding: "br", length: None },
        );
        assert_eq!(
            text(&coded),
            "content-encoding: br\ncontent-type: text/plain\netag: W/\"a\"\n\
             last-modified: Sat, 28 Nov 2026 10:00:00 GMT\nvary: Accept-Encoding"
        );

        let mut replaced = headers(&PLAIN);
        replaced.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        change_representation(&mut replaced, RepresentationChange::Replaced { length: Some(7) });
        assert_eq!(
            text(&replaced),
            "content-length: 7\ncontent-type: text/plain\n\
             last-modified: Sat, 28 Nov 2026 10:00:00 GMT"
        );
        assert!(describes_bytes("ETag") && describes_bytes("Repr-Digest"));
        assert!(!describes_bytes("content-type") && !describes_bytes("vary"));
    }

    #[test]
    fn a_name_is_in_vary_once() {
        for (before, after) in [
            ("", "vary: \nvary: Accept-Encoding"),
            ("Origin", "vary: Accept-Encoding\nvary: Origin"),
            ("Origin, accept-encoding", "vary: Origin, accept-encoding"),
            ("*", "vary: *"),
        ] {
            let mut headers = headers(&[("vary", before)]);
            add_vary(&mut headers, "Accept-Encoding");
            assert_eq!(text(&headers), after);
        }
    }

    #[test]
    fn a_weak_tag_is_asked_for_in_its_strong_form_too() {
        let mut asked =
            headers(&[("if-match", "W/\"a\", \"b\",W/\"c\""), ("if-none-match", "\"a\"")]);
        asked.append(IF_MATCH, HeaderValue::from_static("\"d\""));
        restore_strong_etags(&mut asked);

        let lines: Vec<_> = asked.get_all(IF_MATCH).into_iter().collect();
        assert_eq!(lines, ["W/\"a\", \"b\", W/\"c\", \"d\", \"a\", \"c\""]);
        assert_eq!(asked[IF_NONE_MATCH], "\"a\"");
    }
}
