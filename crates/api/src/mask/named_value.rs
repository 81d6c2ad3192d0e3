//! Values that follow the name of a secret in a text: `password: fish`, `"token": "fish"`, `api_key=fish`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Captures, Match, Regex};

use super::comments::{CommentEnds, begins_comment};
use super::escapes::percent_decoded;
use super::script::{self, ScriptPlaces};
use super::sentences::{begins_with_scheme, is_line_header, is_sentence, last_sentence_start};
use super::{MASK, brackets, elements, escapes, graphql, work};
use crate::secrets::{is_secret, is_visible_scalar};

/// A name that a value follows: `name: value`, `name=value`, `"name": "value"`, `name is: value`, `a["name"] = "value"`.
/// A comment may be in front of the separator.
const NAMED: &str = concat!(
    r#"(\$?)([A-Za-z0-9_.%\u{80}-\u{10ffff}-]+)(\\?["'`]?)(?:\s{0,2}(?:\]|</[A-Za-z]{1,8}>)){0,2}(?:\s{1,2}is)?\s{0,8}"#,
    r"(=>|(?:[:+?!|]|\|\||\?\?)?={1,3}|:|/[*/]|is\s{0,4}<)\s{0,8}"
);
/// The value that follows a name.
const VALUE: &str = r#"(?xs)^(?:
    (?:[\[\]A-Za-z0-9_!]+\s{0,8}=\s{0,8})?"""(?:[^"]|"[^"]|""[^"])*(?:""")?
    | [\[\]A-Za-z0-9_!]+\s{0,8}=\s{0,8}"(?:[^"\\]|\\.)*"?
    | \\"(?:[^"\\]|\\\\\\"|\\[^"])*(?:\\")?
    | "(?:[^"\\]|\\.)*"?
    | '(?:[^'\\]|\\.)*'?
    | `(?:[^`\\]|\\.)*`?
    | (?i:[bnefru]{1,2})(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)
    | (?i:(?:basic|bearer|digest|token)\s{1,4})?[^\s,;&<>{}"']+
)"#;
/// The maximum length of a type in GraphQL, in bytes. Longer texts are values.
const MAX_TYPE_BYTES: usize = 256;

/// The text with the values masked that follow the name of a secret.
///
/// If `is_typed` is true, numbers, booleans and null stay.
pub(super) fn masked<'a>(shown: &'a str, is_typed: bool, scripts: &ScriptPlaces) -> Cow<'a, str> {
    static PATTERNS: LazyLock<Option<(Regex, Regex)>> =
        LazyLock::new(|| Regex::new(NAMED).ok().zip(Regex::new(VALUE).ok()));
    let Some((name_pattern, value_pattern)) = PATTERNS.as_ref() else { return MASK.into() };
    work::count_bytes(shown.len());
    let mut masker = NamedValueMasker::new(shown, is_typed, scripts, value_pattern);
    for found in name_pattern.captures_iter(shown).filter_map(|found| FoundName::of(shown, &found))
    {
        masker.mask_value_of(&found);
    }
    masker.finish()
}

/// A name in a text, with what is written around it.
struct FoundName<'a> {
    /// From the name up to the value.
    whole: Match<'a>,
    name: Cow<'a, str>,
    has_dollar: bool,
    is_quoted: bool,
    separator: Match<'a>,
}

impl<'a> FoundName<'a> {
    fn of(shown: &'a str, found: &Captures<'a>) -> Option<Self> {
        let (dollar, name) = (found.get(1)?, found.get(2)?);
        let (quote, separator) = (found.get(3)?, found.get(4)?);
        let escaped = match quote.as_str() {
            "\"" => escaped_name(shown, name.start(), name.end()),
            _ => None,
        };
        Some(Self {
            whole: found.get(0)?,
            name: escaped.unwrap_or_else(|| percent_decoded(name.as_str())),
            has_dollar: !dollar.is_empty(),
            is_quoted: !quote.is_empty(),
            separator,
        })
    }
}

/// Where a value begins, and what follows from there.
struct FoundValue<'a> {
    start: usize,
    rest: &'a str,
    is_in_element: bool,
}

/// Copies a text and masks values in it.
struct NamedValueMasker<'a, 's> {
    shown: &'a str,
    is_typed: bool,
    scripts: &'s ScriptPlaces,
    value_pattern: &'static Regex,
    /// The variables that documents of GraphQL declare.
    variables: BTreeSet<&'a str>,
    /// Those of them that are passed to secret arguments.
    secret_variables: BTreeSet<String>,
    header_lines: HeaderLines,
    comments: CommentEnds,
    masked: String,
    /// The end of what is in `masked`.
    copied: usize,
    /// Names before this place are parts of a value that was read.
    read: usize,
}

impl<'a, 's> NamedValueMasker<'a, 's> {
    fn new(
        shown: &'a str,
        is_typed: bool,
        scripts: &'s ScriptPlaces,
        value_pattern: &'static Regex,
    ) -> Self {
        let variables = graphql::declared_variables(shown);
        let secret_variables = match variables.is_empty() {
            true => BTreeSet::new(),
            false => graphql::secret_variables(shown),
        };
        Self {
            shown,
            is_typed,
            scripts,
            value_pattern,
            variables,
            secret_variables,
            header_lines: HeaderLines::default(),
            comments: CommentEnds::default(),
            masked: String::new(),
            copied: 0,
            read: 0,
        }
    }

    fn mask_value_of(&mut self, found: &FoundName<'a>) {
        if found.whole.start() < self.read || !self.names_secret(found) {
            return;
        }
        let Some(start) = self.separated_start(found) else { return };
        let rest = self.rest(start);
        if self.scripts.contains(found.whole.start())
            || script::is_declaration(self.shown, found.whole.range(), rest)
        {
            self.mask_literals(found, start);
            return;
        }
        let value = self.find_value(start);
        let is_literal = value.rest.starts_with(['"', '\'', '`']);
        if found.separator.as_str().starts_with('!') && !is_literal {
            return;
        }
        let length = self.find_value_length(found, &value);
        let written = value.rest.get(..length).unwrap_or_default();
        if length > 0 && !self.is_visible(found, written) {
            self.mask_range(value.start, value.start + length);
            self.read = self.copied;
        }
    }

    fn names_secret(&self, found: &FoundName<'_>) -> bool {
        // In YAML, the next line is not the value of a key.
        if self.is_typed && found.whole.as_str().contains('\n')
            || self.scripts.is_selector(found.whole.as_str())
        {
            return false;
        }
        found.has_dollar && self.secret_variables.contains(&*found.name)
            || is_secret(&found.name)
            || is_label_of_words(self.shown, found.whole.start(), &found.name)
    }

    /// Returns the place behind the separator.
    fn separated_start(&mut self, found: &FoundName<'_>) -> Option<usize> {
        let separator = &found.separator;
        match separator.as_str() {
            it if it.starts_with('/') => self.comments.value_start(self.shown, separator.start()),
            // Without another separator, a value is in an element.
            it if it.ends_with('<') => {
                let start = separator.end() - 1;
                elements::tags_length(self.shown.get(start..)?).map(|_| start)
            }
            _ => Some(found.whole.end()),
        }
    }

    /// Skips comments and tags in front of a value.
    fn find_value(&mut self, mut start: usize) -> FoundValue<'a> {
        if begins_comment(self.rest(start)) && !self.is_typed {
            let after_comments = self.comments.skip_comments(self.shown, start);
            if after_comments < self.shown.len() {
                start = after_comments;
            }
        }
        let tags = elements::tags_length(self.rest(start));
        let start = start + tags.unwrap_or_default();
        FoundValue { start, rest: self.rest(start), is_in_element: tags.is_some() }
    }

    fn find_value_length(&mut self, found: &FoundName<'_>, value: &FoundValue<'_>) -> usize {
        let rest = value.rest;
        match rest.as_bytes().first() {
            Some(first)
                if !found.is_quoted
                    && !matches!(first, b'"' | b'\'' | b'[' | b'{')
                    && is_line_header(&found.name) =>
            {
                self.header_lines.find_value_length(value.start, rest)
            }
            Some(_) if value.is_in_element => element_length(rest),
            Some(b'[' | b'{') if !is_declaration(rest) => brackets::group_end(rest, 0),
            Some(b'#') => {
                graphql::commented_length(rest, |rest| value_length(self.value_pattern, rest))
            }
            Some(b'$') if graphql::is_variable(rest, &self.variables) => 0,
            _ => value_length(self.value_pattern, rest),
        }
    }

    /// Returns true for a text behind the name of a secret that is not one.
    fn is_visible(&self, found: &FoundName<'_>, written: &str) -> bool {
        // In GraphQL, the type of a variable follows its name.
        let is_type = found.has_dollar
            && written.len() <= MAX_TYPE_BYTES
            && !written.contains(['"', '[', '{', '=']);
        let scalar = match written.starts_with('[') {
            true => written,
            false => written.trim_end_matches([')', ']']),
        };
        is_type
            || is_masked(written)
            || is_visible_scalar(&found.name, scalar, self.is_typed || found.is_quoted)
    }

    /// Masks the text literals in the value of a name in source text.
    fn mask_literals(&mut self, found: &FoundName<'_>, start: usize) {
        let value = script::value_of(&found.name, found.whole.as_str(), self.rest(start));
        for literal in value.secrets {
            self.mask_range(start + literal.start, start + literal.end);
        }
        self.read = start + value.length;
    }

    fn mask_range(&mut self, start: usize, end: usize) {
        self.masked.push_str(self.shown.get(self.copied..start).unwrap_or_default());
        self.masked.push_str(MASK);
        self.copied = end;
    }

    fn rest(&self, start: usize) -> &'a str {
        self.shown.get(start..).unwrap_or_default()
    }

    fn finish(mut self) -> Cow<'a, str> {
        if self.copied == 0 {
            return self.shown.into();
        }
        self.masked.push_str(self.rest(self.copied));
        self.masked.into()
    }
}

