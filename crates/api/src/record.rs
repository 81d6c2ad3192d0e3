//! Reads the types that `wire!` declares.
//!
//! A derived `Deserialize` keeps an option for each field, reads lists by position too, and has a visitor for the names
//! of the fields. All that is machine code of each type for each format. Fields of the wire have a default, so they are
//! set in place here, and the reader of a type of field is shared by all records that have one.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// A type of the wire whose fields are read one by one, in any order.
pub trait WireObject: Default {
    /// The name of the type.
    const NAME: &'static str;
    /// The names of its fields on the wire.
    const FIELDS: &'static [&'static str];

    /// Reads the next value of `members` into the field with this name. The values of unknown fields are skipped.
    ///
    /// # Errors
    /// If the value does not have the type of the field.
    fn read_field<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        members: &mut A,
    ) -> Result<(), A::Error>;
}

/// Reads a record. A null is read as the default of its field, because servers write it for empty lists and texts.
///
/// # Errors
/// If the input is not an object, or a field has another type.
pub fn read_record<'de, T: WireObject, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_struct(T::NAME, T::FIELDS, RecordVisitor(PhantomData))
}

/// Reads the next value of `members`, or the default for null.
///
/// # Errors
/// If the value has another type.
pub fn read_value<'de, T: Default + Deserialize<'de>, A: MapAccess<'de>>(
    members: &mut A,
) -> Result<T, A::Error> {
    Ok(members.next_value::<Option<T>>()?.unwrap_or_default())
}

struct RecordVisitor<T>(PhantomData<T>);

impl<'de, T: WireObject> Visitor<'de> for RecordVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "struct {}", T::NAME)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<T, A::Error> {
        let mut record = T::default();
        while let Some(name) = members.next_key::<FieldName<'de>>()? {
            record.read_field(&name.0, &mut members)?;
        }
        Ok(record)
    }
}

/// The name of a field, borrowed if the input has it as it is.
struct FieldName<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for FieldName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = FieldName<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<FieldName<'de>, E> {
        Ok(FieldName(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<FieldName<'de>, E> {
        self.visit_string(name.to_owned())
    }

    fn visit_string<E: Error>(self, name: String) -> Result<FieldName<'de>, E> {
        Ok(FieldName(Cow::Owned(name)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use crate::remote::api_keys::ApiKey;

    #[test]
    fn fields_have_any_order_and_null_is_their_default() {
        let text = r#"{"metadata": "m", "unknown": [{}], "\u0069d": "ak_1", "uri": null}"#;

        let borrowed: ApiKey = serde_json::from_str(text).unwrap();
        let owned: ApiKey = serde_json::from_value(serde_json::from_str(text).unwrap()).unwrap();

        let metadata = Some("m".into());
        assert_eq!(borrowed, ApiKey { id: "ak_1".to_owned(), metadata, ..ApiKey::default() });
        assert_eq!(owned, borrowed);
    }

    #[test]
    fn a_list_or_another_type_is_refused() {
        for wrong in [json!(["ak_1"]), json!({"id": 7}), json!("ak_1"), json!({"metadata": {}})] {
            assert!(serde_json::from_value::<ApiKey>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
