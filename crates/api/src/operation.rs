//! What an operation is, and how one becomes a request.

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::wire_name;
use super::{Field, Kind, Shape};

/// One call of an API: its parameters are the fields of `Self`.
pub trait Operation: Serialize + Sized + Send + 'static {
    /// Where the operation lives and what it is called.
    const INFO: Info;

    /// Takes the parameters from the arguments of a call.
    ///
    /// # Errors
    /// If an argument does not have the type of its parameter.
    fn from_arguments(arguments: &mut CallArguments) -> serde_json::Result<Self>;

    /// What a successful call returns.
    type Output: Serialize + Send + 'static;
}

/// The arguments of a call, by the names of their parameters.
#[derive(Debug, Default)]
pub struct CallArguments(pub Map<String, Value>);

impl CallArguments {
    /// Takes the argument of the parameter with this Rust name; null if it is absent.
    ///
    /// # Errors
    /// If the argument does not have the type of the parameter.
    pub fn take_parameter<T: DeserializeOwned>(
        &mut self,
        name: &'static str,
    ) -> serde_json::Result<T> {
        serde_json::from_value(self.0.remove(wire_name(name)).unwrap_or_default())
    }
}

/// An operation as data: everything but the Rust types.
#[derive(Debug, PartialEq)]
pub struct Info {
    /// The resource, a dotted path such as `edges.https.routes.policy`.
    pub resource: &'static str,
    /// The operation's name within its resource, such as `get`.
    pub name: &'static str,
    /// What it does; the first line is a sentence of its own.
    pub doc: &'static str,
    /// The HTTP method.
    pub method: Verb,
    /// The path template; `{id}` stands for the parameter `id`.
    pub path: &'static str,
    /// The parameters, required ones first.
    pub parameters: &'static [Field],
    /// What a successful answer holds.
    pub output: Output,
    /// True if the result has a secret that the service made and shows only there.
    pub issues_secret: bool,
}

/// A resource as data.
#[derive(Debug, PartialEq)]
pub struct Resource {
    /// A dotted path that mirrors the address, such as `backends.failover`.
    pub name: &'static str,
    /// The source file that declares it.
    pub file: &'static str,
    /// What the resource is.
    pub doc: &'static str,
    /// Its operations.
    pub operations: &'static [&'static Info],
}

/// The HTTP methods that operations use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, clippy::upper_case_acronyms)]
pub enum Verb {
    GET,
    POST,
    PUT,
    PATCH,
    DELETE,
}

/// What a successful answer holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Output {
    /// No body.
    Nothing,
    /// One object.
    One(&'static Shape),
    /// One page of a list.
    Page {
        /// The key of the list's items.
        field: &'static str,
        /// What each item is.
        item: &'static Shape,
    },
}

/// Where a parameter travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterLocation {
    /// In the path.
    Path,
    /// In the query string.
    Query,
    /// In the JSON body.
    Body,
}

/// One page of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page<T> {
    /// The key of the items on the wire.
    pub field: String,
    /// The items, newest first.
    pub items: Vec<T>,
    /// The address of the list.
    pub uri: String,
    /// The address of the next page; none on the last.
    pub next_page_uri: Option<String>,
    /// Whether the list has no pages: then its response names no next one.
    pub is_whole: bool,
}

/// A request that performs an operation, free of any server's address.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The HTTP method.
    pub method: Verb,
    /// Path and query, percent-encoded.
    pub target: String,
    /// The JSON body of POST, PUT and PATCH.
    pub body: Option<Bytes>,
}

/// Why no request could be made of an operation's arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{parameter}: {problem}")]
pub struct Malformed {
    /// The parameter at fault, with the place inside it, such as `inbound[0].name`.
    pub parameter: String,
    /// What is wrong, with the limit where there is one.
    pub problem: String,
}

impl Malformed {
    /// A problem with one parameter.
    pub fn new(parameter: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { parameter: parameter.into(), problem: problem.into() }
    }
}

impl Verb {
    /// The method's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GET => "GET",
            Self::POST => "POST",
            Self::PUT => "PUT",
            Self::PATCH => "PATCH",
            Self::DELETE => "DELETE",
        }
    }

    /// True where parameters travel in a JSON body.
    pub const fn has_body(self) -> bool {
        matches!(self, Self::POST | Self::PUT | Self::PATCH)
    }
}

impl Info {
    /// Where a parameter travels: in the path when the template names it, else in the query of a
    /// `GET` or `DELETE`, else in the body.
    pub fn parameter_location(&self, parameter: &str) -> ParameterLocation {
        if self.path_parameters().any(|name| name == parameter) {
            ParameterLocation::Path
        } else if self.method.has_body() {
            ParameterLocation::Body
        } else {
            ParameterLocation::Query
        }
    }

