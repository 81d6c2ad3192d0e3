//! Expressions: CEL, checked and rewritten so that no expression can harm the process.
//!
//! Traffic policy sheet, sections 7, 8 and 12. An expression is compiled once, on any thread, and can be
//! evaluated on any thread afterwards: `nesting` refuses what would need an unusual stack.

mod budget;
mod check;
mod functions;
mod lower;
mod nesting;
mod pattern;
mod quick;
mod spelling;
mod tree;
pub mod value;
mod variables;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{Context, DeclarationError, Env, ExecutionError, IdedExpr, ParseErrors, Value};

pub(super) use self::budget::pay_for_view;
pub(super) use self::functions::hex;
use self::pattern::CompiledPattern;
pub(super) use self::quick::FactRead;
use self::quick::{Quick, Sight};
use super::Phase;
use super::address::AddressKinds;
use super::facts::{FactSource, Facts, TextFact};
use super::problem::code;
use super::secrets::SecretName;

/// How long an expression may be, in bytes.
pub const LENGTH: usize = 4096;

static ENVIRONMENT: LazyLock<Result<Arc<Env>, DeclarationError>> =
    LazyLock::new(|| functions::build_environment().map(Arc::new));

/// A compiled expression.
#[derive(Debug, Clone)]
pub struct Expression {
    source: String,
    tree: IdedExpr,
    patterns: Vec<CompiledPattern>,
    secrets: Vec<SecretName>,
    /// The same, where it can be decided without the engine.
    quick: Option<Box<Quick>>,
    reads: Reads,
    /// The variable, if the expression is only its name.
    variable: Option<TextFact>,
}

/// What an expression reads that matters where it is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// The path of the request, which must not be ambiguous then.
    pub path: bool,
    /// What only files of the operator know of addresses.
    pub addresses: AddressKinds,
}

impl std::ops::BitOrAssign for Reads {
    fn bitor_assign(&mut self, other: Self) {
        self.path |= other.path;
        self.addresses |= other.addresses;
    }
}

/// The result of reading an expression.
pub type ExpressionResult<T> = Result<T, ExpressionError>;

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// The number of the problem: 2200, or 2261 for the pattern of a `matches`.
    pub code: u16,
    /// What is wrong, in one line.
    pub message: String,
}

impl ExpressionError {
    fn invalid_expression(message: impl Into<String>) -> Self {
        Self { code: code::EXPRESSION, message: message.into() }
    }

    fn invalid_regex(reason: String) -> Self {
        Self { code: code::REGEX, message: format!("invalid regular expression: {reason}") }
    }
}

impl Expression {
    /// Compiles an expression for the phase it will be evaluated in.
    pub fn compile(source: &str, phase: Phase) -> ExpressionResult<Self> {
        Self::compile_with(source, phase, &[])
    }

    /// Compiles an expression that sees some names besides variables.
    pub(super) fn compile_with(
        source: &str,
        phase: Phase,
        names: &[&str],
    ) -> ExpressionResult<Self> {
        if source.len() > LENGTH {
            let message = format!("{} bytes: at most {LENGTH} are allowed", source.len());
            return Err(ExpressionError::invalid_expression(message));
        }
        catch_unwind(|| build_expression(source, phase, names)).unwrap_or_else(|_| {
            Err(ExpressionError::invalid_expression("the expression cannot be compiled"))
        })
    }

    /// How many patterns were compiled with the expression.
    pub(super) fn pattern_count(&self) -> usize {
        self.patterns.len()
    }

    /// The secrets that it reads.
    pub fn secrets(&self) -> &[SecretName] {
        &self.secrets
    }

    /// What the value depends on that matters.
    pub fn reads_of_note(&self) -> Reads {
        self.reads
    }

