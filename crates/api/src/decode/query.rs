//! The query string.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{ArgumentError, DecodedArguments, known_names};
use crate::{Field, Info, Kind, ParameterLocation};

/// The arguments in a query string; numbers in it are limits, from 1 to `max_limit`.
pub fn decode_query(info: &Info, text: Option<&str>, max_limit: u64) -> DecodedArguments {
    let mut decoded = DecodedArguments::default();
    for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        if let Err(error) = decoded.decode_pair(info, pair, max_limit) {
            decoded.errors.push(error);
        }
    }
    decoded
}

impl DecodedArguments {
    fn decode_pair(
        &mut self,
        info: &Info,
        pair: &str,
        max_limit: u64,
    ) -> Result<(), ArgumentError> {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, text) = (decode_component(name)?, decode_component(text)?);
        let known = |parameter: &&Field| {
            info.parameter_location(parameter.name) == ParameterLocation::Query
        };
        let known: Vec<&Field> = info.parameters.iter().filter(known).collect();
        let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
            return Err(ArgumentError::UnknownQuery { name, known: known_names(&known) });
        };
        let value = match parameter.kind {
            Kind::Integer => Value::from(parse_limit(&name, text, max_limit)?),
            _ => Value::from(text),
        };
        match self.arguments.insert(name.clone(), value) {
            Some(_) => Err(ArgumentError::RepeatedQuery(name)),
            None => Ok(()),
        }
    }
}

fn decode_component(text: &str) -> Result<String, ArgumentError> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    match decoded {
        Ok(decoded) if escapes_are_whole(text) => Ok(decoded.into_owned()),
        _ => Err(ArgumentError::UndecodableQuery),
    }
}

/// True when two hexadecimal digits follow each percent sign.
fn escapes_are_whole(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

fn parse_limit(name: &str, text: String, max: u64) -> Result<u64, ArgumentError> {
    let name = name.to_owned();
    let digits = text.strip_prefix('-').unwrap_or(&text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ArgumentError::LimitNotANumber { name, text });
    }
    let is_negative = digits.len() < text.len();
    // More digits than there is room for are a large number, where any is allowed.
    let number =
        if is_negative { 0 } else { digits.parse::<i64>().unwrap_or(i64::MAX).unsigned_abs() };
    let number = Some(number).filter(|number| (1..=max).contains(number));
    number.ok_or(ArgumentError::LimitOutOfRange { name, text, max })
}
