//! What of a request is refused, and with which code.

use serde_json::{Map, Value};

use ginnel_api::Info;
use ginnel_api::decode::{self, ArgumentError, DecodedArguments};

use super::code::{self, ErrorCode};
use super::{Refusal, Result};

/// The largest page (remote API sheet, section 3).
const MAX_PAGE_ITEMS: u64 = 100;

/// The arguments of an operation, from the path, the query string and the body of a request.
///
/// # Errors
/// With the first thing that is wrong, in the order of the checks (remote API sheet, section 1).
pub fn decode_arguments(
    info: &Info,
    path: &str,
    query_string: Option<&str>,
    body: Option<&[u8]>,
) -> Result<Map<String, Value>> {
    join_arguments(info, path, decode_query(info, query_string)?, body)
}

/// The arguments in a query string.
pub(super) fn decode_query(info: &Info, text: Option<&str>) -> Result<DecodedArguments> {
    refuse_errors(info, decode::decode_query(info, text, MAX_PAGE_ITEMS))
}

/// Joins what stands in the path and the body to what stood in the query string.
pub(super) fn join_arguments(
    info: &Info,
    path: &str,
    queried: DecodedArguments,
    body: Option<&[u8]>,
) -> Result<Map<String, Value>> {
    let decoded = decode::decode_arguments(info, path, queried, body);
    refuse_errors(info, decoded).map(|decoded| decoded.arguments)
}

fn refuse_errors(info: &Info, decoded: DecodedArguments) -> Result<DecodedArguments> {
    let refused = decoded.errors.iter().find_map(|error| argument_refusal(info, error));
    refused.map_or(Ok(decoded), Err)
}

/// The refusal of what is wrong; none where that does no harm.
fn argument_refusal(info: &Info, error: &ArgumentError) -> Option<Refusal> {
    if *error == ArgumentError::UndecodablePath {
        return Some(Refusal::not_found());
    }
    code_of(info.resource, error).map(|code| Refusal::new(code, error.to_string()))
}

fn code_of(resource: &str, error: &ArgumentError) -> Option<ErrorCode> {
    let code = match error {
        ArgumentError::UndecodableQuery => code::UNDECODABLE_QUERY,
        ArgumentError::UnknownQuery { .. } => code::UNKNOWN_QUERY,
        ArgumentError::RepeatedQuery(_) => code::REPEATED_QUERY,
        ArgumentError::LimitNotANumber { .. } => code::LIMIT_NOT_A_NUMBER,
        ArgumentError::LimitOutOfRange { .. } => code::LIMIT_OUT_OF_RANGE,
        ArgumentError::NotAnObject(_) => code::NOT_AN_OBJECT,
        ArgumentError::UnknownField { .. } => code::UNKNOWN_FIELD,
        ArgumentError::TooLong { place, .. } => code::too_long(resource, place),
        ArgumentError::UndecodablePath | ArgumentError::WrongType { .. } => code::INVALID_VALUE,
        ArgumentError::Unchanged { .. } => return code::unchanged_patch(resource),
        ArgumentError::PathDiffers(_) => code::id_differs(resource),
        ArgumentError::Missing(name) => code::missing_field(resource, name),
    };
    Some(code)
}
