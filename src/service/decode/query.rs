//! The query string.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::api::{Field, Info, Kind, Place};
use crate::service::Refusal;
use crate::service::code;

/// The largest page (remote API sheet, section 3).
const LARGEST_PAGE: u64 = 100;

/// The arguments in a query string.
pub(in crate::service) fn query(
    info: &Info,
    text: Option<&str>,
) -> Result<Map<String, Value>, Refusal> {
    let mut arguments = Map::new();
    for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        let Some(parameter) = known(info).find(|parameter| parameter.name == name) else {
            let names = known(info).map(|parameter| parameter.name).collect::<Vec<_>>();
            let message = match names.as_slice() {
                [] => format!("unknown query parameter {name:?}; there are none here"),
                names => format!("unknown query parameter {name:?}; known: {}", names.join(", ")),
            };
            return Err(Refusal::new(code::UNKNOWN_QUERY, message));
        };
        let value = match parameter.kind {
            Kind::Integer => Value::from(limit(&name, &value)?),
            _ => Value::from(value),
        };
        if arguments.insert(name.clone(), value).is_some() {
            let message = format!("query parameter {name:?} is given twice");
            return Err(Refusal::new(code::REPEATED_QUERY, message));
        }
    }
    Ok(arguments)
}

fn known(info: &Info) -> impl Iterator<Item = &'static Field> {
    info.parameters.iter().filter(|parameter| info.place(parameter.name) == Place::Query)
}

fn decoded(text: &str) -> Result<String, Refusal> {
    let undecodable = || {
        let message = "the query string is not percent-encoded UTF-8";
        Refusal::new(code::UNDECODABLE_QUERY, message)
    };
    if !escapes_are_whole(text) {
        return Err(undecodable());
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().map_err(|_| undecodable())?;
    Ok(decoded.into_owned())
}

/// True when two hexadecimal digits follow each percent sign.
fn escapes_are_whole(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

fn limit(name: &str, text: &str) -> Result<i64, Refusal> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = format!("{name}: {text:?} is not a number");
        return Err(Refusal::new(code::LIMIT_NOT_A_NUMBER, message));
    }
    match text.parse::<u64>() {
        Ok(number @ 1..=LARGEST_PAGE) => Ok(number as i64),
        _ => {
            let message = format!("{name}: {text} is not from 1 to {LARGEST_PAGE}");
            Err(Refusal::new(code::LIMIT_OUT_OF_RANGE, message))
        }
    }
}
