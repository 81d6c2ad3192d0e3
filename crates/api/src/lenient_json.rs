//! Reads JSON whose names are spelled in any letter case.

use std::collections::HashSet;

use serde::Deserializer;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer, Unexpected, Visitor};
use serde_json::{Error, Map, Value};

/// A message that does not have the form its kind asks for.
#[derive(Debug, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct MessageError(#[from] Error);

/// Reads one message, looking names up without regard to case.
///
/// Members that are `null` count as absent, and unknown members are passed over. When a name
/// comes in two spellings the exact one wins.
///
/// # Errors
/// When the text is no JSON, a needed member is missing, or one has the wrong type.
pub fn decode_message<T: DeserializeOwned>(text: &[u8]) -> Result<T, MessageError> {
    from_value(serde_json::from_slice(text)?)
}

/// The same for a value that was parsed before.
///
/// # Errors
/// When a needed member is missing or has the wrong type.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, MessageError> {
    Ok(T::deserialize(Loose(value))?)
}

/// A value that gives a struct its members under the struct's own spelling.
struct Loose(Value);

impl<'de> Deserializer<'de> for Loose {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Loose)))
            }
            Value::Object(members) => visitor.visit_map(map_deserializer(members.into_iter())),
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(members) => {
                visitor.visit_map(map_deserializer(respell_members(members, fields).into_iter()))
            }
            // A list would fill the members by position.
            Value::Array(_) => Err(serde::de::Error::invalid_type(Unexpected::Seq, &visitor)),
            other => other.deserialize_struct(name, fields, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            some => visitor.visit_some(Loose(some)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl IntoDeserializer<'_, Error> for Loose {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn map_deserializer<'de, I>(
    members: I,
) -> MapDeserializer<'de, impl Iterator<Item = (String, Loose)>, Error>
where
    I: Iterator<Item = (String, Value)>,
{
    MapDeserializer::new(members.map(|(name, value)| (name, Loose(value))))
}

/// The members that a struct knows, each once, in the struct's spelling and order: of two members with the wrong
/// type, the same is reported whatever order they came in.
fn respell_members(members: Map<String, Value>, fields: &[&'static str]) -> Vec<(String, Value)> {
    let exact: HashSet<&str> =
        fields.iter().copied().filter(|field| is_present(members.get(*field))).collect();
    let mut taken = exact.clone();
    let mut respelled = Vec::with_capacity(fields.len());
    for (name, value) in members {
        let Some(field) = fields.iter().find(|field| field.eq_ignore_ascii_case(&name)) else {
            continue;
        };
        let is_exact = *field == name && exact.contains(field);
        if is_present(Some(&value)) && (is_exact || taken.insert(field)) {
            respelled.push(((*field).to_owned(), value));
        }
    }
    respelled.sort_by_key(|(name, _)| fields.iter().position(|field| field == name));
    respelled
}

fn is_present(value: Option<&Value>) -> bool {
    value.is_some_and(|value| !value.is_null())
}