/// Returns the length of the text of an element that is a value. A sentence is not a value.
fn element_length(rest: &str) -> usize {
    let length = rest.find(['<', '\n', '\r']).unwrap_or(rest.len());
    work::count_bytes(length);
    let text = rest.get(..length).unwrap_or_default().trim_end();
    if is_sentence(text) { 0 } else { text.len() }
}

/// Last words of labels that are only the name of a secret with the word before: `verification code: 1234`.
const LAST_WORDS: [&str; 3] = ["code", "number", "phrase"];
/// Words before are not longer, in bytes.
const MAX_WORD_BYTES: usize = 32;

/// Returns true if a name and the word before it are the name of a secret.
fn is_label_of_words(shown: &str, start: usize, name: &str) -> bool {
    if !LAST_WORDS.iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return false;
    }
    let before = shown.get(..start).and_then(|before| before.strip_suffix(' ')).unwrap_or_default();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let length = before.bytes().rev().take(MAX_WORD_BYTES).take_while(is_word).count();
    let word = before.get(before.len() - length..).unwrap_or_default();
    !word.is_empty() && is_secret(&format!("{word}_{name}"))
}

/// The maximum length of a name in quotes with escapes, in bytes.
const MAX_ESCAPED_BYTES: usize = 256;

/// Returns the name in quotes that ends here, if it has escapes.
fn escaped_name(shown: &str, start: usize, end: usize) -> Option<Cow<'_, str>> {
    let before = shown.get(..start)?;
    if !before.ends_with('\\') {
        return None;
    }
    let mut from = start.saturating_sub(MAX_ESCAPED_BYTES);
    while !shown.is_char_boundary(from) {
        from += 1;
    }
    let quote = shown.get(from..start)?.rfind('"')?;
    Some(escapes::unescape_text(shown.get(from + quote + 1..end)?))
}