    /// Whether a parameter travels in the body.
    pub fn takes_body(&self) -> bool {
        self.parameters
            .iter()
            .any(|parameter| self.parameter_location(parameter.name) == ParameterLocation::Body)
    }

    /// The key of the items in the response of a list.
    pub fn list_field(&self) -> &'static str {
        match self.output {
            Output::Page { field, .. } => field,
            _ => "items",
        }
    }

    /// The names in the path template, from left to right.
    pub fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
    }

    /// Returns the parameters that identify the resource, in the order of a command line: those of the
    /// path, or a required `id` that travels in the body.
    pub fn identifiers(&self) -> impl Iterator<Item = &'static str> {
        let is_body_id = |parameter: &&Field| {
            parameter.required
                && parameter.name == "id"
                && self.parameter_location(parameter.name) == ParameterLocation::Body
        };
        let of_body = self.parameters.iter().filter(is_body_id).map(|parameter| parameter.name);
        self.path_parameters().chain(of_body)
    }

    /// The status of success: 201 for a create, 204 for a response without a body, else 200.
    pub const fn success_status(&self) -> u16 {
        match (self.output, self.method) {
            (Output::Nothing, _) => 204,
            (_, Verb::POST) => 201,
            _ => 200,
        }
    }

    /// What a parameter means, taken from the result's field of that name where it says nothing of
    /// its own.
    pub fn parameter_doc(&self, parameter: &Field) -> &'static str {
        let inherited = || match self.output {
            Output::One(shape) => shape.fields.iter().find(|field| field.name == parameter.name),
            _ => None,
        };
        if !parameter.doc.is_empty() {
            return parameter.doc;
        }
        match (parameter.name, inherited()) {
            (_, Some(field)) => field.doc,
            ("id", None) => " The identifier of the resource.\n",
            ("edge_id", None) => " The identifier of the edge.\n",
            ("subscription_id", None) => " The identifier of the event subscription.\n",
            ("type", None) => " The type of events, such as `ip_policy_created.v0`.\n",
            ("before_id", None) => " Start after this identifier.\n",
            ("limit", None) => " How many items a page may hold, 1 to 100.\n",
            _ => "",
        }
    }
}

/// Everything in a path segment but the unreserved characters of RFC 3986.
const PATH_SEGMENT_CHARS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Turns an operation into the request that performs it.
pub fn encode_operation<O: Operation>(operation: &O) -> Result<Call, Malformed> {
    match serde_json::to_value(operation) {
        Ok(Value::Object(arguments)) => encode_arguments(&O::INFO, arguments),
        Ok(_) => Err(Malformed::new(O::INFO.name, "is not an object")),
        Err(error) => Err(Malformed::new(O::INFO.name, error.to_string())),
    }
}

/// Turns the arguments of an operation into the request that performs it.
///
/// Arguments named in the path template go into the path; the others go into the query of a `GET`
/// or `DELETE`, and into the JSON body of any other method. A `PATCH` repeats its `id` in the body
/// (specification, rule 3 of the endpoints). Absent and null arguments are left out.
pub fn encode_arguments(info: &Info, arguments: Map<String, Value>) -> Result<Call, Malformed> {
    check_arguments(info, &arguments)?;
    let mut target = encode_path(info, &arguments)?;
    if !info.method.has_body() {
        let query = arguments
            .iter()
            .filter(|(name, _)| info.parameter_location(name) == ParameterLocation::Query);
        append_query(query, &mut target);
        return Ok(Call { method: info.method, target, body: None });
    }
    let body: Map<String, Value> = arguments
        .into_iter()
        .filter(|(name, value)| {
            let in_body = match info.parameter_location(name) {
                ParameterLocation::Body => true,
                _ => info.method == Verb::PATCH && name == "id",
            };
            in_body && !value.is_null()
        })
        .collect();
    Ok(Call { method: info.method, target, body: Some(Value::Object(body).to_string().into()) })
}

