//! The variables of `format: nginx`: `$args`, `$uri` and so on.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::super::authority::host_and_port;
use super::super::exchange::Request;
use super::super::facts::{path_and_query, query_string, request_authority};

/// Replaces variables by their values, each of which `escape` makes fit for its place.
///
/// A dollar sign that introduces no variable stays.
pub(super) fn substitute_variables(
    text: &str,
    request: &Request,
    escape: fn(&str) -> String,
) -> String {
    let mut substituted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        substituted.push_str(before);
        let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let end = after.find(|it| !is_part(it)).unwrap_or(after.len());
        match variable_value(&after[..end], request) {
            Some(value) => substituted.push_str(&escape(&value)),
            None => {
                substituted.push('$');
                substituted.push_str(&after[..end]);
            }
        }
        rest = &after[end..];
    }
    substituted.push_str(rest);
    substituted
}

fn variable_value<'r>(name: &str, request: &'r Request) -> Option<Cow<'r, str>> {
    let query = query_string(request);
    let (user, address) =
        request_authority(request).rsplit_once('@').unwrap_or(("", request_authority(request)));
    let (host, port) = host_and_port(address, request.scheme);
    Some(match name {
        "args" | "query_string" => query.into(),
        "is_args" => if query.is_empty() { "" } else { "?" }.into(),
        "uri" => path_and_query(request).into(),
        "scheme" => request.scheme.into(),
        "host" => host.into(),
        "port" => port.to_string().into(),
        "authority" => request_authority(request).into(),
        "user" => user.split(':').next().unwrap_or_default().into(),
        "is_user" => if user.is_empty() { "" } else { "@" }.into(),
        _ => query_argument(query, name.strip_prefix("arg_")?),
    })
}

/// The first value of a parameter, with what was escaped in it.
fn query_argument<'q>(query: &'q str, parameter: &str) -> Cow<'q, str> {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let found = pairs.find(|(name, _)| name.eq_ignore_ascii_case(parameter));
    found.map_or(Cow::Borrowed(""), |(_, value)| percent_decode_str(value).decode_utf8_lossy())
}