fn value_length(value: &Regex, rest: &str) -> usize {
    let length = value.find(rest).map_or(0, |found| found.len());
    work::count_bytes(length);
    length
}

/// Finds the ends of the values of headers. Each line is searched once, however many names of headers it has.
#[derive(Debug, Default)]
struct HeaderLines {
    /// The end of the line that was searched last.
    end: usize,
    /// Values in that line that begin later are not sentences.
    last_start: Option<usize>,
}

impl HeaderLines {
    /// Returns the length of a header's value: up to the end of its line or the next tag. A sentence is not a value.
    fn find_value_length(&mut self, start: usize, rest: &str) -> usize {
        if start >= self.end {
            let length = rest.find(['\r', '\n', '<']).unwrap_or(rest.len());
            work::count_bytes(length);
            let line = rest.get(..length).unwrap_or_default();
            self.end = start + length;
            self.last_start = last_sentence_start(line).map(|at| start + at);
        }
        let length = self.end - start;
        let line = rest.get(..length).unwrap_or_default();
        match self.last_start.is_some_and(|last| start <= last) && !begins_with_scheme(line) {
            true => 0,
            false => length,
        }
    }
}

fn is_masked(value: &str) -> bool {
    value.trim_matches(['"', '\'', '\\']) == MASK
}

/// Returns true for the type of a list in GraphQL that has a default, such as `[String!] = ["a"]`.
fn is_declaration(rest: &str) -> bool {
    let inner = rest.strip_prefix('[').unwrap_or_default();
    let end = inner.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let after = end.and_then(|end| inner.get(end..)).unwrap_or_default();
    after.trim_start_matches(['!', ']']).trim_start().starts_with("= \"")
}
