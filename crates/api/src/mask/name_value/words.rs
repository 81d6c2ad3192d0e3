//! Words, quoted texts and separators of all notations.

use std::ops::Range;

use super::super::labels::{MAX_NAME_BYTES, PairRole, pair_role};
use super::super::work;
use super::PairScan;

/// For each kind of quote, the end of the last search that found no closing quote.
///
/// A search passes over a quote only behind a backslash, and continues behind it as a search does that begins there.
/// Therefore no search that begins before this end finds a closing quote either.
#[derive(Debug, Default)]
pub(super) struct UnclosedQuotes {
    /// In brackets: single and double quotes.
    in_groups: [usize; 2],
    /// Outside of brackets, where searches end with the line.
    in_line: [usize; 2],
}

impl UnclosedQuotes {
    fn end(&mut self, quote: u8, is_in_group: bool) -> &mut usize {
        let [single, double] = match is_in_group {
            true => &mut self.in_groups,
            false => &mut self.in_line,
        };
        if quote == b'"' { double } else { single }
    }
}

impl PairScan<'_> {
    /// Returns the end of a word, and its quote.
    pub(super) fn word_end(&mut self, start: usize, is_value: bool) -> (usize, &'static str) {
        let text = self.text;
        let bytes = text.as_bytes();
        let rest = text.get(start..).unwrap_or_default();
        if let Some(quoted) = rest.strip_prefix("\\\"") {
            let length = quoted.find("\\\"");
            work::count_bytes(length.unwrap_or(quoted.len()));
            return match length {
                Some(length) => (start + length + 4, "\\\""),
                None => (self.text.len(), "\\\""),
            };
        }
        if let Some(quote @ (b'"' | b'\'')) = bytes.get(start).copied()
            && let Some(end) = self.quoted_end(start, quote)
        {
            return (end, if quote == b'"' { "\"" } else { "'" });
        }
        let mut at = start;
        while let Some(&byte) = bytes.get(at) {
            let ends = match byte {
                b',' | b'[' | b']' | b'{' | b'}' | b'(' | b')' => true,
                b'&' | b';' => true,
                b'"' | b'\'' => at > start,
                b':' | b'=' => at > start && !is_value && self.is_separator(start..at),
                byte => byte.is_ascii_whitespace(),
            };
            if ends {
                break;
            }
            at += 1;
        }
        (at, "")
    }

    /// Returns the end of a quoted text; `None` for an apostrophe.
    fn quoted_end(&mut self, start: usize, quote: u8) -> Option<usize> {
        let text = self.text;
        let bytes = text.as_bytes();
        let before = start.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(b' ');
        if quote == b'\'' && (before.is_ascii_alphanumeric() || before >= 0x80) {
            return None;
        }
        let is_in_group = !self.groups.is_empty();
        let without_close = (is_in_group && quote == b'"').then_some(bytes.len());
        if start < *self.unclosed.end(quote, is_in_group) {
            return without_close;
        }
        let mut at = start + 1;
        let mut closed = None;
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'\\' => at += 1,
                // Outside of brackets, a quoted text is in one line.
                b'\n' if !is_in_group => break,
                byte if byte == quote => {
                    closed = Some(at + 1);
                    break;
                }
                _ => {}
            }
            at += 1;
        }
        work::count_bytes(at - start);
        if closed.is_none() {
            *self.unclosed.end(quote, is_in_group) = at;
        }
        closed.or(without_close)
    }

    /// Returns true if the colon or the equals sign behind an unquoted word makes it a key.
    fn is_separator(&self, word: Range<usize>) -> bool {
        let rest = self.text.get(word.end..).unwrap_or_default();
        let word = self.text.get(word).unwrap_or_default();
        let next = rest.as_bytes().get(1).copied().unwrap_or(b' ');
        if word.len() > MAX_NAME_BYTES {
            return false;
        }
        if matches!(pair_role(word), Some(PairRole::Name | PairRole::Value)) {
            return true;
        }
        let is_name = word.bytes().all(|it| it.is_ascii_alphanumeric() || b"_-.$%@".contains(&it));
        match rest.starts_with(':') {
            true => is_name && (next.is_ascii_whitespace() || b"\"'[{(".contains(&next)),
            false => is_name && next != b'=' && !next.is_ascii_whitespace(),
        }
    }

    /// Returns the place behind the separator that follows a key; `None` if the text is not a key.
    pub(super) fn separator_end(&mut self, word: Range<usize>, quote: &str) -> Option<usize> {
        let text = self.text;
        let rest = text.get(word.end..).unwrap_or_default();
        let trimmed = text.get(self.comments.skip_comments(text, word.end)..).unwrap_or_default();
        let length =
            ["=>", ":", "="].iter().find(|it| trimmed.starts_with(**it)).map(|it| it.len())?;
        if quote.is_empty() && trimmed.len() == rest.len() && !self.is_separator(word) {
            return None;
        }
        let after = trimmed.get(length..).unwrap_or_default();
        (!after.starts_with('=')).then_some(self.text.len() - after.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::MASK;
    use super::super::mask_name_values;
    use super::*;

    #[test]
    fn each_byte_is_searched_for_a_closing_quote_at_most_four_times() {
        for piece in
            ["\\'", "\\\"", "'\\\"", "'a\\' \"b\\\"", "[\\'", "(\\\"]", "\\\n'", "\\'\n\\\""]
        {
            for start in ["", "'", "\"", "['", "[\"", "{'\"", "\"'"] {
                let text = start.to_owned() + &piece.repeat(10_000);

                let searched = work::during(|| PairScan::new(&text).scan_text()) - text.len();

                assert!(searched <= 4 * text.len(), "{start} {piece}: {searched}");
            }
        }
    }

    #[test]
    fn an_unclosed_quote_hides_no_later_quoted_text() {
        for (source, expected) in [
            ("'a\n{'name': 'token', 'value': 'fi, sh'}", "'a\n{'name': 'token', 'value': '#'}"),
            ("\"a\\\" \nname=\"token\" value=\"f, ish\"", "\"a\\\" \nname=\"token\" value=#"),
        ] {
            assert_eq!(mask_name_values(source), expected.replace('#', MASK), "{source}");
        }
    }
}
