//! Comments between a name and its value, as JSON5 and programming languages write them.

use super::work;

/// At most so many comments are read between a name and its value.
const MAX_COMMENTS: usize = 4;

/// Finds the ends of comments. However many names have comments, each byte is searched at most a few times.
#[derive(Debug, Default)]
pub(super) struct CommentEnds {
    in_block: LastSearch,
    in_line: LastSearch,
}

/// The search for the end of a comment that was made last. Searches that begin inside of its place have the same result.
#[derive(Debug, Default)]
struct LastSearch {
    start: usize,
    end: usize,
}

impl CommentEnds {
    /// Returns the place of the first text at or after `start` that is neither blank nor a comment.
    ///
    /// A comment that is not closed, or too many of them, reach to the end of the text.
    pub fn skip_comments(&mut self, text: &str, start: usize) -> usize {
        let mut at = after_blanks(text, start);
        for _ in 0..MAX_COMMENTS {
            let rest = text.get(at..).unwrap_or_default();
            if !begins_comment(rest) {
                return at;
            }
            let end = match rest.starts_with("/*") {
                true => self.in_block.find_next(text, at + 2, "*/") + 2,
                false => self.in_line.find_next(text, at + 2, "\n"),
            };
            at = after_blanks(text, end.min(text.len()));
        }
        match begins_comment(text.get(at..).unwrap_or_default()) {
            true => text.len(),
            false => at,
        }
    }

    /// Returns the place of the value of a name that a comment follows; `None` if no separator is behind the comment.
    pub fn value_start(&mut self, text: &str, comment: usize) -> Option<usize> {
        let at = self.skip_comments(text, comment);
        let rest = text.get(at..)?;
        let length = ["=>", ":=", ":", "="].iter().find(|it| rest.starts_with(**it))?.len();
        Some(after_blanks(text, at + length))
    }
}

impl LastSearch {
    /// Returns the place of the next `needle`, or the end of the text.
    fn find_next(&mut self, text: &str, start: usize, needle: &str) -> usize {
        if start < self.start || start > self.end || self.end == 0 {
            let found = text.get(start..).and_then(|rest| rest.find(needle));
            let end = found.map_or(text.len(), |found| start + found);
            work::count_bytes(end - start);
            *self = Self { start, end };
        }
        self.end
    }
}

/// Returns true if a text begins with a comment. Values in base64 may begin with two slashes.
pub(super) fn begins_comment(text: &str) -> bool {
    match text.as_bytes() {
        [b'/', b'*', ..] => true,
        [b'/', b'/', next, ..] => next.is_ascii_whitespace(),
        _ => false,
    }
}

fn after_blanks(text: &str, start: usize) -> usize {
    text.len() - text.get(start..).unwrap_or_default().trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_end_where_the_value_begins() {
        for (text, expected) in [
            (" /* a */ \"b\"", "\"b\""),
            ("// a\n b", "b"),
            ("/* a */ // b */\n/**/c", "c"),
            ("//a.test", "//a.test"),
            ("/a", "/a"),
            ("/* a", ""),
            ("/**//**//**//**//**/a", ""),
            ("a", "a"),
        ] {
            let at = CommentEnds::default().skip_comments(text, 0);
            assert_eq!(text.get(at..), Some(expected), "{text}");
        }
    }
}
