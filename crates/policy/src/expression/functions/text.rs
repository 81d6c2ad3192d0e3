//! Functions of texts that the engine lacks, or has without a limit.

use std::cell::RefCell;

use cel::ExecutionError;
use cel::common::types::CelBool;
use cel::common::value::CowVal;
use regex::Regex;

use super::super::budget;
use super::super::pattern::CompiledPattern;
use super::Argument::{Any, Integer, List, Text};
use super::{
    Arguments, Function, FunctionResult, argument_at, function_error, global_function,
    integer_argument, member_function, require_iterable, some_text, text_argument, text_of,
};
use crate::regex::compile_regex;

pub(super) const FUNCTIONS: &[Function] = &[
    member_function("lower", &[Text], lowercase_text),
    member_function("upper", &[Text], uppercase_text),
    global_function("@matches", &[Text, Any], matches_pattern),
    global_function("@replace", &[Text, Text, Text], replace_text),
    global_function("@replace", &[Text, Text, Text, Integer], replace_text),
    global_function("@join", &[List], join_list),
    global_function("@join", &[List, Text], join_list),
];

thread_local! {
    // A pattern that is computed is mostly the same one from request to request.
    static LAST_PATTERN: RefCell<Option<(String, Regex)>> = const { RefCell::new(None) };
}

fn lowercase_text<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_text(text_argument(&arguments, 0)?.to_lowercase())
}

fn uppercase_text<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_text(text_argument(&arguments, 0)?.to_uppercase())
}

fn matches_pattern<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let text = text_argument(&arguments, 0)?;
    let pattern = argument_at(&arguments, 1)?;
    let found = match pattern.downcast_ref::<CompiledPattern>() {
        Some(pattern) => pattern.is_match(text),
        None => matches_computed(text, text_of(pattern)?)?,
    };
    Ok(CowVal::owned(CelBool::from(found)))
}

fn matches_computed(text: &str, source: &str) -> Result<bool, ExecutionError> {
    LAST_PATTERN.with_borrow_mut(|last| {
        if let Some((_, regex)) = last.as_ref().filter(|(known, _)| known == source) {
            return Ok(regex.is_match(text));
        }
        budget::pay_for_bytes(COMPILATION)?;
        let regex = compile_regex(source).map_err(|reason| function_error("matches", reason))?;
        let found = regex.is_match(text);
        *last = Some((source.to_owned(), regex));
        Ok(found)
    })
}

/// What compiling a pattern costs: an evaluation can afford a few dozen.
const COMPILATION: usize = 32 << 10;

/// Replaces the first `n` occurrences, or all of them without `n` or with a negative one.
fn replace_text<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let text = text_argument(&arguments, 0)?;
    let (from, to) = (text_argument(&arguments, 1)?, text_argument(&arguments, 2)?);
    let limit = if arguments.len() == 4 { integer_argument(&arguments, 3)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = text.matches(from).count().min(limit);
    budget::pay_for_bytes(text.len().saturating_add(count.saturating_mul(to.len())))?;
    some_text(text.replacen(from, to, limit))
}

fn join_list<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let separator = if arguments.len() == 2 { text_argument(&arguments, 1)? } else { "" };
    let mut entries = require_iterable(argument_at(&arguments, 0)?)?.iter();
    let mut joined = String::new();
    let mut is_first = true;
    while let Some(entry) = entries.next() {
        if !is_first {
            append_text(&mut joined, separator)?;
        }
        append_text(&mut joined, text_of(entry)?)?;
        is_first = false;
    }
    some_text(joined)
}

fn append_text(text: &mut String, part: &str) -> Result<(), ExecutionError> {
    budget::pay_for_bytes(part.len())?;
    text.push_str(part);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evaluate, result};
    use serde_json::json;

    #[test]
    fn texts_change_case_beyond_ascii() {
        assert_eq!(result("'ÄB'.lower() + 'äb'.upper()"), json!("äbÄB"));
    }

    #[test]
    fn texts_match_literal_and_computed_patterns() {
        assert_eq!(result("'v1/users'.matches('^v[0-9]+/')"), json!(true));
        assert_eq!(result("matches('ab', '(?i)A' + 'B')"), json!(true));
        assert_eq!(result(r"'a.b'.matches(r'\Qa.b\E')"), json!(true));
        assert!(evaluate("'x'.matches('(' + 'x')", json!({})).is_err());
    }

    #[test]
    fn a_loop_can_use_a_literal_pattern() {
        assert_eq!(result("['a1', 'b'].filter(x, x.matches('[0-9]'))"), json!(["a1"]));
    }

    #[test]
    fn replacing_and_joining_work_as_usual() {
        assert_eq!(result("'aaa'.replace('a', 'b')"), json!("bbb"));
        assert_eq!(result("'aaa'.replace('a', 'b', 2)"), json!("bba"));
        assert_eq!(result("['a', 'b'].join('-') + ['c', 'd'].join()"), json!("a-bcd"));
        assert!(evaluate("[1].join()", json!({})).is_err());
    }
}
