//! The fields of an object: known names, right types, lengths.

use serde_json::{Map, Value};

use super::{ArgumentError, ArgumentErrors, known_names};
use crate::json::type_name;
use crate::{Field, Kind};

/// Checks the members of an object with known fields, and leaves out what is null; `place` says where it
/// stands.
pub(super) fn decode_record(
    known: &[&'static Field],
    object: Map<String, Value>,
    place: &str,
    errors: &mut ArgumentErrors,
) -> Map<String, Value> {
    let mut checked = Map::with_capacity(object.len());
    for (name, member) in object {
        let here = join_place(place, &name);
        match known.iter().find(|field| field.name == name) {
            None => {
                errors.push(ArgumentError::UnknownField { place: here, known: known_names(known) })
            }
            Some(_) if member.is_null() => {}
            Some(field) => {
                if let Some(member) = decode_value(&field.kind, member, &here, errors) {
                    checked.insert(name, member);
                }
            }
        }
    }
    checked
}

/// A value of a kind; none where it is of another.
fn decode_value(
    kind: &Kind,
    value: Value,
    place: &str,
    errors: &mut ArgumentErrors,
) -> Option<Value> {
    match (kind, value) {
        (Kind::Text { max: Some(limit) }, Value::String(text)) if text.len() > *limit => {
            let (place, length) = (place.to_owned(), text.len());
            errors.push(ArgumentError::TooLong { place, length, limit: *limit });
            None
        }
        (Kind::List(item), Value::Array(items)) => Some(decode_list(item, items, place, errors)),
        (Kind::Map(item), Value::Object(members)) => Some(decode_map(item, members, place, errors)),
        (Kind::Record(shape), Value::Object(members)) => {
            let known: Vec<&'static Field> = shape.fields.iter().collect();
            Some(Value::Object(decode_record(&known, members, place, errors)))
        }
        (kind, value) if is_plain(kind, &value) => Some(value),
        (kind, value) => {
            let (actual, expected) = (type_name(&value), expected_type(kind));
            errors.push(ArgumentError::WrongType { place: place.to_owned(), actual, expected });
            None
        }
    }
}

fn decode_list(item: &Kind, items: Vec<Value>, place: &str, errors: &mut ArgumentErrors) -> Value {
    let items = items.into_iter().enumerate();
    let checked = items
        .filter_map(|(index, one)| decode_value(item, one, &format!("{place}[{index}]"), errors));
    Value::Array(checked.collect())
}

fn decode_map(
    item: &Kind,
    members: Map<String, Value>,
    place: &str,
    errors: &mut ArgumentErrors,
) -> Value {
    let present = members.into_iter().filter(|(_, member)| !member.is_null());
    let checked = present.filter_map(|(name, member)| {
        let member = decode_value(item, member, &join_place(place, &name), errors)?;
        Some((name, member))
    });
    Value::Object(checked.collect())
}

/// True when a value without parts is of this kind.
fn is_plain(kind: &Kind, value: &Value) -> bool {
    match kind {
        Kind::Text { .. } | Kind::Secret | Kind::Time | Kind::Bytes => value.is_string(),
        Kind::TextOrNumber => value.is_string() || value.is_i64() || value.is_u64(),
        Kind::Bool => value.is_boolean(),
        Kind::Integer => value.is_i64(),
        Kind::Number => value.is_number(),
        Kind::Object => value.is_object(),
        Kind::Json => true,
        Kind::List(_) | Kind::Map(_) | Kind::Record(_) => false,
    }
}

fn expected_type(kind: &Kind) -> &'static str {
    match kind {
        Kind::Text { .. } | Kind::Secret | Kind::Time | Kind::Bytes => "a string",
        Kind::TextOrNumber => "a string or a whole number",
        Kind::Bool => "true or false",
        Kind::Integer => "a whole number",
        Kind::Number => "a number",
        Kind::List(_) => "a list",
        Kind::Object | Kind::Map(_) | Kind::Record(_) => "an object",
        Kind::Json => "a JSON value",
    }
}

fn join_place(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}