    /// The text that was compiled.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates the expression.
    ///
    /// The resolver is asked for the longest dotted name first: `req.url.path`, then `req.url`,
    /// then `req`. An evaluation fails when it would use too much time or memory.
    pub fn evaluate(&self, variables: &dyn VariableResolver) -> Result<Value, ExecutionError> {
        let environment = ENVIRONMENT.as_ref().map_err(internal_error)?;
        let names = EvaluationScope { patterns: &self.patterns, secrets: &self.secrets, variables };
        let mut context = Context::with_env(Arc::clone(environment));
        context.set_variable_resolver(&names);
        budget::start_evaluation();
        // `resolve_val` would be compiled into this crate, where a debug build gives it a stack
        // frame of 40 kB.
        let value = catch_unwind(AssertUnwindSafe(|| Value::resolve(&self.tree, &context)))
            .unwrap_or_else(|_| Err(internal_error("the evaluation panicked")))?;
        // An operator such as `&&` may have hidden that there was nothing left.
        budget::check_remaining().map(|()| value)
    }
}

impl Expression {
    /// Whether the expression is true; an error when it is neither true nor false, with the reason
    /// where one is wanted, because that costs time and is for people only.
    pub(super) fn is_true(&self, facts: &Facts<'_>, explain: bool) -> Result<bool, Option<String>> {
        if let Some(quick) = &self.quick {
            return self
                .decide_predicate(quick, facts.exchange())
                .ok_or_else(|| explain.then(|| self.explain_failure(facts)));
        }
        match self.evaluate(facts) {
            Ok(Value::Bool(truth)) => Ok(truth),
            other => Err(explain.then(|| self.failure_reason(other))),
        }
    }

    /// Whether the expression is true, where it can be told without the engine.
    pub(super) fn is_true_of(&self, source: &dyn FactSource) -> Option<bool> {
        self.decide_predicate(self.quick.as_ref()?, source)
    }

    /// What the expression looks at, where that can be told.
    pub(super) fn fact_reads(&self) -> Option<Vec<FactRead<'_>>> {
        Some(self.quick.as_ref()?.fact_reads())
    }

    /// Returns the variable, if the expression is only its name.
    pub(super) fn variable(&self) -> Option<TextFact> {
        self.variable
    }

    fn decide_predicate(&self, quick: &Quick, source: &dyn FactSource) -> Option<bool> {
        quick.decide(Sight { source, patterns: &self.patterns, current: "" })
    }

    /// Why the expression is neither true nor false.
    fn explain_failure(&self, variables: &dyn VariableResolver) -> String {
        self.failure_reason(self.evaluate(variables))
    }

    fn failure_reason(&self, outcome: Result<Value, ExecutionError>) -> String {
        match outcome {
            Ok(_) => format!("{}: neither true nor false", self.source),
            Err(error) => format!("{}: {}", self.source, one_line_of(&error.to_string())),
        }
    }
}

/// Recent errors, in one line of a sensible length.
pub(super) fn one_line_of(text: &str) -> String {
    text.chars().map(one_line).take(300).collect()
}

fn build_expression(source: &str, phase: Phase, names: &[&str]) -> ExpressionResult<Expression> {
    let environment = ENVIRONMENT
        .as_ref()
        .map_err(|error| ExpressionError::invalid_expression(error.to_string()))?;
    nesting::check_nesting(source)?;
    let mut tree = match tree::parse_dotted_name(source.trim_ascii()) {
        Some(variable) => variable,
        None => environment.parser().parse(source).map_err(|errors| syntax_error(&errors))?,
    };
    spelling::correct_names(&mut tree, &mut names.iter().map(|name| (*name).to_owned()).collect());
    let lower::Lowered { patterns, secrets } = lower::lower_tree(&mut tree)?;
    let reads = check::check_tree(&tree, phase, names)?;
    let quick = quick::compile_predicate(&tree).map(Box::new);
    let name = tree::qualified_name(&tree).filter(|_| !tree::is_presence_test(&tree));
    let variable = name.and_then(|name| TextFact::from_name(&name));
    tree::wrap_in_call(&mut tree, "@plain");
    Ok(Expression { source: source.to_owned(), tree, patterns, secrets, quick, reads, variable })
}

