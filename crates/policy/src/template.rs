//! Texts with expressions in them: `hello ${req.headers['x-name'][0]}`.
//!
//! Traffic policy sheet, section 8.

use std::borrow::Cow;
use std::collections::HashMap;

use ::regex::Regex;
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::{ExecutionError, Value};
use serde_json::Value as Json;

use super::action_error::{ActionError, ActionResult, failure};
use super::expression::{Expression, ExpressionError, Reads, one_line_of, value};
use super::facts::TextFact;
use super::problem::code;
use super::secrets::SecretName;
use super::{Phase, regex};

/// How long the text of a template may become, in bytes.
const RENDERED: usize = 1 << 20;

/// How long a pattern may be that is put together while rules run, in bytes.
const PATTERN: usize = 4096;

/// Compiles a pattern that was put together while rules run.
pub(super) fn compile_computed(source: &str) -> ActionResult<Regex> {
    if source.len() > PATTERN {
        let message = format!("a pattern of more than {PATTERN} bytes");
        return Err(ActionError::fatal(failure::PATTERN, message));
    }
    regex::compile_regex(source).map_err(|reason| ActionError::fatal(failure::PATTERN, reason))
}

/// A text with expressions in it.
#[derive(Debug, Clone, Default)]
pub struct Template {
    /// The parts of the text, in order; no two texts are neighbours.
    pub parts: Vec<Part>,
}

/// A piece of a template.
#[derive(Debug, Clone)]
pub enum Part {
    /// A text that stands for itself.
    Text(String),
    /// An expression whose value stands here.
    Expression(Expression),
}

/// JSON in which every text is a template, such as the metadata of a log entry.
#[derive(Debug, Clone)]
pub enum Tree {
    /// A value that holds no text.
    Plain(Json),
    /// A text.
    Text(Template),
    /// The entries of a list.
    List(Vec<Tree>),
    /// The fields of an object, in order; their names are no templates.
    Map(Vec<(String, Tree)>),
}

/// A regular expression that may be known only when the request is.
#[derive(Debug, Clone)]
pub enum PatternTemplate {
    /// A pattern without expressions.
    Fixed(::regex::Regex),
    /// A pattern to be compiled once its expressions have values.
    Computed(Template),
}

/// Where nothing has a value.
struct NoVariables;

impl VariableResolver for NoVariables {
    fn resolve<'b>(&'b self, _: &str) -> Option<CowVal<'b, 'b>> {
        None
    }
}

impl Template {
    /// Takes a text apart and compiles its expressions.
    pub(super) fn compile(source: &str, phase: Phase) -> Result<Self, ExpressionError> {
        let mut template = Self::default();
        let mut text = String::new();
        let mut rest = source;
        while let Some(start) = rest.find("${") {
            let (before, expression) = (&rest[..start], &rest[start + 2..]);
            if let Some(before) = before.strip_suffix('$') {
                text.push_str(before);
                text.push_str("${");
                rest = expression;
                continue;
            }
            text.push_str(before);
            let end = end_of_expression(expression).ok_or_else(unclosed_expression)?;
            template.push_text(&mut text);
            template.parts.push(Part::Expression(compile_expression(&expression[..end], phase)?));
            rest = &expression[end + 1..];
        }
        text.push_str(rest);
        template.push_text(&mut text);
        Ok(template)
    }

    /// The whole text, if there is no expression in it.
    pub fn fixed_text(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The whole text, if it is the same for all requests.
    pub(super) fn constant_text(&self) -> Option<Cow<'_, str>> {
        match self.fixed_text() {
            Some(text) => Some(text.into()),
            None => self.render(&NoVariables, std::convert::identity).ok().map(Cow::Owned),
        }
    }

