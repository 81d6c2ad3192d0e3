//! Values of expressions, from and to what the rest of the program uses.
//!
//! Integers stay integers: the engine's own conversion makes them unsigned, and unsigned numbers
//! do not mix with the literals of an expression.

use std::collections::HashMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, Kind,
};
use cel::common::value::Val;
use cel::objects::Map as Fields;
use cel::{ExecutionError, Value};
use chrono::SecondsFormat;
use serde_json::{Map, Number, Value as Json};

/// How many entries a list may have that comes from outside.
const ENTRIES: usize = 1000;

/// The value as text, as `${}` inserts it.
///
/// Texts and numbers are plain, times are RFC 3339, null is empty, and the rest is JSON.
pub fn value_to_text(value: &Value) -> Result<String, ExecutionError> {
    match value_to_json(value)? {
        Json::String(text) => Ok(text),
        Json::Null => Ok(String::new()),
        other => Ok(other.to_string()),
    }
}

/// The value as JSON, with the keys of maps in order.
pub fn value_to_json(value: &Value) -> Result<Json, ExecutionError> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(truth) => Json::Bool(*truth),
        Value::Int(integer) => Json::from(*integer),
        Value::UInt(integer) => Json::from(*integer),
        Value::Float(double) => float_to_json(*double),
        Value::String(text) => Json::from(text.as_str()),
        Value::Bytes(bytes) => Json::from(bytes_as_text(bytes)),
        Value::Timestamp(time) => Json::from(time.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
        Value::Duration(time) => Json::from(format!("{}s", time.as_seconds_f64())),
        Value::List(list) => Json::Array(list.iter().map(value_to_json).collect::<Result<_, _>>()?),
        Value::Map(fields) => Json::Object(map_to_json(fields)?),
        other => return Err(ExecutionError::unsupported_target_type(other.clone())),
    })
}

/// A JSON value as a value of an expression; a list of more than 1000 entries is an error.
pub fn from_json(value: &Json) -> Result<Box<dyn Val>, ExecutionError> {
    Ok(match value {
        Json::Null => Box::new(CelNull),
        Json::Bool(truth) => Box::new(CelBool::from(*truth)),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Box::new(CelInt::from(integer)),
            None => Box::new(CelDouble::from(number.as_f64().unwrap_or_default())),
        },
        Json::String(text) => Box::new(CelString::from(text.clone())),
        Json::Array(entries) if entries.len() > ENTRIES => {
            let reason = format!("a list of more than {ENTRIES} entries");
            return Err(ExecutionError::function_error("list", reason));
        }
        Json::Array(entries) => {
            let entries: Result<Vec<_>, _> = entries.iter().map(from_json).collect();
            Box::new(CelList::from(entries?))
        }
        Json::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| Ok((CelMapKey::from(name.clone()), from_json(value)?)));
            let fields: Result<HashMap<_, _>, ExecutionError> = fields.collect();
            Box::new(CelMap::from(fields?))
        }
    })
}

/// A value of any type as one that is data; lists and maps of types of our own become plain ones.
pub(super) fn to_plain_value(value: &dyn Val) -> Result<Value, ExecutionError> {
    match value.get_type().kind() {
        Kind::List => Ok(Value::List(plain_list(value)?.into())),
        Kind::Map => plain_map(value).map(Value::from),
        _ => Value::try_from(value),
    }
}

/// The error for a value that is not of the wanted kind.
pub(super) fn unexpected_type(value: &dyn Val, want: &str) -> ExecutionError {
    let got = value.get_type().name().to_owned();
    ExecutionError::UnexpectedType { got, want: want.to_owned() }
}

fn plain_list(value: &dyn Val) -> Result<Vec<Value>, ExecutionError> {
    let list = value.as_iterable().ok_or_else(|| unexpected_type(value, "list"))?;
    let mut entries = list.iter();
    let mut collected = Vec::new();
    while let Some(entry) = entries.next() {
        collected.push(to_plain_value(entry)?);
    }
    Ok(collected)
}

fn plain_map(value: &dyn Val) -> Result<HashMap<String, Value>, ExecutionError> {
    let keys = value.as_iterable().ok_or_else(|| unexpected_type(value, "map"))?;
    let fields = value.as_indexer().ok_or_else(|| unexpected_type(value, "map"))?;
    let mut keys = keys.iter();
    let mut collected = HashMap::new();
    while let Some(key) = keys.next() {
        collected.insert(
            value_to_text(&to_plain_value(key)?)?,
            to_plain_value(fields.get(key)?.as_ref())?,
        );
    }
    Ok(collected)
}

fn map_to_json(fields: &Fields) -> Result<Map<String, Json>, ExecutionError> {
    let fields =
        fields.map.iter().map(|(name, value)| Ok((name.to_string(), value_to_json(value)?)));
    let mut fields = fields.collect::<Result<Vec<_>, ExecutionError>>()?;
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(fields.into_iter().collect())
}

fn float_to_json(double: f64) -> Json {
    Number::from_f64(double).map_or_else(|| Json::from(double.to_string()), Json::Number)
}

/// Bytes in base64, padded.
pub(super) fn to_base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn bytes_as_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => to_base64(bytes),
    }
}
