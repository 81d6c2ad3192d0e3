//! Replacing what a pattern matches, within limits.

use ::regex::Regex;

/// What came of a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replaced {
    /// The new text.
    pub text: String,
    /// What was replaced, up to a number that is fit to be looked at.
    pub matches: Vec<String>,
}

/// How many matches are kept to be looked at.
const MATCHES: usize = 100;

/// Replaces every match by `to`, in which `$1` is the first group.
///
/// None when the text would become longer than `limit`.
pub(super) fn replace_matches(
    pattern: &Regex,
    text: &str,
    to: &str,
    limit: usize,
) -> Option<Replaced> {
    let mut replaced = Replaced { text: String::with_capacity(text.len()), matches: Vec::new() };
    let mut rest = 0;
    for found in pattern.captures_iter(text) {
        let Some(whole) = found.get(0) else { continue };
        replaced.text.push_str(&text[rest..whole.start()]);
        found.expand(to, &mut replaced.text);
        rest = whole.end();
        if replaced.matches.len() < MATCHES {
            replaced.matches.push(whole.as_str().to_owned());
        }
        if replaced.text.len() > limit {
            return None;
        }
    }
    replaced.text.push_str(&text[rest..]);
    (replaced.text.len() <= limit).then_some(replaced)
}

/// A text that stands for itself where groups may be named.
pub(super) fn escape_replacement(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pattern: &str, text: &str, to: &str) -> Option<String> {
        replace_matches(&Regex::new(pattern).unwrap(), text, to, 20).map(|it| it.text)
    }

    #[test]
    fn groups_are_named_as_in_go() {
        assert_eq!(text("(a)(b)?", "xaby", "<$1$2>"), Some("x<ab>y".into()));
        assert_eq!(text("(a)", "a", "$1x"), Some(String::new()), "there is no group 1x");
        assert_eq!(text("(a)", "a", "${1}x$$"), Some("ax$".into()));
        assert_eq!(text("a", "a", &escape_replacement("$0")), Some("$0".into()));
    }

    #[test]
    fn a_text_does_not_grow_without_end() {
        assert_eq!(text("a", "aaaa", "$0$0$0$0$0$0"), None);
    }
}
