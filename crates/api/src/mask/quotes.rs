//! Quoted texts with escapes, as JSON, JavaScript and double quotes of YAML have them.

/// Returns the place of the quote that closes a text; `None` if the text is cut off.
///
/// `start` is the place behind the opening quote.
pub(super) fn closing_quote(bytes: &[u8], start: usize, quote: u8) -> Option<usize> {
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            _ if byte == quote => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_behind_a_backslash_close_nothing() {
        for (text, expected) in [
            ("a\" b\"", Some(1)),
            ("\\\"\"", Some(2)),
            ("\\\\\"", Some(2)),
            ("a\\\"", None),
            ("\\", None),
        ] {
            assert_eq!(closing_quote(text.as_bytes(), 0, b'"'), expected, "{text}");
        }
    }
}
