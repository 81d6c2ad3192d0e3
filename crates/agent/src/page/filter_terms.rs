//! The terms of a filter and their quotes.

/// A term of a filter.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TermText {
    /// If true, a hyphen precedes the term.
    pub is_negated: bool,
    /// The word in front of the colon; empty if the term has none.
    word: String,
    /// The text after the colon, or the whole term without a word. Of a header with a value, its name.
    value: String,
    /// The value of a header.
    pub header_value: Option<String>,
    /// If true, the last value was in quotes, so an asterisk in it is an asterisk.
    pub is_quoted: bool,
}

impl TermText {
    /// The term without its hyphen and its quotes.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.word.is_empty() {
            text.extend([self.word.as_str(), ":"]);
        }
        text.push_str(&self.value);
        if let Some(value) = &self.header_value {
            text.extend(["=", value]);
        }
        text
    }

    /// The word in front of the colon, and the value behind it.
    pub fn word_and_value(&self) -> Option<(&str, String)> {
        (!self.word.is_empty()).then(|| (self.word.as_str(), self.value.clone()))
    }

    /// Returns true if the whole term was in quotes.
    pub fn is_literal(&self) -> bool {
        self.is_quoted && self.word.is_empty()
    }
}

/// Splits a filter into its terms, which blanks outside of quotes separate.
pub(super) fn split_terms(text: &str) -> Vec<TermText> {
    let mut terms = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (term, after) = read_term(rest);
        terms.push(term);
        rest = after.trim_start();
    }
    terms
}

fn read_term(text: &str) -> (TermText, &str) {
    let is_negated = text.len() > 1 && text.starts_with('-') && !starts_blank(&text[1..]);
    let text = if is_negated { &text[1..] } else { text };
    let mut term = TermText { is_negated, ..TermText::default() };
    let mut rest = text;
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let word = text.get(..end).and_then(|it| it.split_once(':')).map(|(word, _)| word);
    let is_word = |word: &&str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
    };
    if let Some(word) = word.filter(is_word) {
        term.word = word.to_owned();
        rest = rest.get(word.len() + 1..).unwrap_or_default();
    }
    if term.word == "header" {
        let end = rest.find(|it: char| it.is_whitespace() || it == '=').unwrap_or(rest.len());
        if rest.get(end..).is_some_and(|it| it.starts_with('=')) && !starts_quote(rest) {
            term.value = rest.get(..end).unwrap_or_default().to_owned();
            let (value, is_quoted, after) = read_value(rest.get(end + 1..).unwrap_or_default());
            (term.header_value, term.is_quoted) = (Some(value), is_quoted);
            return (term, after);
        }
    }
    let (value, is_quoted, after) = read_value(rest);
    (term.value, term.is_quoted) = (value, is_quoted);
    (term, after)
}

fn starts_blank(text: &str) -> bool {
    text.starts_with(char::is_whitespace)
}

fn starts_quote(text: &str) -> bool {
    text.starts_with(['"', '\''])
}

/// Reads a value: its text, whether it was in quotes, and what follows it.
fn read_value(text: &str) -> (String, bool, &str) {
    let quoted = match text.chars().next() {
        Some('"') => Some(read_quoted(text.get(1..).unwrap_or_default(), '"', true)),
        Some('\'') => read_closed(text.get(1..).unwrap_or_default()),
        _ => None,
    };
    if let Some((value, after)) = quoted {
        return (value, true, after);
    }
    let (value, after) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    (value.replace("\\\"", "\""), false, after)
}

/// Reads text in single quotes. Without a closing one, the first is an apostrophe.
fn read_closed(text: &str) -> Option<(String, &str)> {
    let is_end = |at: usize| text.get(at + 1..).is_some_and(|it| it.is_empty() || starts_blank(it));
    let is_closed = text.match_indices('\'').any(|(at, _)| is_end(at));
    is_closed.then(|| read_quoted(text, '\'', false))
}

/// Reads text up to its closing quote, which a blank or the end follows. Without one, it goes to the end.
fn read_quoted(text: &str, quote: char, may_escape: bool) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let rest = letters.as_str();
        match letter {
            '\\' if may_escape && rest.starts_with([quote, '\\']) => value.extend(letters.next()),
            letter if letter == quote && (rest.is_empty() || starts_blank(rest)) => {
                return (value, rest);
            }
            letter if letter == quote && may_escape && rest.starts_with(quote) => {
                value.extend(letters.next());
            }
            letter => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_read_as_people_write_them() {
        for (filter, expected) in [
            ("a b", &["a", "b"][..]),
            ("  ", &[]),
            ("body:\"two words\" x", &["body:two words", "x"]),
            ("\"two words\"", &["two words"]),
            ("body:\"status\":\"active\"", &["body:status\":\"active"]),
            ("body:'\"status\": \"active\"'", &["body:\"status\": \"active\""]),
            ("body:\"\\\"a\\\": 1\" x", &["body:\"a\": 1", "x"]),
            ("body:\\\"a\\\":1", &["body:\"a\":1"]),
            ("body:\"\"\"a\"\":1\"", &["body:\"a\":1"]),
            ("{\"a\":\"b\"", &["{\"a\":\"b\""]),
            ("body:it's x", &["body:it's", "x"]),
            ("body:'tis x", &["body:'tis", "x"]),
            ("body:\"open x", &["body:open x"]),
            ("body:\"\" x", &["body:", "x"]),
            ("header:x-id=\"a b\" y", &["header:x-id=a b", "y"]),
            ("body:\"a\\\\b\\d\"", &["body:a\\b\\d"]),
            ("- -- -x", &["-", "-", "x"]),
        ] {
            let terms: Vec<_> = split_terms(filter).iter().map(TermText::text).collect();
            assert_eq!(terms, expected, "{filter}");
        }
    }

    #[test]
    fn text_in_quotes_is_literal() {
        let literal = |filter: &str| split_terms(filter)[0].is_literal();
        assert!(literal("\"status:404\"") && literal("-'a b'") && !literal("body:\"a\""));
        assert!(split_terms("-\"a\"")[0].is_negated && !split_terms("\"-a\"")[0].is_negated);
        assert!(split_terms("path:\"/a*\"")[0].is_quoted && !split_terms("path:/a*")[0].is_quoted);
        assert_eq!(split_terms("\"a:b\"")[0].word_and_value(), None);
    }
}
