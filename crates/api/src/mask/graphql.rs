//! GraphQL: variables that are passed to secret arguments.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::brackets;
use crate::secrets::is_secret;

/// The declaration of a variable with its type, as in `$name: [String!]`.
const DECLARED: &str =
    r"\$([A-Za-z_][A-Za-z0-9_]*)\s{0,8}:\s{0,8}\[?\s?[A-Z_a-z][A-Za-z0-9_]*[!\]\s,)=@]";
/// An argument with its value, which may follow comments.
const ARGUMENT: &str = r"([A-Za-z_][A-Za-z0-9_]*)\s{0,8}:(?:\s|\#[^\n]{0,200}\n){0,16}(\$[A-Za-z_][A-Za-z0-9_]*|[\[{])";
/// A use of a variable.
const VARIABLE: &str = r"\$([A-Za-z_][A-Za-z0-9_]*)";
/// The members of a request that have the document and its variables.
const QUERY: &str = "query";
pub(super) const VARIABLES: &str = "variables";

/// Returns the names of the variables that a document declares.
pub(super) fn declared_variables(document: &str) -> BTreeSet<&str> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(DECLARED).ok());
    let pattern = PATTERN.as_ref().filter(|_| document.contains('$') && document.contains('{'));
    let found = pattern.iter().flat_map(|pattern| pattern.captures_iter(document));
    found.filter_map(|found| found.get(1)).map(|name| name.as_str()).collect()
}

/// Returns true if a value is one of these variables.
pub(super) fn is_variable(value: &str, variables: &BTreeSet<&str>) -> bool {
    let name = value.strip_prefix('$').unwrap_or_default();
    let end = name.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    variables.contains(name.get(..end.unwrap_or(name.len())).unwrap_or_default())
}

/// Returns the length of a value that may begin with a comment, whose text ends with the line.
pub(super) fn commented_length(rest: &str, length: impl Fn(&str) -> usize) -> usize {
    let mut at = 0;
    while let Some(line) = rest.get(at..).filter(|line| line.starts_with('#')) {
        let Some(end) = line.find('\n') else { return length(rest) };
        at += end + 1;
        let after = rest.get(at..).unwrap_or_default();
        at += after.len() - after.trim_start().len();
    }
    let value = rest.get(at..).unwrap_or_default();
    match value.as_bytes().first() {
        Some(b'"') => at + length(value),
        Some(b'[' | b'{') => at + brackets::group_end(value, 0),
        // Elsewhere, the sign begins no comment.
        _ => length(rest),
    }
}

/// Returns the names of the variables that are passed to arguments with the name of a secret, or inside of them.
pub(super) fn secret_variables(document: &str) -> BTreeSet<String> {
    static PATTERNS: LazyLock<Option<(Regex, Regex)>> =
        LazyLock::new(|| Regex::new(ARGUMENT).ok().zip(Regex::new(VARIABLE).ok()));
    let Some((argument, variable)) = PATTERNS.as_ref().filter(|_| document.contains('$')) else {
        return BTreeSet::new();
    };
    let mut names = BTreeSet::new();
    let mut read = 0;
    for found in argument.captures_iter(document) {
        let (Some(name), Some(value)) = (found.get(1), found.get(2)) else { continue };
        if name.start() < read || !is_secret(name.as_str()) {
            continue;
        }
        let rest = document.get(value.start()..).unwrap_or_default();
        let length = match value.as_str() {
            "[" | "{" => brackets::group_end(rest, 0),
            variable => variable.len(),
        };
        read = value.start() + length;
        let used = variable.captures_iter(rest.get(..length).unwrap_or_default());
        names.extend(used.filter_map(|used| used.get(1)).map(|name| name.as_str().to_owned()));
    }
    names
}

