//! Functions of lists, and what loops pay.

use cel::common::types::{CelInt, CelList, Kind};
use cel::common::value::{CowVal, Val};

use super::super::budget;
use super::super::value::to_plain_value;
use super::Argument::{Any, Integer};
use super::{
    Arguments, Function, FunctionResult, argument_at, function_error, global_function,
    integer_argument,
};

/// How many entries `lists.range` makes at most.
const RANGE: i64 = 1000;

pub(super) const FUNCTIONS: &[Function] = &[
    global_function("@numbers", &[Any], number_range),
    global_function("@range", &[Any, Integer], pay_for_loop),
    global_function("@step", &[Any], check_step),
    global_function("@search", &[Any], pay_for_search),
    global_function("@pay", &[Any], pay_for_value),
    global_function("@plain", &[Any], as_data),
];

fn number_range<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let end = integer_argument(&arguments, 0)?;
    if end > RANGE {
        return Err(function_error("lists.range", format!("more than {RANGE} entries")));
    }
    let numbers = (0..end).map(|number| Box::new(CelInt::from(number)) as Box<dyn Val + 'v>);
    Ok(CowVal::owned(CelList::from(numbers.collect::<Vec<_>>())))
}

/// The value itself, once a loop over it is paid for.
fn pay_for_loop<'b, 'v>(mut arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let nodes = usize::try_from(integer_argument(&arguments, 1)?).unwrap_or(0);
    budget::pay_for_loop(argument_at(&arguments, 0)?, nodes)?;
    Ok(arguments.swap_remove(0))
}

/// The value itself, unless nothing is left to pay with.
fn check_step<'b, 'v>(mut arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    budget::check_remaining()?;
    argument_at(&arguments, 0)?;
    Ok(arguments.swap_remove(0))
}

/// The value itself, once looking through it is paid for.
fn pay_for_search<'b, 'v>(mut arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    budget::pay_for_search(argument_at(&arguments, 0)?)?;
    Ok(arguments.swap_remove(0))
}

/// The value itself, once it is paid for.
fn pay_for_value<'b, 'v>(mut arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    budget::pay_for(argument_at(&arguments, 0)?)?;
    Ok(arguments.swap_remove(0))
}

/// The value itself, unless its type is one of ours: the result of an evaluation is data.
fn as_data<'b, 'v>(mut arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let value = argument_at(&arguments, 0)?;
    let is_container = matches!(value.get_type().kind(), Kind::List | Kind::Map);
    if is_container {
        let copy: Box<dyn Val> = to_plain_value(value)?.try_into()?;
        return Ok(CowVal::Owned(copy));
    }
    Ok(arguments.swap_remove(0))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evaluate, result};
    use serde_json::json;

    fn fails(source: &str) -> bool {
        evaluate(source, json!({"vars": {"url": "x".repeat(8000)}})).is_err()
    }

    #[test]
    fn a_range_counts_from_zero_to_a_thousand_at_most() {
        assert_eq!(result("lists.range(3)"), json!([0, 1, 2]));
        assert_eq!(result("lists.range(-1)"), json!([]));
        assert_eq!(result("size(lists.range(1000))"), json!(1000));
        assert!(fails("lists.range(1001)"));
    }

    #[test]
    fn loops_of_a_usual_size_are_affordable() {
        let source = "lists.range(100).map(x, lists.range(100).exists(y, x == y)).all(z, z)";

        assert_eq!(result(source), json!(true));
    }

    #[test]
    fn loops_that_multiply_are_not() {
        assert!(fails("lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"));
    }

    #[test]
    fn values_that_double_are_not() {
        let doubled = ".map(x, [x, x])".repeat(60);
        let quoted = format!("{}'a'{}", "strings.quote(".repeat(40), ")".repeat(40));

        assert!(fails(&format!("[1]{doubled} == []")));
        assert!(fails(&format!("[vars.url]{} == []", ".map(x, x + x)".repeat(60))));
        assert!(fails(&format!("{quoted} == 'a'")));
        assert!(fails(&format!("vars.url{} == ''", ".encodeJson()".repeat(60))));
        assert!(fails("vars.url.replace('', vars.url).replace('x', vars.url) == ''"));
        assert!(fails("vars.url.split('').join(vars.url) == ''"));
    }
}