    /// The pieces of text around the expressions.
    pub fn text_pieces(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Expression(_) => None,
        })
    }

    /// Returns true if no text stands before the first expression.
    pub(super) fn begins_with_expression(&self) -> bool {
        matches!(self.parts.first(), Some(Part::Expression(_)))
    }

    /// How many patterns were compiled with the expressions.
    pub(super) fn pattern_count(&self) -> usize {
        let count = |part: &Part| match part {
            Part::Text(_) => 0,
            Part::Expression(expression) => expression.pattern_count(),
        };
        self.parts.iter().map(count).sum()
    }

    /// The secrets that its expressions read.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.parts.iter().flat_map(|part| match part {
            Part::Text(_) => &[],
            Part::Expression(expression) => expression.secrets(),
        })
    }

    /// What the text depends on that matters.
    pub(super) fn reads_of_note(&self) -> Reads {
        let mut reads = Reads::default();
        for part in &self.parts {
            if let Part::Expression(expression) = part {
                reads |= expression.reads_of_note();
            }
        }
        reads
    }

    /// Whether the template is the empty text.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The text with the values of its expressions, each of which `escape` may change.
    pub(super) fn render(
        &self,
        variables: &dyn VariableResolver,
        escape: impl Fn(String) -> String,
    ) -> ActionResult<String> {
        let mut rendered = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => rendered.push_str(text),
                Part::Expression(expression) => {
                    rendered.push_str(&escape(text_of(expression, variables)?));
                }
            }
            if rendered.len() > RENDERED {
                let message = format!("more than {RENDERED} bytes of text");
                return Err(ActionError::fatal(failure::VALUE, message));
            }
        }
        Ok(rendered)
    }

    /// The value: of its own type if the template is one expression, else a text.
    fn to_value(&self, variables: &dyn VariableResolver) -> ActionResult<Value> {
        match self.parts.as_slice() {
            [Part::Expression(expression)] => evaluate_expression(expression, variables),
            _ => Ok(Value::from(self.render(variables, std::convert::identity)?)),
        }
    }

    fn push_text(&mut self, text: &mut String) {
        if !text.is_empty() {
            self.parts.push(Part::Text(std::mem::take(text)));
        }
    }
}

impl Tree {
    /// The value with the values of its expressions.
    pub(super) fn to_value(&self, variables: &dyn VariableResolver) -> ActionResult<Value> {
        match self {
            Self::Plain(json) => plain_value(json),
            Self::Text(template) => template.to_value(variables),
            Self::List(entries) => {
                let entries = entries.iter().map(|entry| entry.to_value(variables));
                Ok(Value::List(entries.collect::<Result<Vec<_>, _>>()?.into()))
            }
            Self::Map(fields) => {
                let fields = fields.iter().map(|(name, tree)| {
                    Ok::<_, ActionError>((name.clone(), tree.to_value(variables)?))
                });
                Ok(Value::from(fields.collect::<Result<HashMap<_, _>, _>>()?))
            }
        }
    }

    /// The value as JSON, in the order of the document.
    pub(super) fn to_json(&self, variables: &dyn VariableResolver) -> ActionResult<Json> {
        match self {
            Self::Plain(json) => Ok(json.clone()),
            Self::Text(template) => {
                value::value_to_json(&template.to_value(variables)?).map_err(invalid_value)
            }
            Self::List(entries) => entries
                .iter()
                .map(|entry| entry.to_json(variables))
                .collect::<Result<_, _>>()
                .map(Json::Array),
            Self::Map(fields) => {
                let fields =
                    fields.iter().map(|(name, tree)| Ok((name.clone(), tree.to_json(variables)?)));
                fields.collect::<ActionResult<_>>().map(Json::Object)
            }
        }
    }
}

fn plain_value(json: &Json) -> ActionResult<Value> {
    let value = value::from_json(json).map_err(invalid_value)?;
    Value::try_from(value.as_ref()).map_err(invalid_value)
}

fn invalid_value(error: ExecutionError) -> ActionError {
    ActionError::fatal(failure::VALUE, one_line_of(&error.to_string()))
}

fn evaluate_expression(
    expression: &Expression,
    variables: &dyn VariableResolver,
) -> ActionResult<Value> {
    expression.evaluate(variables).map_err(|error| {
        let reason = one_line_of(&error.to_string());
        ActionError::fatal(failure::EXPRESSION, format!("{}: {reason}", expression.source()))
    })
}

pub(super) fn text_of(
    expression: &Expression,
    variables: &dyn VariableResolver,
) -> ActionResult<String> {
    value::value_to_text(&evaluate_expression(expression, variables)?).map_err(invalid_value)
}

impl PatternTemplate {
    /// The pattern, compiled now if it was put together.
    pub(super) fn to_regex(
        &self,
        variables: &dyn VariableResolver,
    ) -> ActionResult<Cow<'_, Regex>> {
        match self {
            Self::Fixed(regex) => Ok(Cow::Borrowed(regex)),
            Self::Computed(template) => {
                let mut source = String::new();
                for part in &template.parts {
                    match part {
                        Part::Expression(expression) => {
                            source.push_str(&pattern_of(expression, variables)?);
                        }
                        Part::Text(text) => source.push_str(text),
                    }
                }
                compile_computed(&source).map(Cow::Owned)
            }
        }
    }

    /// Compiles a pattern that holds no expression, or says why it is none.
    pub(super) fn compile(template: Template) -> Result<Self, String> {
        match template.fixed_text() {
            Some(source) => regex::compile_regex(source).map(Self::Fixed),
            None => Ok(Self::Computed(template)),
        }
    }
}

