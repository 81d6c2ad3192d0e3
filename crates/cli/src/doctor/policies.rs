//! Stored traffic policies that this version refuses: an earlier one may have accepted them.

use serde_json::Value;

use ginnel_api::id::prefix;
use ginnel_api::remote::{edges, endpoints};
use ginnel_policy::{self as policy, Policy, Problem, Scope};

use super::edges::for_each_item;
use super::finding::Finding;

/// The number of items that are fetched at once.
const PAGE_ITEMS: i64 = 100;

/// Examines the policies of all edges, routes and cloud endpoints that the management API lists.
pub(super) fn examine_policies(url: &str) -> Vec<Finding> {
    let mut examined = Examined::default();
    match examined.examine_listed(url) {
        Ok(()) => examined.into_findings(),
        Err(problem) => {
            vec![Finding::warning("policies", format!("cannot be listed: {problem}"))]
        }
    }
}

/// Examines the policies of the documents in a database, each with the prefix of its identifier.
pub(super) fn examine_stored(owners: &[(String, Value)]) -> Vec<Finding> {
    let mut examined = Examined::default();
    for (kind, owner) in owners {
        examined.examine_owner(
            owner,
            match kind.as_str() {
                prefix::ENDPOINT => scope_of_endpoint(owner),
                prefix::HTTPS_ROUTE => Scope::HttpsRoute,
                _ => Scope::TcpEdge,
            },
        );
    }
    examined.into_findings()
}

fn scope_of_endpoint(endpoint: &Value) -> Scope {
    let is_tcp = endpoint["url"].as_str().is_some_and(|url| url.starts_with("tcp:"));
    if is_tcp { Scope::TcpTunnel } else { Scope::HttpTunnel }
}

/// The policies that were examined.
#[derive(Default)]
struct Examined {
    number: usize,
    refused: Vec<Finding>,
}

impl Examined {
    fn examine_owner(&mut self, owner: &Value, scope: Scope) {
        for document in policy_documents(owner) {
            self.number += 1;
            let problems = document.and_then(|it| Policy::compile(&it, scope));
            self.refused.extend(problems.err().map(|problems| policy_finding(owner, &problems)));
        }
    }

    fn into_findings(self) -> Vec<Finding> {
        match self.number {
            0 => Vec::new(),
            number if self.refused.is_empty() => {
                vec![Finding::ok("policies", format!("all {number} stored policies are valid"))]
            }
            _ => self.refused,
        }
    }

    fn examine_listed(&mut self, url: &str) -> Result<(), String> {
        let limit = Some(PAGE_ITEMS);
        for_each_item(url, |before_id| endpoints::List { before_id, limit }, &mut |endpoint| {
            // Agents bring the policies of the others.
            if endpoint["type"] == "cloud" {
                self.examine_owner(endpoint, scope_of_endpoint(endpoint));
            }
            true
        })?;
        for_each_item(url, |before_id| edges::https::List { before_id, limit }, &mut |edge| {
            let routes = edge["routes"].as_array().into_iter().flatten();
            routes.for_each(|route| self.examine_owner(route, Scope::HttpsRoute));
            true
        })?;
        for_each_item(url, |before_id| edges::tcp::List { before_id, limit }, &mut |edge| {
            self.examine_owner(edge, Scope::TcpEdge);
            true
        })?;
        for_each_item(url, |before_id| edges::tls::List { before_id, limit }, &mut |edge| {
            self.examine_owner(edge, Scope::TcpEdge);
            true
        })
    }
}

/// The policies of an edge, a route or an endpoint, each in one of its forms.
fn policy_documents(owner: &Value) -> impl Iterator<Item = Result<Value, Vec<Problem>>> {
    let module = Some(&owner["policy"]).filter(|it| it.is_object()).cloned().map(Ok);
    let text = match &owner["traffic_policy"] {
        Value::String(text) => Some(text.as_str()),
        module => module["value"].as_str(),
    };
    let text = text.filter(|text| !text.is_empty());
    let read = text.map(|text| policy::read_document(text).map_err(|problem| vec![problem]));
    module.into_iter().chain(read)
}

fn policy_finding(owner: &Value, problems: &[Problem]) -> Finding {
    let id = owner["id"].as_str().unwrap_or_default();
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    Finding::problem("policies", format!("that of {id} is refused: {first}"))
        .with_remedy("correct the policy; visitors get a 503 until then")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_is_examined_in_each_of_its_forms() {
        let refused = "on_http_request: [{expressions: [! 'true'], actions: [{type: deny}]}]";
        for (owner, expected) in [
            (json!({"traffic_policy": refused}), 1),
            (json!({"traffic_policy": {"enabled": true, "value": refused}}), 1),
            (json!({"policy": {"inbound": [{"actions": [{"type": "dance"}]}]}}), 1),
            (json!({"policy": {"inbound": [{"actions": [{"type": "deny"}]}]}}), 0),
            (json!({"policy": null, "traffic_policy": ""}), 0),
        ] {
            let compiled = policy_documents(&owner)
                .map(|it| it.and_then(|document| Policy::compile(&document, Scope::HttpTunnel)));

            assert_eq!(compiled.filter(Result::is_err).count(), expected, "{owner}");
        }
    }
}
