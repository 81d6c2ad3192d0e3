//! JSON as a tree that keeps the spelling of its numbers.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::json;
use super::yaml_tree::{TextPlace, YamlKey, YamlNode, YamlValue};

/// Reads an object as [`json::object`] does, and keeps the spelling of its numbers.
///
/// # Errors
/// If the text is something else.
pub(super) fn read_json_tree(text: &str) -> Result<YamlNode, serde_json::Error> {
    json::parse_object(text.as_bytes())?;
    parse_node(serde_json::from_str(text)?)
}

/// The node of a text that is valid JSON.
fn parse_node(raw: &RawValue) -> Result<YamlNode, serde_json::Error> {
    let text = raw.get().trim();
    let value = match text.bytes().next() {
        Some(b'{') => {
            let Members(members) = serde_json::from_str(text)?;
            let entry = |(name, raw): (String, _)| {
                Ok((YamlKey { name, place: TextPlace::NONE }, parse_node(raw)?))
            };
            YamlValue::Map(members.into_iter().map(entry).collect::<Result<_, _>>()?)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            YamlValue::List(items.into_iter().map(parse_node).collect::<Result<_, _>>()?)
        }
        _ => serde_json::from_str::<Value>(text)?.into(),
    };
    let is_spelled = matches!(value, YamlValue::Number(_) | YamlValue::Bool(_));
    let written = is_spelled.then(|| text.into());
    Ok(YamlNode { written, ..YamlNode::new(value, TextPlace::NONE) })
}

/// The members of an object in their order, with values that are not read yet.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(Self)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_keeps_the_order_and_the_spelling_of_numbers() {
        let text = r#" {"b": [1.10, 1e3, {"c": true}], "a": "1.10", "\u0063": null} "#;

        let tree = read_json_tree(text).unwrap();

        let YamlValue::Map(entries) = &tree.value else { unreachable!() };
        let names: Vec<_> = entries.iter().map(|(key, _)| key.name.as_str()).collect();
        let YamlValue::List(items) = &entries[0].1.value else { unreachable!() };
        let written: Vec<_> = items.iter().map(|item| item.written.as_deref()).collect();
        assert_eq!(names, ["b", "a", "c"]);
        assert_eq!(written, [Some("1.10"), Some("1e3"), None]);
        assert_eq!(Value::from(tree.value), text.parse::<Value>().unwrap());
    }

    #[test]
    fn a_tree_has_no_key_twice() {
        let error = read_json_tree(r#"{"a": {"b": 1, "\u0062": 2}}"#).unwrap_err();

        assert!(error.to_string().contains("\"b\" is there twice"), "{error}");
    }
}
