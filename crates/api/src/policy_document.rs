//! Traffic policy documents: one reading of their text.
//!
//! JSON and YAML become the same value. Tags and duplicate keys are refused. A scalar in a text field is the text
//! that its author wrote: `0123` is not a number there. Fields for numbers and truth values stay typed.

use std::borrow::Cow;
use std::fmt;

use serde::de::IgnoredAny;
use serde_json::{Map, Number, Value};

use super::json_tree::read_json_tree;
use super::yaml_tree::{TextPlace, YamlError, YamlNode, YamlValue, old_boolean, read_tree};

/// The size limit of a document's text, including blanks and comments, in bytes.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// The fields of a document that are lists of rules, in both spellings.
const PHASES: [&str; 5] =
    ["inbound", "outbound", "on_tcp_connect", "on_http_request", "on_http_response"];

/// The fields of configurations whose values may be of any type.
const FREE_FIELDS: [&str; 2] = ["metadata", "vars"];

/// The field of configurations with the names and values of headers.
const HEADERS: &str = "headers";

/// A field of a configuration that holds a number or a truth value; all others hold text, unless they are in
/// `FREE_FIELDS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypedField(&'static str);

impl TypedField {
    /// The name of the field.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// Declares the typed fields. Only this file can make a [`TypedField`], and actions read numbers and truth values by
/// typed fields only, so that no field can be missing here.
macro_rules! typed_fields {
    ($($constant:ident = $name:literal,)+) => {
        $(
            #[doc = concat!("The field `", $name, "`.")]
            pub const $constant: TypedField = TypedField($name);
        )+
        const TYPED_FIELDS: &[TypedField] = &[$($constant),+];
    };
}

typed_fields! {
    ALLOW_CORS_PREFLIGHT = "allow_cors_preflight",
    CAPACITY = "capacity",
    ENFORCE = "enforce",
    ERROR_THRESHOLD = "error_threshold",
    ERROR_THRESHOLD_PERCENTAGE = "error_threshold_percentage",
    MAX_REDIRECTS = "max_redirects",
    NUM_BUCKETS = "num_buckets",
    RETRY_CONDITION = "retry_condition",
    STATUS_CODE = "status_code",
    VOLUME_THRESHOLD = "volume_threshold",
}

/// Returns true if `spelled` is a spelling of `name`: upper and lower case and `_` do not count.
pub fn is_field(spelled: &str, name: &str) -> bool {
    normalized_letters(spelled).eq(normalized_letters(name))
}

fn normalized_letters(name: &str) -> impl Iterator<Item = u8> + '_ {
    name.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase())
}

/// The reason why a text or a node is not a policy document. Of the text, it shows only keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError {
    /// The path to the value, such as `inbound[0].actions[1].config`; empty if the error concerns all of it.
    pub path: String,
    /// The reason.
    pub problem: String,
    /// The place in the text, if it is known.
    pub place: Option<TextPlace>,
}

impl DocumentError {
    fn at_root(problem: impl Into<String>) -> Self {
        Self { path: String::new(), problem: problem.into(), place: None }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => formatter.write_str(&self.problem),
            path => write!(formatter, "{path}: {}", self.problem),
        }
    }
}

/// Reads a document from JSON or YAML.
///
/// # Errors
/// If the text is neither, has a key twice, a tag or more than one document.
pub fn read_document(text: &str) -> Result<Value, DocumentError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(DocumentError::at_root(format!("a text of more than {MAX_TEXT_BYTES} bytes")));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if !text.trim_start().starts_with('{') {
        return document_from_node(&read_tree(text).map_err(invalid_yaml)?);
    }
    // Errors of the YAML reader do not help the author of a text that looks like JSON.
    match read_json_tree(text) {
        Ok(node) => DocumentReader::for_json().read_document(&node),
        Err(error) => match read_tree(text) {
            Ok(node) if !is_json(text) => document_from_node(&node),
            _ => Err(DocumentError::at_root(format!("invalid JSON: {error}"))),
        },
    }
}

