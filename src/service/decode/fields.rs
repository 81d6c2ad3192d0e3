//! The fields of a body: known names, right types, lengths.

use serde_json::{Map, Value};

use super::may_repeat;
use crate::api::json::type_name;
use crate::api::{Field, Info, Kind, Place, Verb};
use crate::service::Refusal;
use crate::service::code::{self, Code};

/// Holds a body against the parameters of its operation, and leaves out what is null.
pub(super) fn check(info: &Info, body: Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    let checker = Checker { resource: info.resource };
    let known = |parameter: &&Field| {
        info.place(parameter.name) == Place::Body || may_repeat(info, parameter.name)
    };
    let known: Vec<&'static Field> = info.parameters.iter().filter(known).collect();
    let body = checker.record(&known, body, "")?;
    let changes = body.keys().any(|name| info.place(name) == Place::Body);
    match code::unchanged(info.resource) {
        Some(code) if info.method == Verb::PATCH && !changes => {
            Err(Refusal::new(code, format!("nothing to change; {}", list(&known))))
        }
        _ => Ok(body),
    }
}

/// Asks for the parameters that must be there.
pub(super) fn require(info: &Info, arguments: &Map<String, Value>) -> Result<(), Refusal> {
    let absent = |parameter: &&Field| parameter.required && !arguments.contains_key(parameter.name);
    match info.parameters.iter().find(absent) {
        Some(Field { name, .. }) => {
            Err(Refusal::new(code::missing(info.resource, name), format!("{name}: is required")))
        }
        None => Ok(()),
    }
}

struct Checker {
    resource: &'static str,
}

impl Checker {
    /// Checks the members of an object with known fields; `place` says where it stands.
    fn record(
        &self,
        known: &[&'static Field],
        object: Map<String, Value>,
        place: &str,
    ) -> Result<Map<String, Value>, Refusal> {
        let mut checked = Map::with_capacity(object.len());
        for (name, value) in object {
            let here = join(place, &name);
            let Some(field) = known.iter().find(|field| field.name == name) else {
                let message = format!("{here}: is not a known field; {}", list(known));
                return Err(Refusal::new(code::UNKNOWN_FIELD, message));
            };
            if !value.is_null() {
                checked.insert(name, self.value(&field.kind, value, &here)?);
            }
        }
        Ok(checked)
    }

    fn value(&self, kind: &Kind, value: Value, place: &str) -> Result<Value, Refusal> {
        match (kind, value) {
            (Kind::Text { max: Some(max) }, Value::String(text)) if text.len() > *max => {
                let message = format!("{place}: is {} bytes long, the limit is {max}", text.len());
                Err(Refusal::new(self.too_long(place), message))
            }
            (Kind::List(item), Value::Array(items)) => self.list(item, items, place),
            (Kind::Map(item), Value::Object(members)) => self.map(item, members, place),
            (Kind::Record(shape), Value::Object(members)) => {
                let known: Vec<&'static Field> = shape.fields.iter().collect();
                Ok(Value::Object(self.record(&known, members, place)?))
            }
            (kind, value) if is_plain(kind, &value) => Ok(value),
            (kind, value) => {
                let message = format!("{place}: is {}, not {}", type_name(&value), expected(kind));
                Err(Refusal::new(code::INVALID_VALUE, message))
            }
        }
    }

    fn list(&self, item: &Kind, items: Vec<Value>, place: &str) -> Result<Value, Refusal> {
        let items = items.into_iter().enumerate();
        let checked =
            items.map(|(index, value)| self.value(item, value, &format!("{place}[{index}]")));
        Ok(Value::Array(checked.collect::<Result<_, _>>()?))
    }

    fn map(&self, item: &Kind, members: Map<String, Value>, place: &str) -> Result<Value, Refusal> {
        let mut checked = Map::with_capacity(members.len());
        for (name, value) in members {
            if !value.is_null() {
                let value = self.value(item, value, &join(place, &name))?;
                checked.insert(name, value);
            }
        }
        Ok(Value::Object(checked))
    }

    fn too_long(&self, place: &str) -> Code {
        code::too_long(self.resource, place)
    }
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

fn expected(kind: &Kind) -> &'static str {
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

fn join(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

fn list(known: &[&'static Field]) -> String {
    match known {
        [] => "there are none here".to_owned(),
        known => {
            let names: Vec<_> = known.iter().map(|field| field.name).collect();
            format!("known: {}", names.join(", "))
        }
    }
}
