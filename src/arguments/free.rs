//! Python values of any kind as JSON. What JSON has not is refused, with its place.

use std::fmt;

use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyMemoryView,
    PySequence, PyString, PyTuple, PyType,
};
use serde_json::{Map, Value};

use super::{argument_error, wrong_type};

/// How many lists and mappings may stand inside each other; services read no more.
const MAX_DEPTH: usize = 127;

/// Which integers are taken.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Integers {
    /// Those that the values of `serde_json` have room for.
    Of64Bits,
    /// All.
    OfAnySize,
}

/// A value as JSON text, which has room for integers of any size.
pub(crate) fn json_text(object: &Bound<'_, PyAny>, place: &str) -> PyResult<String> {
    write_json(object, Integers::OfAnySize, place)
}

/// A value as JSON.
pub(super) fn json_value(
    object: &Bound<'_, PyAny>,
    integers: Integers,
    place: &str,
) -> PyResult<Value> {
    serde_json::from_str(&write_json(object, integers, place)?)
        .map_err(|error| argument_error(object, place, &format!("is not JSON: {error}")))
}

/// The parameters of a query: names with texts, numbers and the like. What is neither a text nor
/// None stands there as its JSON.
pub(crate) fn query_parameters(object: &Bound<'_, PyAny>) -> PyResult<Map<String, Value>> {
    let Ok(mapping) = object.cast::<PyMapping>() else {
        return Err(wrong_type(object, "query", "a mapping"));
    };
    let mut parameters = Map::new();
    for (key, parameter) in mapping_items(mapping)? {
        let name = name_of(&key, &"query")?;
        let place = format!("query.{name}");
        let value = match parameter.cast::<PyString>() {
            _ if parameter.is_none() => Value::Null,
            Ok(value) => text_of(value, &place)?.into(),
            Err(_) => json_text(&parameter, &place)?.into(),
        };
        parameters.insert(name, value);
    }
    Ok(parameters)
}

/// The text of a `str`. Half of a surrogate pair is no character, and UTF-8 has no bytes for it.
pub(super) fn text_of(text: &Bound<'_, PyString>, place: &dyn fmt::Display) -> PyResult<String> {
    let whole = text.to_cow().map(|text| text.into_owned());
    whole.map_err(|_| argument_error(text, place, "must not hold half of a surrogate pair"))
}

/// The name that a key of a mapping is.
pub(super) fn name_of(key: &Bound<'_, PyAny>, place: &dyn fmt::Display) -> PyResult<String> {
    let Ok(name) = key.cast::<PyString>() else {
        let class = class_of(key);
        return Err(argument_error(key, place, &format!("must have str keys, not {class}")));
    };
    let whole = name.to_cow().map(|name| name.into_owned());
    whole.map_err(|_| {
        argument_error(key, place, "must not have keys that hold half of a surrogate pair")
    })
}

/// The digits of an int.
pub(super) fn integer_digits(
    number: &Bound<'_, PyInt>,
    place: &dyn fmt::Display,
) -> PyResult<String> {
    // A class built on int may write itself as it likes, so `str` is not asked.
    let class = number.py().get_type::<PyInt>();
    let digits = class.call_method1("__repr__", (number,)).and_then(|digits| digits.extract());
    digits.map_err(|_| argument_error(number, place, "has more digits than Python writes"))
}

/// A record's form on the wire; other objects are what they are.
pub(super) fn wire_form<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let is_plain = object.is_instance_of::<PyDict>() || object.is_instance_of::<PyType>();
    if is_plain || !object.hasattr("to_dict")? {
        return Ok(object.clone());
    }
    object.call_method0("to_dict")
}

/// The entries of a mapping. They are copied: what is done with them may change the mapping.
pub(super) fn mapping_items<'py>(
    mapping: &Bound<'py, PyMapping>,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    mapping.items()?.iter().map(|pair| pair.extract()).collect()
}

/// The name of an object's class.
pub(super) fn class_of(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map(|name| name.to_string()).unwrap_or_default()
}

fn write_json(object: &Bound<'_, PyAny>, integers: Integers, place: &str) -> PyResult<String> {
    // What is around the value in the body of its request: each is a step of the place.
    let depth = place.matches(['.', '[']).count();
    let mut writer = JsonWriter { json: String::new(), integers, depth, around: Vec::new() };
    writer.write_value(object, &ArgumentPath::Argument(place))?;
    Ok(writer.json)
}

