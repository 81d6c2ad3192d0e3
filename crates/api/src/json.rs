//! JSON of others, in which no key may be there twice.
//!
//! Readers disagree about which of two values counts, so who checks one may act on the other.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads an object; at any depth, a key that is there twice is an error that names it.
///
/// # Errors
/// When the bytes are something else.
pub fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::from_slice(bytes)? {
        Unique(Value::Object(members)) => Ok(members),
        Unique(other) => {
            Err(serde_json::Error::custom(format!("{} is not an object", type_name(&other))))
        }
    }
}

/// Reads a value; at any depth, a key that is there twice is an error that names it.
///
/// # Errors
/// If the text is not JSON.
pub fn parse_value(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).map(|Unique(value)| value)
}

/// What a value is, in the words of messages.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value without keys that are there twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unique(item)) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if members.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} is there twice")));
            }
            let Unique(value) = map.next_value()?;
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_as_it_is() {
        let text =
            r#"{"b": [1, -2, 1.5, null, true, "é\n"], "a": {"b": {}}, "c": 18446744073709551615}"#;

        assert_eq!(
            Value::Object(parse_object(text.as_bytes()).unwrap()),
            text.parse::<Value>().unwrap()
        );
    }

    #[test]
    fn a_key_that_is_there_twice_is_named() {
        for (text, key) in [
            (r#"{"a": 1, "a": 1}"#, "a"),
            (r#"{"a": 1, "\u0061": 2}"#, "a"),
            (r#"{"x": {"y": [{"b": 1}, {"b": 1, "c": 2, "b": null}]}}"#, "b"),
            (r#"{"\ud83d\ude00": 1, "😀": 2}"#, "😀"),
        ] {
            let error = parse_object(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the key {key:?} is there twice at ")), "{error}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["", "[]", "1", "{", "{} {}", "\"x\"", &"[".repeat(1000)] {
            assert!(parse_object(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(parse_object(b"[]").unwrap_err().to_string(), "a list is not an object");
    }
}
