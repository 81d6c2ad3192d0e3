//! Cookies, as requests and responses carry them.

use std::collections::{BTreeMap, HashMap};

use cel::common::types::CelMap;
use http::HeaderMap;
use http::header::{COOKIE, SET_COOKIE};
use serde_json::{Map, Value as Json, json};

use super::super::expression::value;

/// How many cookies are read; the rest is ignored.
const COOKIES: usize = 200;

/// The cookies of a request, by name.
pub(super) fn sent(headers: &HeaderMap) -> CelMap<'static> {
    by_name(pairs(headers).map(|(name, value)| (name, json!({"name": name, "value": value}))))
}

/// The names and values of the cookies of a request, in order.
pub(super) fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    pairs_in(headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok()))
}

/// The names and values of the cookies in some lines.
pub(in super::super) fn pairs_in<'l>(
    lines: impl Iterator<Item = &'l str>,
) -> impl Iterator<Item = (&'l str, &'l str)> {
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim(), unquoted(value.trim()))).take(COOKIES)
}

/// The cookies that a response sets, by name.
pub(super) fn set(headers: &HeaderMap) -> CelMap<'static> {
    let lines = headers.get_all(SET_COOKIE).iter().filter_map(|line| line.to_str().ok());
    by_name(lines.filter_map(|line| {
        let (pair, attributes) = line.split_once(';').unwrap_or((line, ""));
        let (name, value) = pair.split_once('=')?;
        let mut fields = plain(name.trim(), unquoted(value.trim()));
        for attribute in attributes.split(';') {
            let (attribute, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            set_attribute(&mut fields, &attribute.trim().to_ascii_lowercase(), value.trim());
        }
        Some((name.trim(), Json::Object(fields)))
    }))
}

fn plain(name: &str, value: &str) -> Map<String, Json> {
    let fields = json!({
        "name": name, "value": value, "domain": "", "path": "", "expires": "", "max_age": 0,
        "secure": false, "http_only": false, "same_site": "",
    });
    let Json::Object(fields) = fields else { return Map::new() };
    fields
}

fn set_attribute(fields: &mut Map<String, Json>, name: &str, value: &str) {
    let (name, value) = match name {
        "domain" | "path" | "expires" => (name, json!(value)),
        "samesite" => ("same_site", json!(value)),
        "max-age" => ("max_age", json!(value.parse::<i64>().unwrap_or_default())),
        "secure" => ("secure", json!(true)),
        "httponly" => ("http_only", json!(true)),
        _ => return,
    };
    fields.insert(name.to_owned(), value);
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

fn by_name<'a>(cookies: impl Iterator<Item = (&'a str, Json)>) -> CelMap<'static> {
    let mut named: BTreeMap<&str, Vec<Json>> = BTreeMap::new();
    for (name, cookie) in cookies.take(COOKIES) {
        named.entry(name).or_default().push(cookie);
    }
    let fields = named.into_iter().filter_map(|(name, cookies)| {
        let cookies = value::from_json(&Json::Array(cookies)).ok()?;
        Some((name.to_owned().into(), cookies))
    });
    CelMap::from(fields.collect::<HashMap<_, _>>())
}
