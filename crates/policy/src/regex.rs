//! Regular expressions of documents, compiled within limits.

use regex::{Regex, RegexBuilder};

/// How much memory one compiled expression may take.
pub(super) const SIZE: usize = 1 << 20;

/// How much memory a regular expression takes that is compiled in no time.
const SMALL: usize = 128 << 10;

/// Compiles a regular expression, or says in one line why it is none.
pub(super) fn compile_regex(source: &str) -> Result<Regex, String> {
    compile_within(SIZE, source).map_err(|error| error_reason(&error))
}

/// Compiles a regular expression that is not large; none when it is.
pub(super) fn compile_small(source: &str) -> Result<Option<Regex>, String> {
    match compile_within(SMALL, source) {
        Ok(regex) => Ok(Some(regex)),
        Err(regex::Error::CompiledTooBig(_)) => Ok(None),
        Err(error) => Err(error_reason(&error)),
    }
}

fn compile_within(size: usize, source: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&literal_parts(source)).size_limit(size).build()
}

/// What is wrong with an expression, in one line.
pub(super) fn error_reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => format!("needs more than {limit} bytes compiled"),
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.trim_start_matches("error: ").to_owned()
        }
    }
}

/// Rewrites `\Q…\E`, which RE2 has and our engine has not, into escaped text.
pub(super) fn literal_parts(source: &str) -> String {
    let mut rewritten = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        rewritten.push_str(before);
        if let Some(quoted) = escape.strip_prefix("\\Q") {
            let (text, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            rewritten.push_str(&regex::escape(text));
            rest = after;
            continue;
        }
        // The character behind a backslash is not the start of another escape.
        let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
        rewritten.push_str(&escape[..end]);
        rest = &escape[end..];
    }
    rewritten.push_str(rest);
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_escaped() {
        assert_eq!(literal_parts(r"^\Qa.b\E+$"), r"^a\.b+$");
        assert_eq!(literal_parts(r"\Q1+1"), r"1\+1");
        assert_eq!(literal_parts(r"\\Q"), r"\\Q");
    }

    #[test]
    fn a_pattern_that_explodes_is_refused() {
        let reason = compile_regex(r"(((a{100}){100}){100})").unwrap_err();

        assert_eq!(reason, "needs more than 1048576 bytes compiled");
    }
}
