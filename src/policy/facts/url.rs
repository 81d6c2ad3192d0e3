//! The URL of a request.

use std::collections::HashMap;

use cel::common::types::CelMap;
use http::header::HOST;
use percent_encoding::percent_decode_str;
use serde_json::{Value as Json, json};

use super::super::exchange::Request;
use super::super::expression::value;

/// How many parameters of a query are read; the rest is ignored.
const PARAMETERS: usize = 1000;

/// The host of a request, with its port if it has one.
pub(in super::super) fn authority(request: &Request) -> &str {
    let named = request.head.headers.get(HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| request.head.uri.authority().map(|it| it.as_str())).unwrap_or_default()
}

/// The path of a request with its query, as it was sent.
pub(in super::super) fn path_and_query(request: &Request) -> &str {
    request.head.uri.path_and_query().map_or("/", |it| it.as_str())
}

/// The whole URL of a request.
pub(in super::super) fn whole(request: &Request) -> String {
    format!("{}://{}{}", request.scheme, authority(request), path_and_query(request))
}

/// The host and the port of an authority; without a port, the usual one.
pub(in super::super) fn host_and_port<'a>(authority: &'a str, scheme: &str) -> (&'a str, u16) {
    let usual = if scheme == "https" { 443 } else { 80 };
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(usual)),
        _ => (authority, usual),
    }
}

/// The path with what was escaped in it, if anything was.
pub(super) fn unescaped(path: &str) -> Option<String> {
    path.contains('%').then(|| percent_decode_str(path).decode_utf8_lossy().into_owned())
}

/// The parameters of a query: a map of lists.
pub(super) fn parameters(query: &str) -> CelMap<'static> {
    let mut named: HashMap<String, Vec<Json>> = HashMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()).take(PARAMETERS) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        named.entry(plain(name)).or_default().push(json!(plain(value)));
    }
    let fields = named.into_iter().filter_map(|(name, values)| {
        Some((name.into(), value::from_json(&Json::Array(values)).ok()?))
    });
    CelMap::from(fields.collect::<HashMap<_, _>>())
}

fn plain(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}