/// Returns the value of an expression as a pattern. A host matches literally, with its dots and the brackets
/// around an IPv6 address.
pub(super) fn pattern_of(
    expression: &Expression,
    variables: &dyn VariableResolver,
) -> ActionResult<String> {
    let value = text_of(expression, variables)?;
    match expression.variable() {
        Some(TextFact::Host | TextFact::UrlHost) => Ok(::regex::escape(&value)),
        _ => Ok(value),
    }
}

fn compile_expression(source: &str, phase: Phase) -> Result<Expression, ExpressionError> {
    if source.trim().is_empty() {
        return Err(template_error(code::TEMPLATE, "empty ${}"));
    }
    Expression::compile(source, phase)
        .map_err(|inner| template_error(code::TEMPLATE_EXPRESSION, &format!("in ${{}}: {inner}")))
}

fn unclosed_expression() -> ExpressionError {
    template_error(code::TEMPLATE, "${ without its }")
}

fn template_error(code: u16, message: &str) -> ExpressionError {
    ExpressionError { code, message: message.to_owned() }
}

/// Where the brace is that closes the expression; braces in maps and in quotes do not count.
fn end_of_expression(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut open = 0;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\'' | b'"' => {
                at = end_of_quotes(text, at)?;
                continue;
            }
            b'{' => open += 1,
            b'}' if open == 0 => return Some(at),
            b'}' => open -= 1,
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where the expression continues behind the text that is quoted from `start`.
fn end_of_quotes(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let quote = &text[start..=start];
    let triple = quote.repeat(3);
    let delimiter = if text[start..].starts_with(&triple) { triple.as_str() } else { quote };
    let is_raw = start > 0 && matches!(bytes[start - 1], b'r' | b'R');
    let mut at = start + delimiter.len();
    while at < bytes.len() {
        if bytes[at] == b'\\' && !is_raw {
            at += 2;
        } else if bytes[at..].starts_with(delimiter.as_bytes()) {
            return Some(at + delimiter.len());
        } else {
            at += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a template, expressions in brackets.
    fn parts(source: &str) -> Result<Vec<String>, u16> {
        let template = Template::compile(source, Phase::Request).map_err(|it| it.code)?;
        let show = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Expression(expression) => format!("[{}]", expression.source()),
        };
        Ok(template.parts.iter().map(show).collect())
    }

    #[test]
    fn expressions_stand_between_texts() {
        assert_eq!(
            parts("a ${req.host} b"),
            Ok(vec!["a ".into(), "[req.host]".into(), " b".into()])
        );
        assert_eq!(parts("${1}${2}"), Ok(vec!["[1]".into(), "[2]".into()]));
        assert_eq!(parts(""), Ok(vec![]));
    }

    #[test]
    fn braces_in_maps_and_quotes_belong_to_the_expression() {
        for inner in [
            "{'a': {'b': 1}}['a']['b']",
            "'}'",
            r"'\'}'",
            r"r'\'",
            "\"\"\"}\"'}\"\"\"",
            "'''}'}'''",
        ] {
            assert_eq!(parts(&format!("${{{inner}}}")), Ok(vec![format!("[{inner}]")]), "{inner}");
        }
    }

    #[test]
    fn a_doubled_dollar_is_a_literal_one() {
        assert_eq!(parts("$${x} $5 $$"), Ok(vec!["${x} $5 $$".into()]));
    }

    #[test]
    fn an_unclosed_or_empty_expression_is_refused() {
        for source in ["${", "${req.host", "${'}", "${}", "${ }"] {
            assert_eq!(parts(source), Err(code::TEMPLATE), "{source}");
        }
        assert_eq!(parts("${nobody}"), Err(code::TEMPLATE_EXPRESSION));
    }

    #[test]
    fn letters_of_any_size_may_follow_a_backslash() {
        assert_eq!(parts("${'\\"), Err(code::TEMPLATE));
        assert_eq!(parts("${'\\ä"), Err(code::TEMPLATE));
    }
}
