//! The user agent filter of a route.
//!
//! Traffic policy sheet, section 10.

use ::regex::bytes::{RegexSet, RegexSetBuilder};

use super::problem::{DocumentPath, Problem, code};
use super::regex;

/// How many expressions a list may have.
const ENTRIES: usize = 100;

/// How long an expression may be, in bytes.
const LENGTH: usize = 1024;

/// Two lists of regular expressions, of which the first one wins.
///
/// Expressions are not anchored and mind upper and lower case. Classes such as `\d` are ASCII, and
/// a value need not be UTF-8.
#[derive(Debug, Clone)]
pub struct Filter {
    allow: RegexSet,
    deny: RegexSet,
}

impl Filter {
    /// Compiles both lists; all that is wrong is found, at places such as `deny[2]`.
    pub fn compile(allow: &[String], deny: &[String]) -> Result<Self, Vec<Problem>> {
        match (compile_list("allow", allow), compile_list("deny", deny)) {
            (Ok(allow), Ok(deny)) => Ok(Self { allow, deny }),
            (allow, deny) => {
                Err([allow.err(), deny.err()].into_iter().flatten().flatten().collect())
            }
        }
    }

    /// Whether a request with these `User-Agent` headers may pass: with each of them.
    ///
    /// A request without one, or with an empty one, may pass only if the allow list says so.
    pub fn allows_all<'h>(&self, user_agents: impl IntoIterator<Item = &'h [u8]>) -> bool {
        let mut user_agents = user_agents.into_iter();
        self.allows_one(user_agents.next().unwrap_or_default())
            && user_agents.all(|user_agent| self.allows_one(user_agent))
    }

    fn allows_one(&self, user_agent: &[u8]) -> bool {
        if self.allow.is_match(user_agent) {
            return true;
        }
        !user_agent.is_empty() && !self.deny.is_match(user_agent)
    }
}

fn compile_list(name: &str, sources: &[String]) -> Result<RegexSet, Vec<Problem>> {
    let list = DocumentPath::top_level(name);
    if sources.len() > ENTRIES {
        let message = format!("more than {ENTRIES} expressions");
        return Err(vec![list.problem(code::USER_AGENT, message)]);
    }
    let sources: Vec<_> = sources.iter().map(|source| regex::literal_parts(source)).collect();
    let problems: Vec<_> = sources
        .iter()
        .enumerate()
        .filter_map(|(index, source)| {
            let reason = check_pattern(source).err()?;
            Some(list.entry(index).problem(code::USER_AGENT, reason))
        })
        .collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    build_regex_set(&sources).map_err(|reason| vec![list.problem(code::USER_AGENT, reason)])
}

fn check_pattern(source: &str) -> Result<(), String> {
    if source.len() > LENGTH {
        return Err(format!("longer than {LENGTH} bytes"));
    }
    build_regex_set(std::slice::from_ref(&source)).map(|_| ())
}

fn build_regex_set(sources: &[impl AsRef<str>]) -> Result<RegexSet, String> {
    RegexSetBuilder::new(sources)
        .unicode(false)
        .size_limit(regex::SIZE)
        .build()
        .map_err(|error| format!("invalid regular expression: {}", regex::error_reason(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(allow: &[&str], deny: &[&str]) -> Result<Filter, Vec<Problem>> {
        let owned = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        Filter::compile(&owned(allow), &owned(deny))
    }

    fn allows(allow: &[&str], deny: &[&str], user_agent: &str) -> bool {
        filter(allow, deny).unwrap().allows_all([user_agent.as_bytes()])
    }

    #[test]
    fn an_allowed_agent_passes_although_it_is_denied_too() {
        assert!(allows(&["curl"], &["curl/7"], "curl/7.88"));
    }

    #[test]
    fn a_denied_agent_does_not_pass() {
        assert!(!allows(&[], &["[Bb]ot"], "GoogleBot/2.1"));
        assert!(!allows(&["Firefox"], &["(?i)BOT"], "a bot"));
    }

    #[test]
    fn an_allow_list_alone_denies_nobody_with_a_name() {
        assert!(allows(&["Firefox"], &[], "curl/8"));
    }

    #[test]
    fn an_empty_agent_needs_to_be_allowed() {
        assert!(!allows(&[], &[], ""));
        assert!(!filter(&[], &[]).unwrap().allows_all([]));
        assert!(filter(&["^$"], &[".*"]).unwrap().allows_all([]));
    }

    #[test]
    fn each_of_several_agents_is_looked_at() {
        let filter = filter(&["^Good"], &["Bot"]).unwrap();
        let allows = |agents: &[&str]| filter.allows_all(agents.iter().map(|it| it.as_bytes()));

        assert!(allows(&["Good", "other"]));
        assert!(!allows(&["Good", "Bot"]));
        assert!(!allows(&["Bot", "Good"]));
        assert!(!allows(&["Good", ""]));
    }

    #[test]
    fn case_matters() {
        assert!(allows(&[], &["BOT"], "bot"));
    }

    #[test]
    fn bytes_that_are_no_text_can_be_matched() {
        let filter = filter(&[], &[r"^\xff\d$"]).unwrap();

        assert!(!filter.allows_all([&b"\xff1"[..]]));
        assert!(filter.allows_all(["\u{ff}٣".as_bytes()]));
    }

    #[test]
    fn quoted_text_is_literal() {
        assert!(!allows(&[], &[r"\Qa.b\E"], "a.b"));
        assert!(allows(&[], &[r"\Qa.b\E"], "axb"));
    }

    #[test]
    fn every_bad_expression_is_named() {
        let long = "x".repeat(1025);
        let problems = filter(&["(", "ok"], &["a", &long, r"(?=x)", "(a{999}){999}"]).unwrap_err();
        let found: Vec<_> = problems.iter().map(|it| (it.code, it.place.as_str())).collect();

        assert_eq!(
            found,
            [(2090, "allow[0]"), (2090, "deny[1]"), (2090, "deny[2]"), (2090, "deny[3]")]
        );
        assert_eq!(problems[1].to_string(), "deny[1]: longer than 1024 bytes");
    }

    #[test]
    fn a_list_has_at_most_a_hundred_expressions() {
        let many = vec!["x"; 101];

        assert!(filter(&many[..100], &[]).is_ok());
        assert_eq!(filter(&many, &[]).unwrap_err()[0].place, "allow");
    }
}