/// Returns true if a text follows the grammar of JSON, whatever its values are. Such a text is not read as YAML, which
/// has other types for some scalars.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn invalid_yaml(error: YamlError) -> DocumentError {
    let problem = match error.place {
        Some(TextPlace { line, column }) => {
            format!("invalid YAML: {} at line {line}, column {column}", error.problem)
        }
        None => format!("invalid YAML: {}", error.problem),
    };
    DocumentError { place: error.place, ..DocumentError::at_root(problem) }
}

/// Returns the document that is part of a larger one, such as a configuration file.
///
/// # Errors
/// If it has a tag.
pub fn document_from_node(node: &YamlNode) -> Result<Value, DocumentError> {
    DocumentReader { path: String::new(), is_json: false }.read_document(node)
}

/// Returns a document with text for the numbers in headers, which JSON may have there.
pub fn with_texts(document: &Value) -> Cow<'_, Value> {
    // Values of JSON have no tags.
    let read = |document: &Value| {
        let node = YamlNode::from_json(document.clone());
        DocumentReader::for_json().read_document(&node).ok()
    };
    match has_typed_scalar(document) {
        true => read(document).map_or(Cow::Borrowed(document), Cow::Owned),
        false => Cow::Borrowed(document),
    }
}

fn has_typed_scalar(value: &Value) -> bool {
    match value {
        Value::Bool(_) | Value::Number(_) => true,
        Value::Null | Value::String(_) => false,
        Value::Array(items) => items.iter().any(has_typed_scalar),
        Value::Object(members) => members.values().any(has_typed_scalar),
    }
}

/// Returns the path to the first number in a text field whose spelling is not known: JSON readers have `1.1` for
/// `1.10` and for `11e-1`.
pub fn unclear_number(document: &Value) -> Option<String> {
    let texts = with_texts(document);
    first_difference(document, &texts, &mut String::new())
}

/// The path to the first number with a fraction or an exponent that became text.
fn first_difference(before: &Value, after: &Value, path: &mut String) -> Option<String> {
    let length = path.len();
    let mut inside = |step: String, before, after| {
        path.push_str(&step);
        let found = first_difference(before, after, path);
        path.truncate(length);
        found
    };
    match (before, after) {
        (Value::Number(number), Value::String(_)) if number.is_f64() => Some(path.clone()),
        (Value::Array(before), Value::Array(after)) => {
            let mut items = before.iter().zip(after).enumerate();
            items.find_map(|(index, (before, after))| inside(format!("[{index}]"), before, after))
        }
        (Value::Object(before), Value::Object(after)) => {
            let mut members = before.iter();
            members.find_map(|(name, before)| inside(format!(".{name}"), before, after.get(name)?))
        }
        _ => None,
    }
}

/// Turns nodes into values, and knows the path to the node at hand.
struct DocumentReader {
    path: String,
    /// True if the nodes come from JSON, whose authors write the types of scalars.
    is_json: bool,
}

impl DocumentReader {
    fn for_json() -> Self {
        Self { path: String::new(), is_json: true }
    }

    fn read_document(&mut self, node: &YamlNode) -> Result<Value, DocumentError> {
        self.read_members(node, |reader, name, node| match is_one_of(name, &PHASES) {
            true => reader.read_items(node, Self::read_rule),
            false => reader.read_typed(node),
        })
    }

    fn read_rule(&mut self, node: &YamlNode) -> Result<Value, DocumentError> {
        self.read_members(node, |reader, name, node| match is_field(name, "actions") {
            true => reader.read_items(node, Self::read_action),
            false => reader.read_texts(node),
        })
    }

    fn read_action(&mut self, node: &YamlNode) -> Result<Value, DocumentError> {
        self.read_members(node, |reader, name, node| match is_field(name, "config") {
            true => reader.read_config(node),
            false => reader.read_texts(node),
        })
    }

    fn read_config(&mut self, node: &YamlNode) -> Result<Value, DocumentError> {
        self.read_members(node, |reader, name, node| {
            if TYPED_FIELDS.iter().any(|field| is_field(name, field.name())) {
                reader.read_typed(node)
            } else if is_one_of(name, &FREE_FIELDS) {
                reader.read_untyped(node)
            } else if is_field(name, HEADERS) {
                reader.read_headers(node)
            } else {
                reader.read_texts(node)
            }
        })
    }

