//! Sentences about a header, which are not its value.

use super::MASK;
use super::schemes::is_scheme;

/// Headers whose values may have blanks and separators in them.
const HEADERS: [&str; 7] = [
    "authentication-info",
    "authorization",
    "cookie",
    "cookies",
    "proxy-authentication-info",
    "proxy-authorization",
    "set-cookie",
];
/// A sentence behind the name of a header has at least so many words.
const MIN_SENTENCE_WORDS: usize = 3;
/// Words that sentences have and passphrases seldom do.
const SENTENCE_WORDS: [&str; 18] = [
    "a", "an", "and", "are", "be", "for", "header", "is", "must", "not", "of", "or", "see", "that",
    "the", "this", "to", "with",
];
/// Longer numbers are not parts of a sentence, in bytes.
const MAX_NUMBER_BYTES: usize = 5;

/// Returns true for the name of a header whose value goes up to the end of its line.
pub(super) fn is_line_header(name: &str) -> bool {
    HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns true for the name of a header with a sentence, which is not its value.
pub(super) fn is_sentence_about(name: &str, text: &str) -> bool {
    is_line_header(name) && is_sentence(text)
}

/// Returns true for words of which at least one is common in sentences, and that do not begin with a scheme.
pub(super) fn is_sentence(line: &str) -> bool {
    last_sentence_start(line).is_some() && !begins_with_scheme(line)
}

/// Returns true if the first word is a scheme of authorization.
pub(super) fn begins_with_scheme(line: &str) -> bool {
    line.split_whitespace().next().is_some_and(is_scheme)
}

/// Returns the last place from which the rest of a line is a sentence.
///
/// A sentence has only words, and at least one of [`SENTENCE_WORDS`] or a full stop at its end.
pub(super) fn last_sentence_start(line: &str) -> Option<usize> {
    let mut starts = Vec::new();
    let mut last_common = line.trim_end().ends_with('.').then_some(line.len());
    for word in line.split_whitespace() {
        let start = word.as_ptr().addr() - line.as_ptr().addr();
        let word = word.trim_matches(['"', '\'', '(', ')', '.', ',', ';', ':', '!', '?']);
        let is_number = word.len() <= MAX_NUMBER_BYTES
            && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let is_letter = |it: char| it.is_alphabetic() || it == '\'' || it == '-';
        if !is_number && word != MASK && !word.chars().all(is_letter) {
            return None;
        }
        starts.push(start);
        if SENTENCE_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known)) {
            last_common = last_common.max(Some(start));
        }
    }
    let last = starts.len().checked_sub(MIN_SENTENCE_WORDS)?;
    last_common?.min(*starts.get(last)?).into()
}