/// Where in an argument a value is.
enum ArgumentPath<'p> {
    Argument(&'p str),
    Key(&'p ArgumentPath<'p>, &'p str),
    Item(&'p ArgumentPath<'p>, usize),
}

impl fmt::Display for ArgumentPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(name) => f.write_str(name),
            Self::Key(around, name) => write!(f, "{around}.{name}"),
            Self::Item(around, at) => write!(f, "{around}[{at}]"),
        }
    }
}

/// Writes JSON text.
struct JsonWriter {
    json: String,
    integers: Integers,
    depth: usize,
    /// The addresses of the lists and mappings around, which live as long as they are there.
    around: Vec<usize>,
}

impl JsonWriter {
    fn write_value(&mut self, object: &Bound<'_, PyAny>, place: &ArgumentPath<'_>) -> PyResult<()> {
        if object.is_none() {
            self.json.push_str("null");
        } else if let Ok(text) = object.cast::<PyString>() {
            self.write_string(&text_of(text, place)?);
        } else if let Ok(flag) = object.cast::<PyBool>() {
            self.json.push_str(if flag.is_true() { "true" } else { "false" });
        } else if let Ok(number) = object.cast::<PyInt>() {
            self.write_integer(number, place)?;
        } else if object.is_instance_of::<PyFloat>() {
            self.write_float(object, place)?;
        } else {
            self.write_container(object, place)?;
        }
        Ok(())
    }

    fn write_string(&mut self, text: &str) {
        self.json.push_str(&Value::from(text).to_string());
    }

    fn write_integer(
        &mut self,
        number: &Bound<'_, PyInt>,
        place: &ArgumentPath<'_>,
    ) -> PyResult<()> {
        if let Ok(number) = number.extract::<i64>() {
            self.json.push_str(&number.to_string());
            return Ok(());
        }
        if self.integers == Integers::Of64Bits && number.extract::<u64>().is_err() {
            return Err(argument_error(number, place, "must be an int of 64 bits"));
        }
        self.json.push_str(&integer_digits(number, place)?);
        Ok(())
    }

    fn write_float(&mut self, object: &Bound<'_, PyAny>, place: &ArgumentPath<'_>) -> PyResult<()> {
        let number = object.extract::<f64>()?;
        let number = serde_json::Number::from_f64(number).ok_or_else(|| {
            let name = number.to_string().to_lowercase();
            argument_error(object, place, &format!("must be a finite number, not {name}"))
        })?;
        self.json.push_str(&number.to_string());
        Ok(())
    }

    /// A list, a mapping, or a record as the mapping that it is on the wire.
    fn write_container(
        &mut self,
        object: &Bound<'_, PyAny>,
        place: &ArgumentPath<'_>,
    ) -> PyResult<()> {
        let address = object.as_ptr() as usize;
        if self.around.contains(&address) {
            return Err(argument_error(object, place, "must not contain itself"));
        }
        if self.depth + self.around.len() >= MAX_DEPTH {
            let nested = format!("must not be nested deeper than {MAX_DEPTH}");
            return Err(argument_error(object, place, &nested));
        }
        self.around.push(address);
        let wire = wire_form(object)?;
        if let Ok(mapping) = wire.cast::<PyMapping>() {
            self.write_object(mapping, place)?;
        } else if is_list(&wire) {
            self.write_array(&wire, place)?;
        } else {
            return Err(wrong_type(object, place, "a value that JSON has"));
        }
        self.around.pop();
        Ok(())
    }

    fn write_object(
        &mut self,
        mapping: &Bound<'_, PyMapping>,
        place: &ArgumentPath<'_>,
    ) -> PyResult<()> {
        self.json.push('{');
        for (at, (key, object)) in mapping_items(mapping)?.iter().enumerate() {
            if at > 0 {
                self.json.push(',');
            }
            let name = name_of(key, place)?;
            self.write_string(&name);
            self.json.push(':');
            self.write_value(object, &ArgumentPath::Key(place, &name))?;
        }
        self.json.push('}');
        Ok(())
    }

    fn write_array(&mut self, items: &Bound<'_, PyAny>, place: &ArgumentPath<'_>) -> PyResult<()> {
        self.json.push('[');
        for (at, object) in items.try_iter()?.enumerate() {
            if at > 0 {
                self.json.push(',');
            }
            self.write_value(&object?, &ArgumentPath::Item(place, at))?;
        }
        self.json.push(']');
        Ok(())
    }
}

/// Lists, tuples and what else is a sequence, but not of bytes.
fn is_list(object: &Bound<'_, PyAny>) -> bool {
    let is_bytes = object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>()
        || object.is_instance_of::<PyMemoryView>();
    let is_usual = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
    is_usual || (!is_bytes && object.cast::<PySequence>().is_ok())
}