    /// A number or a truth value, which may be written as in YAML 1.1.
    fn read_typed(&mut self, node: &YamlNode) -> Result<Value, DocumentError> {
        self.read_nested(node, Self::read_typed, |node| {
            let word = node.written.as_deref().and_then(old_boolean);
            word.map_or_else(|| plain_value(&node.value), Value::Bool)
        })
    }

    /// A value of any type. What JSON cannot write as a number or cannot keep is text.
    fn read_untyped(&mut self, node: &YamlNode) -> Result<Value, DocumentError> {
        self.read_nested(node, Self::read_untyped, |node| {
            match (&node.value, node.written.as_deref()) {
                (YamlValue::Number(number), Some(written)) if !is_number(written, number) => {
                    Value::from(written)
                }
                (value, _) => plain_value(value),
            }
        })
    }

    /// Text, at any depth; no value stays none. In JSON, a number is not text, and its type stays.
    fn read_texts(&mut self, node: &YamlNode) -> Result<Value, DocumentError> {
        let is_json = self.is_json;
        self.read_nested(node, Self::read_texts, |node| match node.written.as_deref() {
            Some(written) if !is_json => Value::from(written),
            _ => plain_value(&node.value),
        })
    }

    /// The values of headers: text, and numbers of JSON as they are written.
    fn read_headers(&mut self, node: &YamlNode) -> Result<Value, DocumentError> {
        let is_json = self.is_json;
        self.read_nested(node, Self::read_headers, |node| {
            match (&node.value, node.written.as_deref()) {
                (YamlValue::Number(_), Some(written)) => Value::from(written),
                (YamlValue::Number(number), None) => Value::from(number.to_string()),
                (_, Some(written)) if !is_json => Value::from(written),
                (value, _) => plain_value(value),
            }
        })
    }

    /// Reads a scalar with `scalar`, and the items and members of other nodes with `inner`.
    fn read_nested(
        &mut self,
        node: &YamlNode,
        inner: fn(&mut Self, &YamlNode) -> Result<Value, DocumentError>,
        scalar: impl FnOnce(&YamlNode) -> Value,
    ) -> Result<Value, DocumentError> {
        match node.value {
            YamlValue::List(_) => self.read_items(node, inner),
            YamlValue::Map(_) => self.read_members(node, |reader, _, node| inner(reader, node)),
            _ => self.reject_tag(node).map(|()| scalar(node)),
        }
    }

    /// Reads the members of a map; a node that is not a map is read as text.
    fn read_members(
        &mut self,
        node: &YamlNode,
        mut read: impl FnMut(&mut Self, &str, &YamlNode) -> Result<Value, DocumentError>,
    ) -> Result<Value, DocumentError> {
        self.reject_tag(node)?;
        let YamlValue::Map(entries) = &node.value else { return self.read_texts(node) };
        let mut members = Map::new();
        for (key, node) in entries {
            let dot = if self.path.is_empty() { "" } else { "." };
            let value =
                self.with_step(&format!("{dot}{}", key.name), |it| read(it, &key.name, node));
            members.insert(key.name.clone(), value?);
        }
        Ok(Value::Object(members))
    }

    /// Reads the items of a list; a node that is not a list is read as text.
    fn read_items(
        &mut self,
        node: &YamlNode,
        read: fn(&mut Self, &YamlNode) -> Result<Value, DocumentError>,
    ) -> Result<Value, DocumentError> {
        self.reject_tag(node)?;
        let YamlValue::List(items) = &node.value else { return self.read_texts(node) };
        let items = items.iter().enumerate();
        let read = |(index, item)| self.with_step(&format!("[{index}]"), |it| read(it, item));
        items.map(read).collect::<Result<_, _>>().map(Value::Array)
    }

    fn with_step<T>(&mut self, step: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        self.path.push_str(step);
        let value = read(self);
        self.path.truncate(length);
        value
    }

    fn reject_tag(&self, node: &YamlNode) -> Result<(), DocumentError> {
        if !node.has_tag {
            return Ok(());
        }
        let problem =
            "has a YAML tag, which policies may not have; put text that begins with ! into quotes";
        Err(DocumentError {
            path: self.path.clone(),
            problem: problem.to_owned(),
            place: Some(node.place),
        })
    }
}

fn is_one_of(spelled: &str, names: &[&str]) -> bool {
    names.iter().any(|name| is_field(spelled, name))
}

