//! Python values as the arguments of operations.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyMapping, PyString, PyTuple};
use serde_json::{Map, Value};

use super::error;
use crate::api::{Call, Info, Kind, Malformed, encode_arguments};

/// The request for an operation with these arguments, which come in the order of its parameters.
/// `None` is an argument that was not given.
pub(super) fn encode(info: &Info, arguments: &Bound<'_, PyTuple>) -> PyResult<Call> {
    let py = arguments.py();
    if arguments.len() != info.parameters.len() {
        let expected = info.parameters.len();
        return Err(PyValueError::new_err(format!("{} takes {expected} arguments", info.name)));
    }
    let mut map = Map::with_capacity(info.parameters.len());
    for (parameter, argument) in info.parameters.iter().zip(arguments.iter_borrowed()) {
        if !argument.is_none() {
            let value = value(&argument, &parameter.kind, parameter.name)?;
            map.insert(parameter.name.to_owned(), value);
        }
    }
    encode_arguments(info, map).map_err(|problem| error::malformed(py, &problem))
}

/// A Python value as JSON of that kind. Records give their form on the wire.
fn value(object: &Bound<'_, PyAny>, kind: &Kind, place: &str) -> PyResult<Value> {
    let wrong = |expected: &str| {
        let class = object.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        let problem = format!("must be {expected}, not {class}");
        error::malformed(object.py(), &Malformed::new(place, problem))
    };
    match kind {
        Kind::Text { .. } | Kind::Secret | Kind::Time => match object.cast::<PyString>() {
            Ok(text) => Ok(text.to_str()?.into()),
            Err(_) => Err(wrong("a str")),
        },
        Kind::TextOrNumber => match (object.cast::<PyString>(), object.cast::<PyInt>()) {
            (Ok(text), _) => Ok(text.to_str()?.into()),
            (_, Ok(number)) if !object.is_instance_of::<PyBool>() => Ok(number.to_string().into()),
            _ => Err(wrong("a str or an int")),
        },
        Kind::Bytes => match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(base64(bytes.as_bytes()).into()),
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
        Kind::Number if object.is_instance_of::<PyFloat>() || object.is_instance_of::<PyInt>() => {
            let number = object.extract::<f64>()?;
            serde_json::Number::from_f64(number).map(Value::Number).ok_or_else(|| wrong("finite"))
        }
        Kind::Number => Err(wrong("a float")),
        Kind::Json => free(object, place),
        Kind::Object => match free(object, place)? {
            value @ Value::Object(_) => Ok(value),
            _ => Err(wrong("a mapping")),
        },
        Kind::List(item) => list(object, item, place).unwrap_or_else(|| Err(wrong("a list"))),
        Kind::Map(item) => map(object, item, place).unwrap_or_else(|| Err(wrong("a mapping"))),
        Kind::Record(shape) => {
            let wire = on_the_wire(object)?;
            let Ok(mapping) = wire.cast::<PyMapping>() else {
                return Err(wrong(&format!("a mapping or {}", shape.name)));
            };
            let mut fields = Map::with_capacity(mapping.len()?);
            for item in mapping.items()?.iter() {
                let (name, field) = item.extract::<(String, Bound<'_, PyAny>)>()?;
                let place = format!("{place}.{name}");
                let known = shape.fields.iter().find(|known| known.name == name);
                let field = match known {
                    _ if field.is_none() => Value::Null,
                    Some(known) => value(&field, &known.kind, &place)?,
                    // The server may know it, or says that it does not.
                    None => free(&field, &place)?,
                };
                fields.insert(name, field);
            }
            Ok(Value::Object(fields))
        }
    }
}

/// The items of any iterable but text; `None` for what is no list.
fn list(object: &Bound<'_, PyAny>, item: &Kind, place: &str) -> Option<PyResult<Value>> {
    let no_list = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.cast::<PyMapping>().is_ok();
    let items = if no_list { None } else { object.try_iter().ok() }?;
    let values =
        items.enumerate().map(|(at, object)| value(&object?, item, &format!("{place}[{at}]")));
    Some(values.collect::<PyResult<Vec<_>>>().map(Value::Array))
}

fn map(object: &Bound<'_, PyAny>, item: &Kind, place: &str) -> Option<PyResult<Value>> {
    let items = object.cast::<PyMapping>().ok()?.items().ok()?;
    let values = items.iter().map(|pair| {
        let (key, object) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let Ok(key) = key.extract::<String>() else {
            let problem = Malformed::new(place, "must have str keys");
            return Err(error::malformed(object.py(), &problem));
        };
        let value = value(&object, item, &format!("{place}.{key}"))?;
        Ok((key, value))
    });
    Some(values.collect::<PyResult<Map<_, _>>>().map(Value::Object))
}

/// Any JSON value.
pub(super) fn free(object: &Bound<'_, PyAny>, place: &str) -> PyResult<Value> {
    let object = on_the_wire(object)?;
    pythonize::depythonize(&object).map_err(|problem| {
        let problem = Malformed::new(place, format!("is not JSON: {problem}"));
        error::malformed(object.py(), &problem)
    })
}

/// A record's form on the wire; other objects are what they are.
fn on_the_wire<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if object.is_instance_of::<PyDict>() || !object.hasattr("to_dict")? {
        return Ok(object.clone());
    }
    object.call_method0("to_dict")
}

fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}
