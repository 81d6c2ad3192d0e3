//! Values below the name of a secret that describe the secret: schemas of JSON and OpenAPI, and versions of packages.

use serde_json::Value;

/// Types in schemas and in security schemes (OpenAPI 3.1, section 4.8.27).
const TYPES: [&str; 11] = [
    "apiKey",
    "array",
    "boolean",
    "http",
    "integer",
    "mutualTLS",
    "null",
    "number",
    "oauth2",
    "openIdConnect",
    "string",
];
/// Members that say something about a value, and are not its default or an example.
const MEMBERS: [&str; 20] = [
    "bearerFormat",
    "deprecated",
    "description",
    "format",
    "in",
    "maxLength",
    "maximum",
    "minLength",
    "minimum",
    "name",
    "nullable",
    "openIdConnectUrl",
    "optional",
    "pattern",
    "readOnly",
    "required",
    "scheme",
    "title",
    "type",
    "writeOnly",
];
/// Schemas are not longer, in bytes.
const MAX_SCHEMA_BYTES: usize = 2048;
/// Members of the file of a package whose members are packages with their versions.
const PACKAGE_LISTS: [&str; 6] = [
    "dependencies",
    "devDependencies",
    "optionalDependencies",
    "overrides",
    "peerDependencies",
    "resolutions",
];
/// Versions are not longer, in bytes.
const MAX_VERSION_BYTES: usize = 24;

/// Returns true for the text of a JSON object that is a schema.
pub(super) fn is_schema_text(written: &str) -> bool {
    let is_object = written.starts_with('{') && written.len() <= MAX_SCHEMA_BYTES;
    is_object && serde_json::from_str(written).is_ok_and(|value| is_schema(&value))
}

/// Returns true for an object that has a type and otherwise only members that describe a value.
pub(super) fn is_schema(value: &Value) -> bool {
    let Some(members) = value.as_object() else { return false };
    let is_type = |value: &Value| value.as_str().is_some_and(|it| TYPES.contains(&it));
    members.get("type").is_some_and(is_type)
        && members.iter().all(|(name, value)| is_description(name) && is_single(value))
}

/// Returns true for lines of YAML that are a schema.
pub(super) fn is_schema_block(block: &str) -> bool {
    let lines = || block.lines().filter(|line| !line.trim().is_empty());
    let member = |line: &'_ str| -> Option<(String, String)> {
        let (name, value) = line.trim().split_once(": ")?;
        Some((name.to_owned(), value.trim().trim_matches(['"', '\'']).to_owned()))
    };
    let indent = |line: &str| line.len() - line.trim_start().len();
    let first = lines().next().map(indent);
    let members: Option<Vec<_>> = lines().map(member).collect();
    let members = members.unwrap_or_default();
    block.len() <= MAX_SCHEMA_BYTES
        && lines().all(|line| Some(indent(line)) == first)
        && members.iter().any(|(name, value)| name == "type" && TYPES.contains(&value.as_str()))
        && members.iter().all(|(name, value)| {
            is_description(name) && !value.starts_with(['[', '{', '|', '>', '&', '*', '!'])
        })
}

/// Returns true for a member that contains packages with their versions.
pub(super) fn is_package_list(name: &str) -> bool {
    PACKAGE_LISTS.contains(&name)
}

/// Returns true for a version of a package in quotes, such as `"^1.2.3"`.
pub(super) fn is_version(quoted: &str) -> bool {
    let text = quoted.trim_matches('"').trim_start_matches(['^', '~', '>', '<', '=', ' ', 'v']);
    let mut numbers = text.split('.');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    quoted.starts_with('"')
        && quoted.len() <= MAX_VERSION_BYTES
        && (2..=3).contains(&numbers.clone().count())
        && numbers.all(is_number)
}

fn is_description(name: &str) -> bool {
    MEMBERS.contains(&name)
}

fn is_single(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::{MASK, body, json, value};

    #[test]
    fn schemas_describe_secrets() {
        for (source, is_visible) in [
            (r#"{"apiKey":{"type":"apiKey","name":"X-API-Key","in":"header"}}"#, true),
            (r#"{"password":{"type":"string","minLength":8,"format":"password"}}"#, true),
            (r#"{"password":{"description":"kept","type":"string"}}"#, true),
            (r#"{"password":{"type":"string","default":"fish"}}"#, false),
            (r#"{"password":{"type":"string","enum":["fish"]}}"#, false),
            (r#"{"password":{"type":"fish"}}"#, false),
            (r#"{"password":{"description":"fish"}}"#, false),
            (r#"{"password":{"type":"string","value":"fish"}}"#, false),
        ] {
            assert_eq!(json(source) == source, is_visible, "{source}");
            let before: Value = serde_json::from_str(source).unwrap_or_default();
            let mut shown = before.clone();
            value(&mut shown);
            assert_eq!(shown == before, is_visible, "{source}");
        }
        for (source, is_visible) in [
            ("apiKey:\n  type: apiKey\n  name: a\n  in: header\nb: c\n", true),
            ("password:\n  type: string\n  minLength: 8\n", true),
            ("password:\n  type: string\n  example: fish\n", false),
            ("password:\n  type: string\n  description: |\n    fish\n", false),
            ("password:\n  type: fish\n", false),
        ] {
            assert_eq!(
                body("application/yaml", source.as_bytes()).is_none(),
                is_visible,
                "{source}"
            );
        }
    }

    #[test]
    fn versions_of_packages_are_visible() {
        let source = r#"{"dependencies":{"cookie":"^0.5.0","jsonwebtoken":"9.0.2","token":"#
            .to_owned()
            + r#""fish"},"cookie":"9.0.2"}"#;
        let expected =
            source.replace("\"fish\"", "\"$\"").replace("\"cookie\":\"9.0.2\"", "\"cookie\":\"$\"");
        assert_eq!(json(&source), expected.replace('$', MASK));
        for version in ["fish", "1", "1.2.3.4", "1.2.fish", "1..2"] {
            assert!(!is_version(&format!("\"{version}\"")), "{version}");
        }
    }
}
