//! Parameters that a client appends to the query of each request.

use ginnel_api as api;

/// A parameter of a query, encoded.
pub(super) struct QueryParameter {
    name: String,
    value: String,
}

impl QueryParameter {
    pub(super) fn from_pair((name, value): &(String, String)) -> Self {
        Self { name: api::encode_component(name), value: api::encode_component(value) }
    }

    /// Whether a query has one of this name.
    pub(super) fn is_in(&self, query: &str) -> bool {
        query.split('&').any(|pair| pair.split('=').next() == Some(&self.name))
    }
}

/// Appends parameters to the target of a request, but for names that are there already.
pub(super) fn append_parameters(parameters: &[QueryParameter], target: &mut String) {
    if parameters.is_empty() {
        return;
    }
    let before = target.clone();
    let query = before.split_once('?').map(|(_, query)| query);
    let mut separator = if query.is_some() { '&' } else { '?' };
    let is_present =
        |parameter: &&QueryParameter| query.is_some_and(|query| parameter.is_in(query));
    for QueryParameter { name, value } in parameters.iter().filter(|it| !is_present(it)) {
        target.push(separator);
        separator = '&';
        target.extend([name, "=", value]);
    }
}
