//! Fields of tunnels and endpoints in files, and the traffic policy of an endpoint in a file of its own. Its name is
//! relative to the working directory, as that of all files that a configuration names.

use std::path::Path;

use serde_json::{Map, Value};

use ginnel_api::local::tunnels;
use ginnel_api::policy_document;
use ginnel_api::yaml_tree::{YamlKey, YamlNode, YamlValue, read_tree};
use ginnel_api::{Field, Operation, mask};
use ginnel_settings::{FieldProblem, problem_at, read_field_value, read_text};

/// The field that names the file; only configuration files have it.
pub(super) const FIELD: &str = "traffic_policy_file";
/// The field that holds the policy.
const POLICY: &str = "traffic_policy";
/// The older name of that field.
const OLD_POLICY: &str = "policy";

/// Puts the policy into the place of the name of its file.
///
/// # Errors
/// When the file cannot be read or holds no keys with values; the message names it and the line.
pub(super) fn inline_policy(
    mut document: Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let Some(value) = document.remove(FIELD) else { return Ok(document) };
    if document.contains_key(POLICY) {
        return Err(format!("{FIELD}: the policy stands in {POLICY} as well; leave out one"));
    }
    let policy = match value.as_str() {
        None | Some("") => Err("must name a file".to_owned()),
        Some(path) if mask::is_content(Path::new(path)) => {
            Err(format!("holds a policy; name a file, or write the policy into {POLICY}"))
        }
        Some(path) => read_policy(Path::new(path)),
    };
    let policy = policy.map_err(|problem| format!("{FIELD}: {problem}"))?;
    document.insert(POLICY.to_owned(), policy.into());
    Ok(document)
}

/// Reads the value of a field of a tunnel or an endpoint, one of `fields`. A policy is read as the text of a policy
/// file is.
///
/// # Errors
/// If the policy is not valid YAML for policies, or as [`read_field_value`].
pub(super) fn read_field(
    fields: &[Field],
    name: &str,
    node: YamlNode,
) -> Result<Value, FieldProblem> {
    let is_policy = [POLICY, OLD_POLICY].contains(&name);
    if !is_policy || !matches!(node.value, YamlValue::Map(_)) {
        return read_field_value(fields, name, node);
    }
    policy_document::document_from_node(&node).map_err(|error| FieldProblem {
        field: name.to_owned(),
        problem: error.to_string(),
        place: error.place.unwrap_or(node.place),
    })
}

/// Reads the fields of a tunnel from the text of a file of their own, in the way that the configuration file is read.
///
/// # Errors
/// If the text is not a map, or a value is not of the type of its field, with the line in the file.
pub fn read_definition(path: &Path, text: &str) -> Result<Map<String, Value>, String> {
    let root = read_tree(text).map_err(|error| match error.place {
        Some(place) => problem_at(path, place, &error.problem),
        None => format!("{}: {}", mask::path(path), error.problem),
    })?;
    let YamlValue::Map(entries) = root.value else {
        return Err(problem_at(path, root.place, "must hold keys with their values"));
    };
    let read = |(key, node): (YamlKey, YamlNode)| {
        let value = read_field(tunnels::Start::INFO.parameters, &key.name, node);
        let problem =
            |it: FieldProblem| problem_at(path, it.place, &format!("{}: {}", it.field, it.problem));
        Ok((key.name, value.map_err(problem)?))
    };
    entries.into_iter().map(read).collect()
}

/// The text of a policy; its rules are for the service to judge.
fn read_policy(path: &Path) -> Result<String, String> {
    let text = read_text(path).map_err(|error| format!("{}: {error}", mask::path(path)))?;
    let root = read_tree(&text).map_err(|error| match error.place {
        Some(place) => problem_at(path, place, &error.problem),
        None => format!("{}: {}", mask::path(path), error.problem),
    })?;
    match root.value {
        YamlValue::Map(_) => match policy_document::read_document(&text) {
            Ok(_) => Ok(text),
            Err(error) => Err(match error.place {
                Some(place) => problem_at(path, place, &error.to_string()),
                None => format!("{}: {error}", mask::path(path)),
            }),
        },
        YamlValue::Null => Err(format!("{}: is empty", mask::path(path))),
        _ => Err(problem_at(path, root.place, "must hold keys with their values")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read_as(text: &str) -> Result<Value, String> {
        let name = format!("ginnel-policy-{}-{}.yml", std::process::id(), text.len());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, text).unwrap();
        let document = json!({FIELD: file});
        let read = inline_policy(document.as_object().unwrap().clone());
        std::fs::remove_file(&file).unwrap();
        let name = file.display().to_string();
        read.map(Value::Object).map_err(|problem| problem.replace(&name, "P"))
    }

    #[test]
    fn a_policy_is_what_its_file_holds_in_yaml_or_json() {
        for text in ["on_http_request: []\n", "{\"on_http_request\": []}"] {
            assert_eq!(read_as(text), Ok(json!({POLICY: text})));
        }
    }

    #[test]
    fn what_is_no_policy_is_named_with_its_file_and_line() {
        for (text, problem) in [
            ("", "P: is empty"),
            ("- deny\n", "P:1:1: must hold keys with their values"),
            ("on_http_request: []\non_http_request: []\n", "P:2:1: "),
            ("on_http_request:\n  - actions: [\n", "P:"),
        ] {
            let said = read_as(text).unwrap_err();
            assert!(said.starts_with(&format!("{FIELD}: {problem}")), "{said}");
        }
        let said =
            |document: Value| inline_policy(document.as_object().unwrap().clone()).unwrap_err();
        let missing = said(json!({FIELD: "no/such.yml"}));
        assert!(missing.starts_with("traffic_policy_file: no/such.yml: No such file"), "{missing}");
        assert_eq!(said(json!({FIELD: 7})), "traffic_policy_file: must name a file");
        let both = said(json!({FIELD: "p.yml", POLICY: {}}));
        assert!(both.ends_with("stands in traffic_policy as well; leave out one"), "{both}");
        let text = said(json!({FIELD: "on_http_request:\n  - secret: swordfish"}));
        assert!(text.contains("name a file") && !text.contains("swordfish"), "{text}");
    }
}
