//! What actions leave to later expressions, behind `actions.ngrok`.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

/// The last result of each type of action.
///
/// Few types run for a request, and what many of them leave is the same for all requests: so this is
/// a list, and results are shared.
#[derive(Debug, Default)]
pub(super) struct ActionResults(Vec<(&'static str, Arc<Json>)>);

impl ActionResults {
    /// Keeps the result of a type of action, in place of an earlier one.
    pub(super) fn insert(&mut self, kind: &'static str, result: Arc<Json>) {
        match self.0.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, known)) => *known = result,
            None => self.0.push((kind, result)),
        }
    }

    /// The result of a type of action, to be changed.
    pub(super) fn get_mut(&mut self, kind: &str) -> Option<&mut Json> {
        let (_, result) = self.0.iter_mut().find(|(known, _)| *known == kind)?;
        Some(Arc::make_mut(result))
    }

    /// The result under the name that expressions use.
    pub(super) fn find_by_name(&self, name: &str) -> Option<&Json> {
        let (_, result) = self.0.iter().find(|(kind, _)| result_name(kind) == name)?;
        Some(result)
    }

    /// All of them, under the names that expressions use.
    pub(super) fn to_json(&self) -> Map<String, Json> {
        let named = self.0.iter().map(|(kind, result)| (result_name(kind), (**result).clone()));
        named.collect()
    }
}

/// What expressions find the result of a type of action under.
fn result_name(kind: &str) -> String {
    match kind {
        "compress-response" => "compress".to_owned(),
        "openid-connect" => "oidc".to_owned(),
        kind => kind.replace('-', "_"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_result_of_a_type_counts() {
        let mut results = ActionResults::default();
        let shared = Arc::new(json!({"headers_added": {"x": "1"}}));
        results.insert("add-headers", shared.clone());
        results.insert("compress-response", Arc::new(json!({"chosen": "gzip"})));
        results.insert("add-headers", shared.clone());
        results.get_mut("add-headers").unwrap()["error"] = json!({"code": 1});

        assert_eq!(results.find_by_name("add_headers").unwrap()["error"]["code"], 1);
        assert_eq!(results.find_by_name("compress"), Some(&json!({"chosen": "gzip"})));
        assert_eq!(results.find_by_name("add-headers"), None);
        assert_eq!(results.to_json().keys().collect::<Vec<_>>(), ["add_headers", "compress"]);
        assert_eq!(*shared, json!({"headers_added": {"x": "1"}}), "others keep what they have");
    }
}
