//! What every part of a document is checked with: the phase, and the problems found so far.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::Phase;
use super::expression::{Expression, ExpressionError, Reads};
use super::problem::{DocumentPath, Problem, code};
use super::secrets::SecretName;
use super::template::{PatternTemplate, Template, Tree};

/// How deep the values of variables and of log entries may be nested.
const DEPTH: usize = 10;

/// How many regular expressions a document may hold: each may take a megabyte.
const PATTERNS: usize = 100;

/// Collects what is wrong with a document.
pub(super) struct Checker {
    /// When the rules at hand run.
    pub phase: Phase,
    /// What was found so far.
    pub problems: Vec<Problem>,
    /// What anything has looked at so far.
    pub reads: Reads,
    /// The secrets that anything reads so far.
    pub secrets: BTreeSet<SecretName>,
    /// How many regular expressions there are so far.
    patterns: usize,
}

impl Checker {
    /// A checker that has found nothing yet.
    pub(super) fn new(phase: Phase) -> Self {
        let (problems, reads, secrets, patterns) = Default::default();
        Self { phase, problems, reads, secrets, patterns }
    }

    /// Records a problem.
    pub(super) fn record_problem(
        &mut self,
        place: &DocumentPath,
        code: u16,
        message: impl Into<String>,
    ) {
        self.problems.push(place.problem(code, message));
    }

    /// Compiles an expression.
    pub(super) fn compile_expression(
        &mut self,
        place: &DocumentPath,
        source: &str,
    ) -> Option<Expression> {
        self.compile_condition(place, source, &[])
    }

    /// Compiles an expression that sees some names of its own.
    pub(super) fn compile_condition(
        &mut self,
        place: &DocumentPath,
        source: &str,
        names: &[&str],
    ) -> Option<Expression> {
        if self.has_too_many_patterns() {
            return None;
        }
        let compiled = Expression::compile_with(source, self.phase, names);
        let expression = self.ok_or_record(place, compiled)?;
        self.reads |= expression.reads_of_note();
        self.secrets.extend(expression.secrets().iter().cloned());
        self.count_patterns(place, expression.pattern_count()).then_some(expression)
    }

    /// Compiles a template; a bad one is empty.
    pub(super) fn compile_template(&mut self, place: &DocumentPath, source: &str) -> Template {
        if self.has_too_many_patterns() {
            return Template::default();
        }
        let compiled = Template::compile(source, self.phase);
        let template = self.ok_or_record(place, compiled).unwrap_or_default();
        self.reads |= template.reads_of_note();
        self.secrets.extend(template.secrets().cloned());
        if self.count_patterns(place, template.pattern_count()) {
            template
        } else {
            Template::default()
        }
    }

    /// Compiles the pattern that a template is, unless it has expressions to be evaluated first.
    pub(super) fn compile_pattern(
        &mut self,
        place: &DocumentPath,
        template: Template,
    ) -> Option<PatternTemplate> {
        if !self.count_patterns(place, 1) {
            return None;
        }
        let pattern = PatternTemplate::compile(template);
        pattern
            .map_err(|reason| {
                self.record_problem(
                    place,
                    code::REGEX,
                    format!("invalid regular expression: {reason}"),
                )
            })
            .ok()
    }

    /// Compiles the templates in a value that is nested at most ten levels deep.
    ///
    /// `code` is the problem of a value that is nested more deeply.
    pub(super) fn compile_tree(&mut self, place: &DocumentPath, value: &Value, code: u16) -> Tree {
        self.compile_nested(place, value, code, 0)
    }

    fn compile_nested(
        &mut self,
        place: &DocumentPath,
        value: &Value,
        code: u16,
        depth: usize,
    ) -> Tree {
        if depth > DEPTH {
            self.record_problem(place, code, format!("nested more than {DEPTH} levels deep"));
            return Tree::Plain(Value::Null);
        }
        match value {
            Value::String(text) => Tree::Text(self.compile_template(place, text)),
            Value::Array(entries) => {
                let entries = entries.iter().enumerate();
                let nested = |(index, entry)| {
                    self.compile_nested(&place.entry(index), entry, code, depth + 1)
                };
                Tree::List(entries.map(nested).collect())
            }
            Value::Object(fields) => {
                let nested = |(name, value): (&String, &Value)| {
                    (name.clone(), self.compile_nested(&place.field(name), value, code, depth + 1))
                };
                Tree::Map(fields.iter().map(nested).collect())
            }
            plain => Tree::Plain(plain.clone()),
        }
    }

    fn has_too_many_patterns(&self) -> bool {
        self.patterns > PATTERNS
    }

    /// Counts patterns, and says whether all are still within the limit.
    fn count_patterns(&mut self, place: &DocumentPath, count: usize) -> bool {
        let had_too_many = self.has_too_many_patterns();
        self.patterns += count;
        if self.has_too_many_patterns() && !had_too_many {
            let message = format!("more than {PATTERNS} regular expressions in the document");
            self.record_problem(place, code::REGEX, message);
        }
        !self.has_too_many_patterns()
    }

    fn ok_or_record<T>(
        &mut self,
        place: &DocumentPath,
        compiled: Result<T, ExpressionError>,
    ) -> Option<T> {
        compiled.map_err(|fault| self.record_problem(place, fault.code, fault.message)).ok()
    }
}

/// Reads a duration such as `90s`, `1m30s` or `1.5h`.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(rest.len());
        let part = Duration::try_from_secs_f64(number * seconds_in(&rest[..end])?).ok()?;
        total = total.checked_add(part)?;
        rest = &rest[end..];
    }
    (!text.is_empty()).then_some(total)
}

fn seconds_in(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_add_up() {
        assert_eq!(parse_duration("90s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("1h1m30.5s"), Some(Duration::from_millis(3_690_500)));
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
    }

    #[test]
    fn what_has_no_unit_is_no_duration() {
        for text in ["", "10", "s", "-1s", "1d", "1.2.3s", "1s2", "99999999999999999999h", "1 s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
