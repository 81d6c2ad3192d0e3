//! Fields of documents, however their names are spelled: libraries with types write `Inbound`,
//! `OnHttpRequest` and `StatusCode`.

use serde_json::{Map, Value};

pub(super) use ginnel_api::policy_document::is_field;

/// A field of an object, in any spelling.
pub(super) fn find_field<'v>(fields: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    let other = || fields.iter().find(|(spelled, _)| is_field(spelled, name));
    fields.get(name).or_else(|| other().map(|(_, value)| value))
}

/// What is wrong with each field that is not among `known`, or that is there twice.
pub(super) fn field_faults<'v>(
    fields: &'v Map<String, Value>,
    known: &[&str],
) -> impl Iterator<Item = (&'v str, &'static str)> {
    fields.keys().enumerate().filter_map(|(index, spelled)| {
        let Some(name) = known.iter().find(|name| is_field(spelled, name)) else {
            return Some((spelled.as_str(), "unknown field"));
        };
        let is_second = fields.keys().take(index).any(|earlier| is_field(earlier, name));
        is_second.then_some((spelled.as_str(), "the field is there twice"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_found_in_any_spelling() {
        let document = json!({"StatusCode": 1, "status": 2, "URL": 3});
        let fields = document.as_object().into_iter().next();
        let found =
            |name| fields.and_then(|fields| find_field(fields, name)).and_then(Value::as_i64);

        assert_eq!(found("status_code"), Some(1));
        assert_eq!(found("status"), Some(2));
        assert_eq!(found("url"), Some(3));
        assert_eq!(found("code"), None);
    }

    #[test]
    fn a_field_that_is_there_twice_is_at_fault() {
        let document = json!({"Name": 1, "name": 2, "other": 3});
        let fields = document.as_object().cloned().unwrap_or_default();

        let found: Vec<_> = field_faults(&fields, &["name"]).collect();

        assert_eq!(found, [("name", "the field is there twice"), ("other", "unknown field")]);
    }
}
