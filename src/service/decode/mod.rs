//! Turns a request into the arguments of an operation: the counterpart of
//! [`encode_arguments`](crate::api::encode_arguments).

mod fields;
mod query;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::Refusal;
use super::code;
use crate::api::{self, Info, Verb};

pub(super) use query::query;

/// The arguments of an operation, from the path, the query string and the body of a request.
///
/// # Errors
/// With the first thing that is wrong, in the order of the checks (remote API sheet, section 1).
pub fn decode(
    info: &Info,
    path: &str,
    query_string: Option<&str>,
    body: Option<&[u8]>,
) -> Result<Map<String, Value>, Refusal> {
    let queried = query(info, query_string)?;
    arguments(info, path, queried, body)
}

/// Joins what stands in the path and the body to what stood in the query string.
pub(super) fn arguments(
    info: &Info,
    path: &str,
    mut arguments: Map<String, Value>,
    body: Option<&[u8]>,
) -> Result<Map<String, Value>, Refusal> {
    let body = match body.unwrap_or_default() {
        _ if !info.method.has_body() => Map::new(),
        b"" if !info.takes_body() => Map::new(),
        body => object(body)?,
    };
    for (name, value) in path_arguments(info, path) {
        let Some(value) = value else { return Err(Refusal::not_found()) };
        arguments.insert(name.to_owned(), value.into());
    }
    for (name, value) in fields::check(info, body)? {
        match arguments.get(&name) {
            // The body repeats what the path says.
            Some(known) if *known == value => {}
            Some(_) => {
                let message = format!("{name}: differs from the identifier in the path");
                return Err(Refusal::new(code::id_differs(info.resource), message));
            }
            None => {
                arguments.insert(name, value);
            }
        }
    }
    fields::require(info, &arguments)?;
    Ok(arguments)
}

/// The parameters in a path that fits the template; `None` for one that cannot be decoded.
fn path_arguments<'a>(
    info: &'a Info,
    path: &'a str,
) -> impl Iterator<Item = (&'static str, Option<String>)> + 'a {
    info.path.split('/').zip(path.split('/')).filter_map(|(template, segment)| {
        let name = template.strip_prefix('{')?.strip_suffix('}')?;
        let text = percent_decode_str(segment).decode_utf8().ok().map(String::from);
        Some((name, text))
    })
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    api::json::object(body).map_err(|error| {
        let message = format!("the body is not a JSON object: {error}");
        Refusal::new(code::NOT_AN_OBJECT, message)
    })
}

/// True where a body may repeat a parameter of the path.
fn may_repeat(info: &Info, name: &str) -> bool {
    match name {
        // Rule 3 of the endpoints in the specification.
        "id" => info.method == Verb::PATCH,
        "edge_id" => info.resource == "edges.https.routes",
        _ => false,
    }
}
