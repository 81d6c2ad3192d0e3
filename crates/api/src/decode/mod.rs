//! Turns a request into the arguments of an operation: the counterpart of
//! [`encode_arguments`](super::encode_arguments).
//!
//! It reads on after what is wrong, and says everything that is. Whoever serves an API decides which of
//! that is refused, and how.

mod fields;
mod query;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::{Field, Info, Kind, ParameterLocation, Verb, json};

pub use query::decode_query;

/// How many errors are told at most.
const MAX_ARGUMENT_ERRORS: usize = 50;

/// The resources whose definitions published wrappers write.
const TUNNEL_RESOURCES: [&str; 2] = ["tunnels", "endpoints"];

/// What was read, and all that is wrong with it.
#[derive(Debug, Default)]
pub struct DecodedArguments {
    /// What fits the table.
    pub arguments: Map<String, Value>,
    /// What does not, in the order of the checks (remote API sheet, section 1).
    pub errors: ArgumentErrors,
}

/// The first errors, as many as a reader may want: a body can hold a hundred thousand.
#[derive(Debug, Default)]
pub struct ArgumentErrors(Vec<ArgumentError>);

impl ArgumentErrors {
    fn push(&mut self, error: ArgumentError) {
        if self.0.len() < MAX_ARGUMENT_ERRORS {
            self.0.push(error);
        }
    }

    /// The errors in the order of the checks.
    pub fn iter(&self) -> impl Iterator<Item = &ArgumentError> {
        self.0.iter()
    }
}

/// Something that is wrong with the arguments of an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ArgumentError {
    #[error("the query string is not percent-encoded UTF-8")]
    UndecodableQuery,
    #[error("unknown query parameter {name:?}; {known}")]
    UnknownQuery { name: String, known: String },
    #[error("query parameter {0:?} is given twice")]
    RepeatedQuery(String),
    #[error("{name}: {text:?} is not a number")]
    LimitNotANumber { name: String, text: String },
    #[error("{name}: {text} is not from 1 to {max}")]
    LimitOutOfRange { name: String, text: String, max: u64 },
    #[error("the body is not a JSON object: {0}")]
    NotAnObject(String),
    #[error("the path is not percent-encoded UTF-8")]
    UndecodablePath,
    #[error("{place}: is not a known field; {known}")]
    UnknownField { place: String, known: String },
    #[error("{place}: is {length} bytes long, the limit is {limit}")]
    TooLong { place: String, length: usize, limit: usize },
    #[error("{place}: is {actual}, not {expected}")]
    WrongType { place: String, actual: &'static str, expected: &'static str },
    #[error("nothing to change; {known}")]
    Unchanged { known: String },
    #[error("{0}: differs from the identifier in the path")]
    PathDiffers(String),
    #[error("{0}: is required")]
    Missing(&'static str),
}

/// Joins what stands in the path and the body to what stood in the query string.
pub fn decode_arguments(
    info: &Info,
    path: &str,
    queried: DecodedArguments,
    body: Option<&[u8]>,
) -> DecodedArguments {
    let mut decoded = queried;
    let body = match body.unwrap_or_default() {
        _ if !info.method.has_body() => Map::new(),
        b"" if !info.takes_body() => Map::new(),
        body => json::parse_object(body).unwrap_or_else(|error| {
            decoded.errors.push(ArgumentError::NotAnObject(error.to_string()));
            Map::new()
        }),
    };
    decoded.decode_path(info, path);
    decoded.decode_body(info, body);
    decoded.require_parameters(info.parameters);
    decoded
}

/// The values of known fields, as a request or a file of settings has them.
pub fn decode_fields(known: &'static [Field], object: Map<String, Value>) -> DecodedArguments {
    let mut decoded = DecodedArguments::default();
    let known: Vec<_> = known.iter().collect();
    decoded.arguments = fields::decode_record(&known, object, "", &mut decoded.errors);
    decoded
}

/// The same for the definition of a tunnel, whose booleans may be texts.
pub fn decode_definition(
    known: &'static [Field],
    mut object: Map<String, Value>,
) -> DecodedArguments {
    read_boolean_texts(&known.iter().collect::<Vec<_>>(), &mut object);
    decode_fields(known, object)
}

impl DecodedArguments {
    fn decode_path(&mut self, info: &Info, path: &str) {
        for (template, segment) in info.path.split('/').zip(path.split('/')) {
            let name = template.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
            let Some(name) = name else { continue };
            match percent_decode_str(segment).decode_utf8() {
                Ok(text) => drop(self.arguments.insert(name.to_owned(), text.into())),
                Err(_) => self.errors.push(ArgumentError::UndecodablePath),
            }
        }
    }