/// Returns true if JSON has this number, and as many digits of it as are written.
fn is_number(written: &str, number: &Number) -> bool {
    match written.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        true => number.to_string() == written,
        false => serde_json::from_str::<Number>(written).is_ok(),
    }
}

fn plain_value(value: &YamlValue) -> Value {
    match value {
        YamlValue::Text(text) => Value::from(text.as_str()),
        YamlValue::Number(number) => Value::Number(number.clone()),
        YamlValue::Bool(truth) => Value::Bool(*truth),
        _ => Value::Null,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The value of a header, of a field for numbers and of a variable with this spelling.
    fn read_as(written: &str) -> [Value; 3] {
        let document = format!(
            "on_http_request: [{{actions: [{{type: t, config: {{headers: {{x: {written}}}, \
             status_code: {written}, vars: [{{v: {written}}}]}}}}]}}]"
        );
        let document = read_document(&document).unwrap();
        let config = &document["on_http_request"][0]["actions"][0]["config"];
        [&config["headers"]["x"], &config["status_code"], &config["vars"][0]["v"]].map(Clone::clone)
    }

    #[test]
    fn a_text_field_keeps_the_spelling_and_a_typed_field_the_type() {
        for (written, typed, free) in [
            ("abc", json!("abc"), json!("abc")),
            ("123", json!(123), json!(123)),
            ("-5", json!(-5), json!(-5)),
            ("0123", json!(123.0), json!("0123")),
            ("1e3", json!(1000.0), json!(1000.0)),
            ("1.10", json!(1.1), json!(1.1)),
            ("0x1F", json!(31), json!("0x1F")),
            ("1_000", json!(1000), json!("1_000")),
            ("18446744073709551616", json!(18446744073709551616.0), json!("18446744073709551616")),
            ("true", json!(true), json!(true)),
            ("False", json!(false), json!(false)),
            ("yes", json!(true), json!("yes")),
            ("Off", json!(false), json!("Off")),
            ("2024-01-01", json!("2024-01-01"), json!("2024-01-01")),
            (".inf", json!(".inf"), json!(".inf")),
            ("'0123'", json!("0123"), json!("0123")),
            ("\"yes\"", json!("yes"), json!("yes")),
        ] {
            let text = written.trim_matches(['\'', '"']);

            assert_eq!(read_as(written), [json!(text), typed, free], "{written}");
        }
        assert_eq!(read_as("null"), [Value::Null, Value::Null, Value::Null]);
        assert_eq!(read_as("~"), [Value::Null, Value::Null, Value::Null]);
    }

    #[test]
    fn json_keeps_the_spelling_as_well() {
        let text = r#" {"OnHttpRequest": [{"Actions": [{"Config": {"headers": {"a": 1.10, "b": true},
            "StatusCode": 404, "metadata": {"n": 1.10}}}], "expressions": [true, 1e3]}]}"#;

        let expected = json!({"OnHttpRequest": [{"Actions": [{"Config": {
            "headers": {"a": "1.10", "b": true}, "StatusCode": 404, "metadata": {"n": 1.1}}}],
            "expressions": [true, 1000.0]}]});
        assert_eq!(read_document(text).unwrap(), expected);
        assert_eq!(read_document(&format!("\u{feff}{text}")).unwrap(), expected);
    }

    #[test]
    fn json_is_never_read_as_yaml() {
        for text in [r#"{"enabled": 1e400}"#, r#"{"a": {"b": 1, "b": 2}}"#, r#"{"a": "\ud83d"}"#] {
            let error = read_document(text).unwrap_err();
            assert!(error.problem.starts_with("invalid JSON: "), "{text}: {error}");
        }
        assert_eq!(read_document("{enabled: 1e400}").unwrap(), json!({"enabled": "1e400"}));
    }

    #[test]
    fn anchors_aliases_and_merges_keep_the_spelling() {
        let text = "on_http_request:\n- actions:\n  - &a\n    type: add-headers\n    config: &c {headers: \
                    {x: &v 007}}\n  - <<: *a\n  - config: {<<: *c, body: *v}\n";

        let document = read_document(text).unwrap();

        let actions = &document["on_http_request"][0]["actions"];
        assert_eq!(actions[0], actions[1]);
        assert_eq!(actions[2]["config"], json!({"headers": {"x": "007"}, "body": "007"}));
    }

    #[test]
    fn tags_are_refused_with_the_path_and_a_hint() {
        for (value, path) in [
            ("[! hasReqHeader('x')]", "on_http_request[0].expressions[0]"),
            ("[!!str 'true']", "on_http_request[0].expressions[0]"),
            ("[!custom x]", "on_http_request[0].expressions[0]"),
            ("[! \"true\"]", "on_http_request[0].expressions[0]"),
            ("[!!binary dHJ1ZQ==]", "on_http_request[0].expressions[0]"),
            ("! [x]", "on_http_request[0].expressions"),
            ("!!seq [x]", "on_http_request[0].expressions"),
            ("!!null null", "on_http_request[0].expressions"),
        ] {
            let error =
                read_document(&format!("on_http_request: [{{expressions: {value}}}]")).unwrap_err();

            assert_eq!(error.path, path, "{value}: {error}");
            assert!(error.problem.contains("quotes"), "{error}");
            assert!(error.place.is_some(), "{error}");
        }
        for text in [
            "on_http_request: [{!!str expressions: [x]}]",
            "on_http_request:\n- ! expressions: [x]\n",
            "on_http_request: [{<<: !x {expressions: [x]}}]",
            "on_http_request:\n- <<: !!map\n    expressions: [x]\n",
            "on_http_request: [{<<: [!x {expressions: [x]}]}]",
            "on_http_request: [{!!merge <<: {expressions: [x]}}]",
            "on_http_request: [{<<: {expressions: [! x]}, expressions: [x]}]",
            "on_http_request: [&a {expressions: [x]}, {<<: ! {<<: *a}}]",
        ] {
            let error = read_document(text).unwrap_err();

            assert!(error.path.starts_with("on_http_request["), "{text}: {error}");
            assert!(error.problem.contains("quotes"), "{text}: {error}");
        }
        let twice = "a: &a {x: 1}\nb: &b {y: 1}\nc: {<<: *a, <<: *b, z: '!'}";
        assert_eq!(read_document(twice).unwrap()["c"], json!({"x": 1, "y": 1, "z": "!"}));
        let twice_with_tag = twice.replace("<<: *b", "<<: !t {y: 1}");
        assert!(read_document(&twice_with_tag).unwrap_err().problem.contains("quotes"));
        let valid = "on_http_request: [&a {expressions: ['! x']}, {<<: *a}]";
        let rule = json!({"expressions": ["! x"]});
        assert_eq!(read_document(valid).unwrap(), json!({"on_http_request": [rule, rule]}));
        assert_eq!(read_document("!policy {on_http_request: []}").unwrap_err().path, "");
        assert_eq!(read_document("enabled: !!bool true").unwrap_err().path, "enabled");
    }

    #[test]
    fn a_key_that_is_there_twice_and_a_second_document_are_refused() {
        for text in [
            r#"{"inbound": [], "inbound": []}"#,
            r#"{"inbound": [], "\u0069nbound": []}"#,
            r#"{"inbound": [{"actions": [{"type": "deny", "type": "log"}]}]}"#,
            "inbound: []\ninbound: []\n",
            "inbound: []\n---\noutbound: []\n",
            "inbound: []\n---\n",
            "inbound: []\n...\n---\noutbound: []\n",
            "--- {inbound: []}\n--- {inbound: []}\n",
            "{\"inbound\": []}\n---\n{\"outbound\": []}\n",
            "{\"inbound\": []} {\"outbound\": []}",
        ] {
            assert!(read_document(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_whose_spelling_is_lost_is_found() {
        let with = |value: Value| json!({"inbound": [{"actions": [{"config": {"headers": {"x": value}}}]}]});

        let path = unclear_number(&with(json!(1.5)));

        assert_eq!(path.as_deref(), Some(".inbound[0].actions[0].config.headers.x"));
        for value in [json!(15), json!("1.5"), json!(true), Value::Null] {
            assert_eq!(unclear_number(&with(value)), None);
        }
        let typed = json!({"inbound": [{"actions": [{"config": {"error_threshold": 0.5}}]}]});
        assert_eq!(unclear_number(&typed), None);
    }
}