/// The first complaint of the parser; the others mostly follow from it.
fn syntax_error(errors: &ParseErrors) -> ExpressionError {
    let Some(error) = errors.errors.first() else {
        return ExpressionError::invalid_expression("invalid expression");
    };
    let (line, column) = error.pos;
    let reason: String = error.msg.chars().map(one_line).take(200).collect();
    ExpressionError::invalid_expression(format!(
        "invalid expression at {line}:{column}: {}",
        decapitalise(&reason)
    ))
}

fn one_line(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

fn decapitalise(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_lowercase().chain(characters).collect(),
        None => String::new(),
    }
}

fn internal_error(error: impl ToString) -> ExecutionError {
    ExecutionError::InternalError(error.to_string())
}

/// The names an evaluation can see: the patterns and secrets of the expression, and the given variables.
struct EvaluationScope<'a> {
    patterns: &'a [CompiledPattern],
    secrets: &'a [SecretName],
    variables: &'a dyn VariableResolver,
}

impl VariableResolver for EvaluationScope<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        if let Some(index) = lower::secret_index(variable) {
            return self.variables.resolve(&self.secrets.get(index)?.variable_name());
        }
        match CompiledPattern::index(variable) {
            Some(index) => self.patterns.get(index).map(|it| CowVal::Borrowed(it as &dyn Val)),
            None if budget::is_spent() => None,
            None => self.variables.resolve(variable).filter(|value| is_affordable(value)),
        }
    }
}

/// Pays for a list or map that was made anew for this look at a variable; what cannot be paid for
/// ends the evaluation.
fn is_affordable(value: &CowVal<'_, '_>) -> bool {
    match value {
        CowVal::Owned(made) => budget::pay_for_copy(made.as_ref()).is_ok(),
        CowVal::Borrowed(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(source: &str, phase: Phase) -> ExpressionError {
        Expression::compile(source, phase).unwrap_err()
    }

    #[test]
    fn messages_say_what_is_not_there() {
        assert_eq!(fault("req.foo == 1", Phase::Request).message, "unknown variable req.foo");
        assert_eq!(
            fault("hasResHeader('x')", Phase::Request).message,
            "res.headers is not available in on_http_request"
        );
        assert_eq!(
            fault("req.host.twist(1)", Phase::Request).message,
            "no function twist takes these arguments"
        );
        assert!(fault("1 +", Phase::Request).message.starts_with("invalid expression at 1:"));
    }

    #[test]
    fn names_of_loops_hide_variables_only_inside() {
        assert!(Expression::compile("[1].all(x, x > 0)", Phase::Connect).is_ok());
        assert!(Expression::compile("[1].all(x, x > 0) && x == 1", Phase::Connect).is_err());
    }

    #[test]
    fn a_pattern_is_checked_when_the_expression_is() {
        assert_eq!(fault("req.host.matches('(')", Phase::Request).code, code::REGEX);
    }

    #[test]
    fn the_name_of_a_variable_is_read_as_the_parser_reads_it() {
        let parsed = |source: &str| {
            let environment = ENVIRONMENT.as_ref().unwrap();
            environment.parser().parse(source).ok().and_then(|tree| tree::qualified_name(&tree))
        };
        for source in ["req.host", "req.url.path", "vars._x1", "x", "size", "int.max"] {
            let spelled =
                tree::parse_dotted_name(source).and_then(|tree| tree::qualified_name(&tree));
            assert_eq!(spelled.as_deref(), Some(source));
            assert_eq!(parsed(source).as_deref(), Some(source));
        }
        for source in ["true", "a.in", "null.x", "1a", "a..b", ".a", "a.", "a b", "é", "", "a()"] {
            assert!(tree::parse_dotted_name(source).is_none(), "{source}");
        }
    }

    #[test]
    fn nothing_that_starts_with_an_at_sign_can_be_called() {
        assert!(Expression::compile("@pay(1)", Phase::Request).is_err());
        assert!(Expression::compile("_+_(1, 2)", Phase::Request).is_err());
    }
}
