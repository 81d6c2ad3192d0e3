//! Regular expressions as values of an expression.

use std::any::Any;

use cel::common::types::Type;
use cel::common::value::{StaticVal, Val};
use regex::Regex;

use super::super::regex::{compile_regex, compile_small};
use super::{ExpressionError, ExpressionResult};

/// The type of a compiled pattern; expressions cannot name it.
pub(super) static PATTERN_TYPE: Type = Type::new_unspecified_type("pattern");

/// A pattern that was compiled with the expression that holds it.
#[derive(Debug, Clone)]
pub(super) struct CompiledPattern(Regex);

impl CompiledPattern {
    /// Compiles a literal pattern.
    pub(super) fn compile(source: &str) -> ExpressionResult<Self> {
        compile_regex(source).map(Self).map_err(ExpressionError::invalid_regex)
    }

    /// Compiles a literal pattern that is not large; none when it is.
    pub(super) fn compile_small(source: &str) -> ExpressionResult<Option<Self>> {
        compile_small(source).map(|regex| regex.map(Self)).map_err(ExpressionError::invalid_regex)
    }

    /// What an expression calls its pattern number `index`.
    pub(super) fn variable_name(index: usize) -> String {
        format!("@pattern{index}")
    }

    /// The number in a name that [`CompiledPattern::variable_name`] made.
    pub(super) fn index(name: &str) -> Option<usize> {
        name.strip_prefix("@pattern")?.parse().ok()
    }

    /// Whether the pattern occurs in `text`.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl Val for CompiledPattern {
    fn get_type(&self) -> &Type {
        &PATTERN_TYPE
    }

    fn cel_type() -> &'static Type {
        &PATTERN_TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for CompiledPattern {}
