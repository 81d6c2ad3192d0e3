//! The functions that expressions may call.
//!
//! Traffic policy sheet, section 8. Ours are entries of the tables below, one table per file; the
//! engine's own are listed by name, because it cannot be asked for them.

mod encode;
mod hash;
mod http;
mod ip;
mod lists;
mod random;
mod standard;
mod text;
mod urls;

use cel::common::functions::Function as Run;
use cel::common::traits::Iterable;
use cel::common::types::{
    CelBool, CelBytes, CelInt, CelString, DYN_TYPE, INT_TYPE, LIST_TYPE, STRING_TYPE, Type,
};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError, extensions};

use super::value::unexpected_type;

pub(in super::super) use ginnel_base::hex;

/// What a function is given; the receiver of a method comes first.
type Arguments<'b, 'v> = Vec<CowVal<'b, 'v>>;

/// What a function answers.
type FunctionResult<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// One overload of a function of ours.
struct Function {
    name: &'static str,
    /// Whether it is called on its first argument: `x.f(y)`.
    is_method: bool,
    arguments: &'static [Argument],
    run: Run,
}

/// The type of an argument.
#[derive(Debug, Clone, Copy)]
enum Argument {
    Any,
    Integer,
    List,
    Text,
}

const fn global_function(name: &'static str, arguments: &'static [Argument], run: Run) -> Function {
    Function { name, is_method: false, arguments, run }
}

const fn member_function(name: &'static str, arguments: &'static [Argument], run: Run) -> Function {
    Function { name, is_method: true, arguments, run }
}

const TABLES: &[&[Function]] = &[
    encode::FUNCTIONS,
    hash::FUNCTIONS,
    http::FUNCTIONS,
    ip::FUNCTIONS,
    lists::FUNCTIONS,
    random::FUNCTIONS,
    text::FUNCTIONS,
    urls::FUNCTIONS,
];

/// The environment that expressions are parsed and evaluated in.
pub(super) fn build_environment() -> Result<Env, DeclarationError> {
    let mut environment = Env::stdlib().with_optional_support(false);
    environment.add_extension(extensions::strings)?;
    environment.add_extension(extensions::lists)?;
    for function in TABLES.iter().copied().flatten() {
        function.declare(&mut environment)?;
    }
    Ok(environment)
}

/// Whether a function of that name takes so many arguments.
pub(super) fn is_global(name: &str, arguments: usize) -> bool {
    standard::is_global(name, arguments)
        || own_functions()
            .any(|it| !it.is_method && it.name == name && it.arguments.len() == arguments)
}

/// Whether a method of that name takes so many arguments, the receiver not counted.
pub(super) fn is_member(name: &str, arguments: usize) -> bool {
    standard::is_member(name, arguments)
        || own_functions()
            .any(|it| it.is_method && it.name == name && it.arguments.len() == arguments + 1)
}

fn own_functions() -> impl Iterator<Item = &'static Function> {
    TABLES.iter().copied().flatten()
}

impl Function {
    fn declare(&self, environment: &mut Env) -> Result<(), DeclarationError> {
        let id = format!("{}{:?}", self.name, self.arguments);
        let mut types: Vec<Type> = self.arguments.iter().map(|it| it.to_type()).collect();
        if !self.is_method {
            return environment.add_overload(self.name, &id, types, self.run);
        }
        let receiver = types.remove(0);
        environment.add_member_overload(self.name, &format!(".{id}"), receiver, types, self.run)
    }
}

impl Argument {
    fn to_type(self) -> Type {
        match self {
            Self::Any => DYN_TYPE,
            Self::Integer => INT_TYPE,
            Self::List => LIST_TYPE,
            Self::Text => STRING_TYPE,
        }
    }
}

fn function_error(function: &str, reason: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, reason)
}

fn argument_at<'a, 'v>(
    arguments: &'a [CowVal<'_, 'v>],
    index: usize,
) -> Result<&'a (dyn Val + 'v), ExecutionError> {
    let count = arguments.len();
    let missing = || ExecutionError::invalid_argument_count(index + 1, count);
    arguments.get(index).map(|argument| argument.as_ref()).ok_or_else(missing)
}

fn text_argument<'a>(
    arguments: &'a [CowVal<'_, '_>],
    index: usize,
) -> Result<&'a str, ExecutionError> {
    text_of(argument_at(arguments, index)?)
}

fn integer_argument(arguments: &[CowVal<'_, '_>], index: usize) -> Result<i64, ExecutionError> {
    let value = argument_at(arguments, index)?;
    let integer = value.downcast_ref::<CelInt>().ok_or_else(|| unexpected_type(value, "int"))?;
    Ok(*integer.inner())
}

fn text_of<'a, 'v>(value: &'a (dyn Val + 'v)) -> Result<&'a str, ExecutionError> {
    let text = value.downcast_ref::<CelString>().ok_or_else(|| unexpected_type(value, "string"))?;
    Ok(text.inner())
}

/// The bytes of a text or of bytes.
fn bytes_of<'a, 'v>(value: &'a (dyn Val + 'v)) -> Result<&'a [u8], ExecutionError> {
    match value.downcast_ref::<CelBytes>() {
        Some(bytes) => Ok(bytes.inner()),
        None => text_of(value).map(str::as_bytes),
    }
}

fn require_iterable<'a, 'v>(
    value: &'a (dyn Val + 'v),
) -> Result<&'a (dyn Iterable + 'v), ExecutionError> {
    value.as_iterable().ok_or_else(|| unexpected_type(value, "list"))
}

fn some_text<'b, 'v>(text: impl Into<String>) -> FunctionResult<'b, 'v> {
    Ok(CowVal::owned(CelString::from(text.into())))
}

fn some_truth<'b, 'v>(truth: bool) -> FunctionResult<'b, 'v> {
    Ok(CowVal::owned(CelBool::from(truth)))
}

#[cfg(test)]
pub(super) mod tests {
    use cel::common::value::CowVal;
    use cel::context::VariableResolver;
    use serde_json::{Value as Json, json};

    use super::super::{Expression, value};
    use super::*;
    use crate::Phase;

    /// A resolver for the top-level names of one JSON object.
    pub struct Variables(pub Json);

    impl VariableResolver for Variables {
        fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
            let value = self.0.get(name)?;
            value::from_json(value).ok().map(CowVal::Owned)
        }
    }

    /// What an expression of the response phase gives as JSON, or why it gives nothing.
    pub fn evaluate(source: &str, variables: Json) -> Result<Json, String> {
        let expression = Expression::compile(source, Phase::Response).unwrap();
        let result =
            expression.evaluate(&Variables(variables)).and_then(|it| value::value_to_json(&it));
        result.map_err(|error| error.to_string())
    }

    pub fn result(source: &str) -> Json {
        evaluate(source, json!({})).unwrap()
    }

    #[test]
    fn the_environment_takes_every_function() {
        assert!(build_environment().is_ok());
    }
}