/// Holds arguments against the limits that the specification gives, and asks for required ones.
fn check_arguments(info: &Info, arguments: &Map<String, Value>) -> Result<(), Malformed> {
    for parameter in info.parameters {
        match arguments.get(parameter.name) {
            None | Some(Value::Null) if parameter.required => {
                return Err(Malformed::new(parameter.name, "is required"));
            }
            Some(Value::String(text)) => {
                if let Kind::Text { max: Some(max) } = parameter.kind
                    && text.len() > max
                {
                    let problem = format!("is {} bytes long, the limit is {max}", text.len());
                    return Err(Malformed::new(parameter.name, problem));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn encode_path(info: &Info, arguments: &Map<String, Value>) -> Result<String, Malformed> {
    let mut target = String::with_capacity(info.path.len() + 32);
    for segment in info.path.split('/').skip(1) {
        target.push('/');
        match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) => push_segment(name, arguments.get(name), &mut target)?,
            None => target.push_str(segment),
        }
    }
    Ok(target)
}

fn push_segment(name: &str, value: Option<&Value>, target: &mut String) -> Result<(), Malformed> {
    let text = value.and_then(Value::as_str).unwrap_or_default();
    match text {
        // A tunnel may have no name; everything else has an identifier.
        "" if name != "name" => return Err(Malformed::new(name, "must not be empty")),
        // Percent-encoding does not help these: receivers decode before they resolve dots.
        "." | ".." => return Err(Malformed::new(name, "must not be a relative path segment")),
        _ => target.extend(utf8_percent_encode(text, PATH_SEGMENT_CHARS)),
    }
    Ok(())
}

/// A text as a name or a value of a query holds it.
pub fn encode_component(text: &str) -> String {
    utf8_percent_encode(text, PATH_SEGMENT_CHARS).collect()
}

/// Appends a query of these names and values to a path; null values are left out.
pub fn append_query<'a>(query: impl Iterator<Item = (&'a String, &'a Value)>, target: &mut String) {
    let mut separator = '?';
    for (name, value) in query.filter(|(_, value)| !value.is_null()) {
        target.push(separator);
        separator = '&';
        target.extend(utf8_percent_encode(name, PATH_SEGMENT_CHARS));
        target.push('=');
        match value {
            Value::String(text) => target.extend(utf8_percent_encode(text, PATH_SEGMENT_CHARS)),
            other => target.extend(utf8_percent_encode(&other.to_string(), PATH_SEGMENT_CHARS)),
        }
    }
}

impl<T> Page<T> {
    /// The same page with other items.
    pub fn with_items<U>(self, items: Vec<U>) -> Page<U> {
        let Self { field, uri, next_page_uri, is_whole, .. } = self;
        Page { field, items, uri, next_page_uri, is_whole }
    }

    /// The response of a list that has no pages, of an API that begins at `base`.
    pub fn whole(info: &Info, base: &str, items: Vec<T>) -> Self {
        let (field, uri) = (info.list_field().to_owned(), format!("{base}{}", info.path));
        Self { field, items, uri, next_page_uri: None, is_whole: true }
    }
}

impl<T: Serialize> Serialize for Page<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(&self.field, &self.items)?;
        map.serialize_entry("uri", &self.uri)?;
        if !self.is_whole {
            map.serialize_entry("next_page_uri", &self.next_page_uri)?;
        }
        map.end()
    }
}

/// Any list answer has one field that is an array: the items.
impl<'de, T: DeserializeOwned> Deserialize<'de> for Page<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut map = Map::deserialize(deserializer)?;
        let mut text = |name: &str| match map.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (uri, next_page_uri) = (text("uri").unwrap_or_default(), text("next_page_uri"));
        // Some servers write an empty text at the end of a list.
        let next_page_uri = next_page_uri.filter(|address| !address.is_empty());
        let items = map.into_iter().find(|(_, value)| value.is_array());
        let (field, items) =
            items.ok_or_else(|| D::Error::custom("a list response without a list"))?;
        let items = serde_json::from_value(items).map_err(D::Error::custom)?;
        Ok(Self { field, items, uri, next_page_uri, is_whole: false })
    }
}

/// How long the name of a type is as that of an operation.
pub(super) const fn snake_case_length(name: &str) -> usize {
    let (mut length, mut at) = (0, 0);
    while at < name.len() {
        length += if at > 0 && name.as_bytes()[at].is_ascii_uppercase() { 2 } else { 1 };
        at += 1;
    }
    length
}

/// `DeleteCertificate` as `delete_certificate`, at compile time.
pub(super) const fn snake_case<const N: usize>(name: &str) -> [u8; N] {
    let mut snake = [b'_'; N];
    let (mut at, mut to) = (0, 0);
    while at < name.len() {
        let letter = name.as_bytes()[at];
        if at > 0 && letter.is_ascii_uppercase() {
            to += 1;
        }
        snake[to] = letter.to_ascii_lowercase();
        (at, to) = (at + 1, to + 1);
    }
    snake
}

/// The text of bytes that are known to be ASCII.
pub(super) const fn text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => "",
    }
}
