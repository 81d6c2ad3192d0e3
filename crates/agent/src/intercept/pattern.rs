//! Patterns of texts, paths and queries, in which `*` matches anything.

use percent_encoding::percent_decode_str;

/// The largest number of parameters of a query that are compared.
const MAX_PARAMETERS: usize = 1000;

/// A byte of a decoded text, or a sign with a meaning of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternUnit {
    Byte(u8),
    /// `%2F`: it is not a slash, because it does not separate segments (RFC 3986, section 2.2).
    EncodedSlash,
    /// `*` in a pattern; `%2A` is a byte.
    Anything,
}

/// A pattern for a whole text.
#[derive(Debug, Default)]
pub(super) struct TextPattern(Vec<PatternUnit>);

impl TextPattern {
    /// Returns a pattern of text as it is.
    pub fn of_text(pattern: &str) -> Self {
        Self::from_units(pattern, |text| text.bytes().map(PatternUnit::Byte).collect())
    }

    /// Returns a pattern of a path. Percent-encoded characters and those that must be percent-encoded are the same.
    pub fn of_path(pattern: &str) -> Self {
        Self::from_units(pattern, decode_path)
    }

    /// Returns a pattern of a name or a value in a query.
    fn of_parameter(pattern: &str) -> Self {
        Self::from_units(pattern, decode_parameter)
    }

    pub fn matches_text(&self, text: &str) -> bool {
        self.matches(&text.bytes().map(PatternUnit::Byte).collect::<Vec<_>>())
    }

    pub fn matches_path(&self, path: &str) -> bool {
        self.matches(&decode_path(path))
    }

    fn from_units(pattern: &str, read: impl Fn(&str) -> Vec<PatternUnit>) -> Self {
        let pieces: Vec<_> = pattern.split('*').map(read).collect();
        Self(pieces.join(&PatternUnit::Anything))
    }

    fn matches(&self, text: &[PatternUnit]) -> bool {
        let pattern = &self.0;
        let (mut at, mut read) = (0, 0);
        // The place of the last `*`, and the length of the text that it has matched so far.
        let mut star: Option<(usize, usize)> = None;
        while read < text.len() {
            if pattern.get(at) == Some(&PatternUnit::Anything) {
                star = Some((at, read));
                at += 1;
            } else if pattern.get(at) == text.get(read) {
                at += 1;
                read += 1;
            } else if let Some((begin, covered)) = star {
                star = Some((begin, covered + 1));
                (at, read) = (begin + 1, covered + 1);
            } else {
                return false;
            }
        }
        pattern.get(at..).unwrap_or_default().iter().all(|unit| *unit == PatternUnit::Anything)
    }
}

/// Reads a path without its percent-encodings.
fn decode_path(path: &str) -> Vec<PatternUnit> {
    let mut units = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find("%2F").into_iter().chain(rest.find("%2f")).min() {
        units.extend(percent_decode_str(&rest[..at]).map(PatternUnit::Byte));
        units.push(PatternUnit::EncodedSlash);
        rest = &rest[at + 3..];
    }
    units.extend(percent_decode_str(rest).map(PatternUnit::Byte));
    units
}

/// Reads a name or a value of a query as forms encode them.
fn decode_parameter(text: &str) -> Vec<PatternUnit> {
    percent_decode_str(&text.replace('+', " ")).map(PatternUnit::Byte).collect()
}

/// A pattern of a path, or of path and query.
#[derive(Debug)]
pub(super) struct TargetPattern {
    path: TextPattern,
    /// The whole pattern, for a query whose `*` matches several parameters.
    whole: TextPattern,
    query: Option<QueryPattern>,
}

/// The parameters that a query has, in any order.
#[derive(Debug)]
struct QueryPattern {
    parameters: Vec<(TextPattern, TextPattern)>,
    /// If true, there may be others.
    allows_others: bool,
}

impl TargetPattern {
    pub fn new(pattern: &str) -> Self {
        let (path, query) = match pattern.split_once('?') {
            Some((path, query)) => (path, Some(QueryPattern::new(query))),
            None => (pattern, None),
        };
        Self { path: TextPattern::of_path(path), whole: TextPattern::of_text(pattern), query }
    }

    pub fn matches_target(&self, target: &str) -> bool {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let Some(pattern) = &self.query else { return self.path.matches_path(path) };
        self.whole.matches_text(target)
            || self.path.matches_path(path) && pattern.matches_query(query)
    }
}

impl QueryPattern {
    fn new(query: &str) -> Self {
        let (all, given): (Vec<_>, Vec<_>) = query
            .split('&')
            .filter(|it| !it.is_empty())
            .take(MAX_PARAMETERS)
            .partition(|it| *it == "*");
        let parameters = given.iter().map(|parameter| match parameter.split_once('=') {
            Some((name, value)) => {
                (TextPattern::of_parameter(name), TextPattern::of_parameter(value))
            }
            None => {
                let value = if parameter.contains('*') { "*" } else { "" };
                (TextPattern::of_parameter(parameter), TextPattern::of_parameter(value))
            }
        });
        Self { parameters: parameters.collect(), allows_others: !all.is_empty() }
    }

