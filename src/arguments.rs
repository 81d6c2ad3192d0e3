//! Python values as the arguments of operations.

mod free;

use std::fmt;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyMapping, PyString, PyTuple};
use serde_json::{Map, Number, Value};

use ginnel_api::{Call, Info, Kind, Malformed, Shape, encode_arguments};

use super::error;
use free::{Integers, class_of, mapping_items, name_of, text_of, wire_form};

pub(super) use free::{json_text, query_parameters};

/// How much of a place inside an argument a message shows; that of what is too deep is a long one.
const MAX_PLACE_CHARS: usize = 200;

/// The request for an operation with these arguments, which come in the order of its parameters.
/// `None` is an argument that was not given.
pub(super) fn encode_call(info: &Info, arguments: &Bound<'_, PyTuple>) -> PyResult<Call> {
    let py = arguments.py();
    if arguments.len() != info.parameters.len() {
        let expected = info.parameters.len();
        return Err(PyValueError::new_err(format!("{} takes {expected} arguments", info.name)));
    }
    let mut map = Map::with_capacity(info.parameters.len());
    for (parameter, argument) in info.parameters.iter().zip(arguments.iter_borrowed()) {
        if !argument.is_none() {
            let value = encode_value(&argument, &parameter.kind, parameter.name)?;
            map.insert(parameter.name.to_owned(), value);
        }
    }
    encode_arguments(info, map).map_err(|problem| error::validation_error(py, &problem))
}

/// A moment as RFC 3339 text; none where it is something else, or nobody knows the time zone.
fn time_text(object: &Bound<'_, PyAny>) -> Option<PyResult<String>> {
    if let Ok(text) = object.cast::<PyString>() {
        return Some(text.extract());
    }
    let offset = object.call_method0("utcoffset").ok()?;
    (!offset.is_none()).then(|| object.call_method0("isoformat")?.extract())
}

/// A Python value as JSON of that kind. Records give their form on the wire.
fn encode_value(object: &Bound<'_, PyAny>, kind: &Kind, place: &str) -> PyResult<Value> {
    let wrong = |expected: &str| wrong_type(object, place, expected);
    match kind {
        Kind::Time => match time_text(object) {
            Some(time) => Ok(time?.into()),
            None => Err(wrong("a datetime with a time zone, or a str")),
        },
        Kind::Text { .. } | Kind::Secret => match object.cast::<PyString>() {
            Ok(text) => Ok(text_of(text, &place)?.into()),
            Err(_) => Err(wrong("a str")),
        },
        Kind::TextOrNumber => match (object.cast::<PyString>(), object.cast::<PyInt>()) {
            (Ok(text), _) => Ok(text_of(text, &place)?.into()),
            (_, Ok(number)) if !object.is_instance_of::<PyBool>() => {
                Ok(free::integer_digits(number, &place)?.into())
            }
            _ => Err(wrong("a str or an int")),
        },
        Kind::Bytes => match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(encode_base64(bytes.as_bytes()).into()),
            Err(_) => Err(wrong("bytes")),
        },
        Kind::Bool => match object.cast::<PyBool>() {
            Ok(flag) => Ok(flag.is_true().into()),
            Err(_) => Err(wrong("a bool")),
        },
        Kind::Integer if object.is_instance_of::<PyInt>() && !object.is_instance_of::<PyBool>() => {
            object.extract::<i64>().map(Value::from).map_err(|_| wrong("an int of 64 bits"))
        }
        Kind::Integer => Err(wrong("an int")),
        Kind::Number => encode_number(object, place),
        Kind::Json => free::json_value(object, Integers::Of64Bits, place),
        Kind::Object => match free::json_value(object, Integers::Of64Bits, place)? {
            value @ Value::Object(_) => Ok(value),
            _ => Err(wrong("a mapping")),
        },
        Kind::List(item) => encode_list(object, item, place),
        Kind::Map(item) => encode_map(object, item, place),
        Kind::Record(shape) => record(object, shape, place),
    }
}

fn record(object: &Bound<'_, PyAny>, shape: &Shape, place: &str) -> PyResult<Value> {
    let wire = wire_form(object)?;
    let Ok(mapping) = wire.cast::<PyMapping>() else {
        return Err(wrong_type(object, place, &format!("a mapping or {}", shape.name)));
    };
    encode_entries(mapping, place, |name, field, place| {
        let known = shape.fields.iter().find(|known| known.name == name);
        match known {
            _ if field.is_none() => Ok(Value::Null),
            Some(known) => encode_value(field, &known.kind, place),
            // The server may know it, or says that it does not.
            None => free::json_value(field, Integers::Of64Bits, place),
        }
    })
}

fn encode_number(object: &Bound<'_, PyAny>, place: &str) -> PyResult<Value> {
    let is_number = object.is_instance_of::<PyFloat>() || object.is_instance_of::<PyInt>();
    if !is_number || object.is_instance_of::<PyBool>() {
        return Err(wrong_type(object, place, "a float"));
    }
    // An int that no float comes near to is as little a number here as an infinity.
    let number = object.extract::<f64>().ok().and_then(Number::from_f64);
    number
        .map(Value::Number)
        .ok_or_else(|| argument_error(object, place, "must be a finite number"))
}

/// The items of any iterable but text and mappings.
fn encode_list(object: &Bound<'_, PyAny>, item: &Kind, place: &str) -> PyResult<Value> {
    let no_list = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.cast::<PyMapping>().is_ok();
    let items = if no_list { None } else { object.try_iter().ok() };
    let items = items.ok_or_else(|| wrong_type(object, place, "a list"))?;
    let values = items
        .enumerate()
        .map(|(at, object)| encode_value(&object?, item, &format!("{place}[{at}]")));
    values.collect::<PyResult<Vec<_>>>().map(Value::Array)
}

fn encode_map(object: &Bound<'_, PyAny>, item: &Kind, place: &str) -> PyResult<Value> {
    match object.cast::<PyMapping>() {
        Ok(mapping) => {
            encode_entries(mapping, place, |_, object, place| encode_value(object, item, place))
        }
        Err(_) => Err(wrong_type(object, place, "a mapping")),
    }
}

/// The entries of a mapping as an object; `value` gets name, value and place of each.
fn encode_entries(
    mapping: &Bound<'_, PyMapping>,
    place: &str,
    value: impl Fn(&str, &Bound<'_, PyAny>, &str) -> PyResult<Value>,
) -> PyResult<Value> {
    let mut object = Map::new();
    for (key, entry) in mapping_items(mapping)? {
        let name = name_of(&key, &place)?;
        let value = value(&name, &entry, &format!("{place}.{name}"))?;
        object.insert(name, value);
    }
    Ok(Value::Object(object))
}

fn wrong_type(object: &Bound<'_, PyAny>, place: impl fmt::Display, expected: &str) -> PyErr {
    argument_error(object, place, &format!("must be {expected}, not {}", class_of(object)))
}

fn argument_error(object: &Bound<'_, PyAny>, place: impl fmt::Display, problem: &str) -> PyErr {
    let mut place = place.to_string();
    if let Some((end, _)) = place.char_indices().nth(MAX_PLACE_CHARS) {
        place.replace_range(end.., "…");
    }
    error::validation_error(object.py(), &Malformed::new(place, problem))
}

fn encode_base64(bytes: &[u8]) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}
