//! Bodies, by what they are.

use super::charset::WideText;
use super::fields::pairs;
use super::json::json;
use super::mark::MASK;
use super::text::{mask_code, mask_page, mask_style_sheet, text};
use super::{events, parts, table, yaml};

/// How the types of texts end, beside those that begin with `text/`.
const TEXT_SUFFIXES: [&str; 5] = ["xml", "javascript", "yaml", "yml", "graphql"];
/// Parts of the types of source text of JavaScript.
const SCRIPT_TYPES: [&str; 3] = ["javascript", "ecmascript", "typescript"];
/// How the types begin of what is looked at or listened to, never read.
const MEDIA_PREFIXES: [&str; 4] = ["audio/", "font/", "image/", "video/"];

/// A body with its secrets masked, where it is text or a form that is known to hold some. The media type is
/// without parameters, in small letters.
pub fn body(media_type: &str, body: &[u8]) -> Option<Vec<u8>> {
    mask_nested_body(media_type, body, parts::MAX_DEPTH)
}

/// The same, where `depth` more bodies in parts may stand inside each other.
pub(super) fn mask_nested_body(media_type: &str, body: &[u8], depth: usize) -> Option<Vec<u8>> {
    if let Some(wide) = WideText::from_bytes(body) {
        if mask_nested_body(media_type, &wide.ascii, 0).is_some() {
            return Some(MASK.as_bytes().to_vec());
        }
        let masked = mask_nested_body(media_type, wide.text.as_bytes(), depth)?;
        return Some(wide.encode(&String::from_utf8_lossy(&masked)));
    }
    if media_type.starts_with("multipart/")
        && let Some(masked) = parts::mask_parts(body, depth)
    {
        return (masked != body).then_some(masked);
    }
    // What is cut off, or not all text, has secrets as well.
    let shown = String::from_utf8_lossy(body);
    let masked = match media_type {
        "application/x-www-form-urlencoded" => pairs(&shown),
        // JSON is often sent under other names.
        _ if media_type.contains("json") || shown.trim_start().starts_with(['{', '[']) => {
            json(&shown)
        }
        "text/event-stream" => events::mask_events(&shown),
        _ if media_type.ends_with("yaml") || media_type.ends_with("yml") => {
            yaml::mask_yaml(&shown, true)
        }
        _ if table::is_table(media_type) => table::mask_table(&shown),
        // Selectors of style sheets look like names with values.
        "text/css" => mask_style_sheet(&shown).into_owned(),
        _ if media_type.contains("html") => mask_page(&shown).into_owned(),
        _ if is_script(media_type) => mask_code(&shown).into_owned(),
        _ if is_text(media_type, body) => text(&shown).into_owned(),
        _ => return None,
    };
    (masked != shown).then(|| masked.into_bytes())
}

/// Returns true for source text of JavaScript and its like.
fn is_script(media_type: &str) -> bool {
    SCRIPT_TYPES.iter().any(|part| media_type.contains(part))
}

/// Whether a body is text, by its type or, unless that is one of media, by itself.
fn is_text(media_type: &str, body: &[u8]) -> bool {
    media_type.starts_with("text/")
        || TEXT_SUFFIXES.iter().any(|end| media_type.ends_with(end))
        || !MEDIA_PREFIXES.iter().any(|start| media_type.starts_with(start))
            && text_of(body).is_some()
}

/// The text of a body; where it was cut off within a letter, without that.
fn text_of(body: &[u8]) -> Option<&str> {
    match std::str::from_utf8(body) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(body.get(..error.valid_up_to())?).ok()
        }
        Err(_) => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_text_with_secrets_is_masked() {
        let form = "application/x-www-form-urlencoded";
        assert_eq!(body(form, b"a=1&password=x").unwrap(), "a=1&password=••••••".as_bytes());
        assert!(body("application/json", b"{\"token\": \"x\"}").is_some());
        assert!(body("text/plain", b"{\"token\": \"x\"}").is_some());
        assert!(body("text/plain", b"token=x").is_some());
        assert!(body("", b"token=x").is_some());
        assert!(body("image/png", b"token=x").is_none());
        assert!(body("text/plain", b"a=x").is_none());
        assert!(body("application/json", b"{\"a\": 1}").is_none());
        assert!(body("application/json", b"{\"token\": \"\xff\"}").is_some());
        assert!(body("application/json", b"{\"token\": \"x\", \"a\": \"\xc3").is_some());
        assert!(body("application/json", b"{\"a\": \"\xff\"}").is_none());
    }

    #[test]
    fn text_that_is_cut_off_is_text() {
        assert_eq!(text_of("aé".as_bytes()), Some("aé"));
        assert_eq!(text_of(b"a\xc3"), Some("a"));
        assert_eq!(text_of(b"a\xc3b"), None);
    }
}
