//! The URL of a request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::str::Split;

use cel::common::types::CelMap;
use http::header::HOST;
use percent_encoding::percent_decode_str;
use serde_json::{Value as Json, json};

use ginnel_http1::{request_query, request_target};

use super::super::authority::canonicalize_authority;
use super::super::exchange::Request;
use super::super::expression::value;
use super::super::path::{RawPath, RequestPath};

/// How many parameters of a query are read; the rest is ignored.
const PARAMETERS: usize = 1000;

/// The host of a request, with its port if it has one, as it was sent.
pub(in super::super) fn request_authority(request: &Request) -> &str {
    let named = request.head.headers.get(HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| request.head.uri.authority().map(|it| it.as_str())).unwrap_or_default()
}

/// The host of a request in its one form, if that is another one than was sent.
pub(super) fn canonical_authority(request: &Request) -> Option<String> {
    match canonicalize_authority(request_authority(request), request.scheme) {
        Cow::Borrowed(_) => None,
        Cow::Owned(authority) => Some(authority),
    }
}

/// The path of a request with its query, as it was sent.
pub(in super::super) fn path_and_query(request: &Request) -> &str {
    request_target(&request.head.uri, &request.head.extensions)
}

/// The whole URL of a request, as it was sent.
pub(in super::super) fn full_url(request: &Request) -> String {
    format!("{}://{}{}", request.scheme, request_authority(request), path_and_query(request))
}

/// The path of a request as the visitor sent it.
pub(super) fn raw_path(request: &Request) -> &str {
    let sent = request.head.extensions.get::<RawPath>();
    let target = || path_and_query(request).split('?').next().unwrap_or_default();
    sent.map_or_else(target, |RawPath(path)| path)
}

/// The whole URL of a request as the visitor sent it.
pub(super) fn raw_url(request: &Request) -> String {
    let query = query_with_sign(request);
    format!("{}://{}{}{query}", request.scheme, request_authority(request), raw_path(request))
}

/// The whole URL of a request, with its host and path normalized.
pub(in super::super) fn normalized_url(request: &Request) -> String {
    let path = RequestPath::new(request.head.uri.path()).into_normal();
    let query = query_with_sign(request);
    let authority = canonicalize_authority(request_authority(request), request.scheme);
    format!("{}://{authority}{path}{query}", request.scheme)
}

/// The path of a request with its query, if normalizing the path changes something.
pub(super) fn normalized_path_and_query(request: &Request) -> Option<String> {
    let path = normalized_path(request)?;
    Some(path + &query_with_sign(request))
}

/// The path of a request, if normalizing it changes something.
pub(super) fn normalized_path(request: &Request) -> Option<String> {
    match RequestPath::new(request.head.uri.path()).into_normal() {
        Cow::Borrowed(_) => None,
        Cow::Owned(path) => Some(path),
    }
}

/// Returns the query of a request as it was sent, or an empty text.
pub(in super::super) fn query_string(request: &Request) -> &str {
    request_query(&request.head.uri, &request.head.extensions).unwrap_or_default()
}

/// The query of a request with the question mark before it.
fn query_with_sign(request: &Request) -> String {
    let query = request_query(&request.head.uri, &request.head.extensions);
    query.map(|query| format!("?{query}")).unwrap_or_default()
}

/// The parameters of a query: a map of lists.
pub(super) fn query_parameters(query: &str) -> CelMap<'static> {
    let mut named: HashMap<String, Vec<Json>> = HashMap::new();
    for (name, value) in query_pairs(query) {
        named.entry(name.into_owned()).or_default().push(json!(value));
    }
    let fields = named.into_iter().filter_map(|(name, values)| {
        Some((name.into(), value::from_json(&Json::Array(values)).ok()?))
    });
    CelMap::from(fields.collect::<HashMap<_, _>>())
}

/// The names and values of a query, in order.
pub(in super::super) fn query_pairs(query: &str) -> Pairs<'_> {
    Pairs { rest: query.split('&'), left: PARAMETERS }
}

/// The names and values of a query.
pub(in super::super) struct Pairs<'q> {
    rest: Split<'q, char>,
    left: usize,
}

impl<'q> Iterator for Pairs<'q> {
    type Item = (Cow<'q, str>, Cow<'q, str>);

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.rest.find(|pair| !pair.is_empty())?;
        self.left = self.left.checked_sub(1)?;
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode_component(name), decode_component(value)))
    }
}

fn decode_component(text: &str) -> Cow<'_, str> {
    if text.contains('+') {
        return percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned().into();
    }
    percent_decode_str(text).decode_utf8_lossy()
}