    fn decode_body(&mut self, info: &Info, body: Map<String, Value>) {
        let known = |parameter: &&Field| {
            info.parameter_location(parameter.name) == ParameterLocation::Body
                || may_repeat(info, parameter.name)
        };
        let known: Vec<&'static Field> = info.parameters.iter().filter(known).collect();
        let mut body = body;
        if TUNNEL_RESOURCES.contains(&info.resource) {
            read_boolean_texts(&known, &mut body);
        }
        let body = fields::decode_record(&known, body, "", &mut self.errors);
        let changes =
            body.keys().any(|name| info.parameter_location(name) == ParameterLocation::Body);
        if info.method == Verb::PATCH && !changes {
            self.errors.push(ArgumentError::Unchanged { known: known_names(&known) });
        }
        for (name, value) in body {
            match self.arguments.get(&name) {
                // The body repeats what the path says.
                Some(known) if *known == value => {}
                Some(_) => self.errors.push(ArgumentError::PathDiffers(name)),
                None => drop(self.arguments.insert(name, value)),
            }
        }
    }

    /// Asks for the parameters that must be there.
    pub fn require_parameters(&mut self, parameters: &'static [Field]) {
        for Field { name, .. } in parameters.iter().filter(|parameter| parameter.required) {
            if !self.arguments.contains_key(*name) {
                self.errors.push(ArgumentError::Missing(name));
            }
        }
    }
}

/// Replaces the texts `true` and `false` in boolean fields, as wrappers in Java, shells and YAML templates write them.
fn read_boolean_texts(known: &[&'static Field], object: &mut Map<String, Value>) {
    for (name, value) in object {
        let Some(field) = known.iter().find(|field| field.name == name) else { continue };
        match (&field.kind, &mut *value) {
            (Kind::Bool, Value::String(text)) => match text.to_ascii_lowercase().as_str() {
                "true" => *value = true.into(),
                "false" => *value = false.into(),
                _ => {}
            },
            (Kind::Record(shape), Value::Object(members)) => {
                read_boolean_texts(&shape.fields.iter().collect::<Vec<_>>(), members);
            }
            _ => {}
        }
    }
}

/// True where a body may repeat a parameter of the path.
fn may_repeat(info: &Info, name: &str) -> bool {
    match name {
        // Rule 3 of the endpoints in the specification.
        "id" => info.method == Verb::PATCH,
        "edge_id" => info.resource == "edges.https.routes",
        // A whole endpoint as it is listed has its name.
        "name" => info.method == Verb::PUT && info.resource == "endpoints",
        _ => false,
    }
}

/// The names of what is known.
fn known_names(known: &[&Field]) -> String {
    match known {
        [] => "there are none here".to_owned(),
        known => {
            let names: Vec<_> = known.iter().map(|field| field.name).collect();
            format!("known: {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Operation;
    use crate::local::{requests, tunnels};

    fn messages(decoded: &DecodedArguments) -> Vec<String> {
        decoded.errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_that_is_wrong_is_told_and_the_rest_is_read() {
        let info = &requests::List::INFO;
        let queried =
            decode_query(info, Some("limit=0&tunnel_name=a&tunnel_name=b+%63&x=1&y=%zz"), 100);

        let decoded = decode_arguments(info, "/requests/http", queried, None);

        assert_eq!(Value::Object(decoded.arguments.clone()), json!({"tunnel_name": "b c"}));
        assert_eq!(
            messages(&decoded),
            [
                "limit: 0 is not from 1 to 100",
                "query parameter \"tunnel_name\" is given twice",
                "unknown query parameter \"x\"; known: limit, tunnel_name",
                "the query string is not percent-encoded UTF-8",
            ]
        );
    }

    #[test]
    fn a_body_is_held_against_its_table() {
        let info = &tunnels::Start::INFO;
        let body = br#"{"name": null, "inspect": 1, "verify_webhook": {"secret": 2, "x": 3}}"#;

        let decoded = decode_arguments(info, "/tunnels", DecodedArguments::default(), Some(body));

        assert_eq!(Value::Object(decoded.arguments.clone()), json!({"verify_webhook": {}}));
        assert_eq!(
            messages(&decoded),
            [
                "inspect: is a number, not true or false",
                "verify_webhook.secret: is a number, not a string",
                "verify_webhook.x: is not a known field; known: provider, secret",
                "addr: is required",
            ]
        );
    }

    #[test]
    fn no_body_makes_many_errors() {
        let body = (0..1000).map(|number| (number.to_string(), number.into())).collect();

        let decoded = decode_fields(tunnels::Start::INFO.parameters, body);

        assert_eq!(decoded.errors.iter().count(), MAX_ARGUMENT_ERRORS);
    }
}
