//! Values of fields in files whose types a table of an API declares.

use serde_json::Value;

use ginnel_api::yaml_tree::{TextPlace, YamlNode, YamlValue};
use ginnel_api::{Field, Kind};

/// The reason why the value of a field of an entry cannot be read.
#[derive(Debug)]
pub struct FieldProblem {
    /// The name of the field, with the names of the fields that it is in: `upstream.url`.
    pub field: String,
    /// The reason.
    pub problem: String,
    /// The place in the file.
    pub place: TextPlace,
}

/// Reads the value of the field `name`, one of `fields`. JSON has no spellings, so this is the last chance to judge them.
///
/// # Errors
/// If a number has a spelling that YAML 1.1 and 1.2 read differently, or a text is a number or a truth value.
pub fn read_field_value(
    fields: &[Field],
    name: &str,
    node: YamlNode,
) -> Result<Value, FieldProblem> {
    let known = fields.iter().find(|field| field.name == name);
    read_value(known.map(|field| &field.kind), name, node)
}

fn read_value(kind: Option<&Kind>, name: &str, node: YamlNode) -> Result<Value, FieldProblem> {
    if let Some(problem) = kind.and_then(|kind| scalar_problem(kind, &node)) {
        return Err(FieldProblem { field: name.to_owned(), problem, place: node.place });
    }
    match (kind, node.value) {
        (Some(Kind::Record(shape)), YamlValue::Map(entries)) => {
            let entries = entries.into_iter().map(|(key, node)| {
                let known = shape.fields.iter().find(|field| field.name == key.name);
                let inner = format!("{name}.{}", key.name);
                Ok((key.name, read_value(known.map(|field| &field.kind), &inner, node)?))
            });
            entries.collect()
        }
        (Some(Kind::List(item)), YamlValue::List(items)) => {
            let items = items.into_iter().enumerate();
            let items =
                items.map(|(at, node)| read_value(Some(item), &format!("{name}[{at}]"), node));
            items.collect()
        }
        (_, value) => Ok(value.into()),
    }
}

/// The reason why a single value is not of this kind, if its spelling shows that.
fn scalar_problem(kind: &Kind, node: &YamlNode) -> Option<String> {
    let written = node.written.as_deref()?;
    match (kind, &node.value) {
        (Kind::Integer | Kind::TextOrNumber, YamlValue::Number(number))
            if number.is_f64() || number.to_string() != written =>
        {
            Some(format!(
                "{written} is not a whole number in plain digits, such as 8080; other spellings have different \
                 values in YAML 1.1 and 1.2"
            ))
        }
        (Kind::Number, YamlValue::Number(number))
            if !number.is_f64() && number.to_string() != written =>
        {
            Some(format!("{written} is not a number in plain digits, such as 0.5"))
        }
        (Kind::Text { .. }, YamlValue::Number(_)) => {
            Some(format!("{written} is a number, not a string; put it into quotes"))
        }
        (Kind::Text { .. } | Kind::TextOrNumber, YamlValue::Bool(_)) => {
            Some(format!("{written} is a boolean, not a string; put it into quotes"))
        }
        // A part of a secret is not shown.
        (Kind::Secret, YamlValue::Number(_)) => {
            Some("is a number, not a string; put it into quotes".to_owned())
        }
        (Kind::Secret, YamlValue::Bool(_)) => {
            Some("is a boolean, not a string; put it into quotes".to_owned())
        }
        _ => None,
    }
}
