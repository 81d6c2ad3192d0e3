//! Functions of chance; not for secrets.

use cel::ExecutionError;
use cel::common::types::{CelDouble, CelInt};
use cel::common::value::CowVal;

use super::Argument::Integer;
use super::{
    Arguments, Function, FunctionResult, function_error, global_function, integer_argument,
};

pub(super) const FUNCTIONS: &[Function] = &[
    global_function("rand.double", &[], random_double),
    global_function("rand.int", &[], random_bit),
    global_function("rand.int", &[Integer, Integer], random_between),
];

/// A number from 0, and less than 1.
fn random_double<'b, 'v>(_: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    const STEPS: u64 = 1 << 53;
    let step = random_u64()? % STEPS;
    Ok(CowVal::owned(CelDouble::from(step as f64 / STEPS as f64)))
}

fn random_bit<'b, 'v>(_: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_integer(0, 1)
}

/// A number between two numbers, both included.
fn random_between<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_integer(integer_argument(&arguments, 0)?, integer_argument(&arguments, 1)?)
}

fn some_integer<'b, 'v>(least: i64, most: i64) -> FunctionResult<'b, 'v> {
    if least > most {
        return Err(function_error("rand.int", "the first number is greater than the second"));
    }
    let offset = match least.abs_diff(most).checked_add(1) {
        Some(count) => random_u64()? % count,
        None => random_u64()?,
    };
    Ok(CowVal::owned(CelInt::from(least.wrapping_add_unsigned(offset))))
}

fn random_u64() -> Result<u64, ExecutionError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| function_error("rand", error))?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evaluate, result};
    use serde_json::json;

    #[test]
    fn numbers_stay_in_their_range() {
        for _ in 0..100 {
            assert_eq!(result("rand.int() in [0, 1] && rand.int(3, 5) in [3, 4, 5]"), json!(true));
            assert_eq!(result("rand.double() >= 0.0 && rand.double() < 1.0"), json!(true));
        }
        assert_eq!(result("rand.int(7, 7)"), json!(7));
    }

    #[test]
    fn the_widest_range_is_fine_and_an_empty_one_is_not() {
        let widest = "rand.int(-9223372036854775808, 9223372036854775807) <= 9223372036854775807";

        assert_eq!(result(widest), json!(true));
        assert!(evaluate("rand.int(2, 1)", json!({})).is_err());
    }
}