    /// Returns true if each parameter of the pattern is another one of the query.
    fn matches_query(&self, query: &str) -> bool {
        let given = query.split('&').filter(|it| !it.is_empty()).take(MAX_PARAMETERS + 1);
        let given: Vec<_> = given
            .map(|parameter| {
                let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                (decode_parameter(name), decode_parameter(value))
            })
            .collect();
        let is_right_count = match self.allows_others {
            true => given.len() >= self.parameters.len(),
            false => given.len() == self.parameters.len(),
        };
        let mut owners = vec![None; given.len()];
        is_right_count
            && (0..self.parameters.len()).all(|at| {
                let mut is_tried = vec![false; given.len()];
                self.assign_parameter(at, &given, &mut owners, &mut is_tried)
            })
    }

    /// Finds a parameter of the query for one of the pattern; those before it may get another one.
    fn assign_parameter(
        &self,
        at: usize,
        given: &[(Vec<PatternUnit>, Vec<PatternUnit>)],
        owners: &mut [Option<usize>],
        is_tried: &mut [bool],
    ) -> bool {
        let Some((name, value)) = self.parameters.get(at) else { return false };
        for (place, (given_name, given_value)) in given.iter().enumerate() {
            if is_tried[place] || !name.matches(given_name) || !value.matches(given_value) {
                continue;
            }
            is_tried[place] = true;
            let owner = owners[place];
            if owner.is_none_or(|owner| self.assign_parameter(owner, given, owners, is_tried)) {
                owners[place] = Some(at);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_whole_text_but_for_stars() {
        for (pattern, text, expected) in [
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/a*", "/ab", true),
            ("*b", "/ab", true),
            ("/*/c", "/a/b/c", true),
            ("/*/d", "/a/b/c", false),
            ("*", "", true),
            ("**a*", "bab", true),
            ("a*ab", "aaab", true),
            ("", "a", false),
        ] {
            let is_like = TextPattern::of_text(pattern).matches_text(text);
            assert_eq!(is_like, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn paths_are_compared_in_their_decoded_form() {
        for (pattern, target, expected) in [
            ("/caf\u{e9}/*", "/caf%C3%A9/1?x", true),
            ("/caf%c3%a9", "/caf%C3%A9", true),
            ("/caf%C3%A9", "/caf\u{e9}", true),
            ("/\u{6771}\u{4eac}/*", "/%E6%9D%B1%E4%BA%AC/1", true),
            ("/~ada/%7Eada", "/%7eada/~ada", true),
            ("/a%20b", "/a%20b", true),
            ("/a/b", "/a%2Fb", false),
            ("/a%2fb", "/a%2Fb", true),
            ("/a%252Fb", "/a%2Fb", false),
            ("/a%2Ab", "/a*b", true),
            ("/a%2Ab", "/axb", false),
            ("/100%", "/100%", true),
        ] {
            let is_like = TargetPattern::new(pattern).matches_target(target);
            assert_eq!(is_like, expected, "{pattern} {target}");
        }
    }

    #[test]
    fn parameters_may_come_in_any_order() {
        for (pattern, target, expected) in [
            ("/s?page=2&q=tea", "/s?q=tea&page=2", true),
            ("/s?page=2&q=tea", "/s?q=milk&page=2", false),
            ("/s?page=2&q=tea", "/s?q=tea&page=2&x=1", false),
            ("/s?page=2&q=tea&*", "/s?x=1&q=tea&page=2", true),
            ("/s?page=2&q=tea", "/s?q=tea", false),
            ("/s?page=*&q=t*", "/s?q=tea&page=", true),
            ("/s?q=a%20b", "/s?q=a+b", true),
            ("/s?q=\u{e9}", "/s?q=%C3%A9", true),
            ("/s?a=1&a=2", "/s?a=2&a=1", true),
            ("/s?a=1&a=1", "/s?a=2&a=1", false),
            // The first pattern must leave `a=1` to the second.
            ("/s?a=*&a=1", "/s?a=1&a=2", true),
            ("/s?*page=2*q=tea*", "/s?x&page=2&y&q=tea&z", true),
            ("/s?debug", "/s?debug=", true),
            ("/s?", "/s?", true),
            ("/s?", "/s?a", false),
            ("*?x=1&y=2", "/any/path?y=2&x=1", true),
        ] {
            let is_like = TargetPattern::new(pattern).matches_target(target);
            assert_eq!(is_like, expected, "{pattern} {target}");
        }
    }
}
