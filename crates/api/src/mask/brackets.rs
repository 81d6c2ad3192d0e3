//! Lists and objects in brackets, as JSON, YAML, GraphQL and code write them.

use super::quotes::closing_quote;
use super::work;

/// Returns the end of the list or object that starts here.
///
/// Text that is cut off, or whose brackets do not match, ends with the whole text.
pub(super) fn group_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let string_end = |at: usize, quote| closing_quote(bytes, at + 1, quote).unwrap_or(bytes.len());
    let mut open = Vec::new();
    let mut before = b' ';
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(at, byte),
            // In other places it is an apostrophe.
            b'\'' if matches!(before, b'[' | b'{' | b'(' | b',' | b':' | b'=' | b' ') => {
                at = string_end(at, byte);
            }
            b'[' => open.push(b']'),
            b'{' => open.push(b'}'),
            b'(' => open.push(b')'),
            b']' | b'}' | b')' => {
                if open.pop() != Some(byte) {
                    break;
                }
                if open.is_empty() {
                    work::count_bytes(at - start);
                    return at + 1;
                }
            }
            _ => {}
        }
        before = if byte.is_ascii_whitespace() { b' ' } else { byte };
        at += 1;
    }
    work::count_bytes(at.min(text.len()) - start);
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_end_where_they_match() {
        for (text, expected) in [
            ("[1, [2], {a: (b)}] c", "[1, [2], {a: (b)}]"),
            ("[\"]\", ']', \"\\\"]\"] c", "[\"]\", ']', \"\\\"]\"]"),
            ("[it's] c", "[it's]"),
            ("[1} c", "[1} c"),
            ("[1, c", "[1, c"),
            ("[\"c", "[\"c"),
            ("[\"c\\", "[\"c\\"),
        ] {
            assert_eq!(text.get(..group_end(text, 0)), Some(expected), "{text}");
        }
    }
}