/// Hides the variables of a request that are passed to secret arguments. Its variables may be JSON in a string.
pub(super) fn hide_in_request(members: &mut Map<String, Value>, conceal: &dyn Fn(&mut Value)) {
    let names = members.get(QUERY).and_then(Value::as_str).map(secret_variables);
    let Some(names) = names.filter(|names| !names.is_empty()) else { return };
    match members.get_mut(VARIABLES) {
        Some(Value::Object(variables)) => conceal_variables(variables, &names, conceal),
        Some(Value::String(coded)) => match serde_json::from_str(coded) {
            Ok(Value::Object(mut variables)) => {
                conceal_variables(&mut variables, &names, conceal);
                *coded = Value::Object(variables).to_string();
            }
            _ => *coded = super::MASK.to_owned(),
        },
        _ => {}
    }
}

/// Hides the variables of these names.
pub(super) fn conceal_variables(
    variables: &mut Map<String, Value>,
    names: &BTreeSet<String>,
    conceal: &dyn Fn(&mut Value),
) {
    let variables = variables.iter_mut().filter(|(name, _)| names.contains(*name));
    variables.for_each(|(_, value)| conceal(value));
}

/// Returns true if a document passes some of these variables to secret arguments.
pub(super) fn secret_form_variables(document: &str, variables: &str) -> bool {
    let names = secret_variables(document);
    !names.is_empty() && names.iter().any(|name| variables.contains(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::{MASK, json, pairs, value, value_in_form};

    fn request(query: &str, variables: &Value) -> Value {
        serde_json::json!({"query": query, "variables": variables})
    }

    #[test]
    fn variables_that_are_passed_to_secret_arguments_are_hidden() {
        let variables = serde_json::json!({"x": "fish", "y": ["kept"], "n": 5});
        let hidden = serde_json::json!({"x": MASK, "y": ["kept"], "n": 5});
        for query in [
            "mutation($x:String!){login(password:$x){id}}",
            "mutation A($x: String!, $n: Int) { login(input: {password: $x, pages: $n}) { id } }",
            "mutation($x:String!){login(credentials:{user:\"a\", code:$x}){id}}",
            "mutation($x:String!){login(passwords:[\"a\", $x]){id}}",
            "mutation($x:String!){login(password: # the old one\n $x){id}}",
            "query($x:String!){ a @b(token:$x) { c } }",
        ] {
            let source = request(query, &variables);
            for source in [source.clone(), Value::Array(vec![source.clone()])] {
                let shown = json(&source.to_string());
                assert!(!shown.contains("fish"), "{query}: {shown}");
                assert!(shown.contains("kept") && shown.contains("\"n\":5"), "{shown}");

                let mut shown = source;
                value(&mut shown);
                assert!(!shown.to_string().contains("fish"), "{query}: {shown}");
            }
            let shown: Value = serde_json::from_str(&json(&request(query, &variables).to_string()))
                .unwrap_or_default();
            assert_eq!(shown["variables"], hidden, "{query}");
        }
        let lines = "{\"a\":1}\n".to_owned()
            + &request("mutation($x:String!){a(token:$x)}", &variables).to_string()
            + "\n{\"big\": 12345678901234567890123}\n{\"cut";
        let shown = json(&lines);
        assert!(!shown.contains("fish") && shown.contains("12345678901234567890123"), "{shown}");
        let coded = request(
            "mutation($x:String!){login(password:$x)}",
            &Value::String("{\"x\":\"fish\",\"y\":\"kept\"}".to_owned()),
        );
        let shown = json(&coded.to_string());
        assert!(!shown.contains("fish") && shown.contains("kept"), "{shown}");
        let shown =
            pairs("query=mutation($x:String!){login(password:$x)}&variables={\"x\":\"fish\"}");
        assert!(!shown.contains("fish"), "{shown}");
    }

    #[test]
    fn variables_keep_their_form() {
        let query = "mutation($c:Login!){login(credentials:$c)}";
        let mut shown = request(query, &serde_json::json!({"c": {"a": ["fish"]}}));

        value_in_form(&mut shown);

        assert_eq!(shown["variables"], serde_json::json!({"c": {"a": [MASK]}}));
    }

    #[test]
    fn other_variables_stay() {
        let query = "query($x:String!){search(text:$x, max_tokens:5){id}}";
        let source = request(query, &serde_json::json!({"x": "kept"})).to_string();
        assert_eq!(json(&source), source);
    }
}
