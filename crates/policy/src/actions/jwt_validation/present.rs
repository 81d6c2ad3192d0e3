//! The tokens that a request carries.

use std::fmt;

use http::Method as HttpMethod;
use http::header::CONTENT_TYPE;
use percent_encoding::percent_decode_str;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;

use ginnel_http1::SpelledValues;

use super::super::super::action_error::ActionResult;
use super::super::super::headers::single_header;
use super::super::super::jwt::UnverifiedToken as Jwt;
use super::super::super::turn::Turn;
use super::refusal::{self, JwtRejection};
use super::{Method, TokenLocation};

/// How long a body may be that carries a token, in bytes.
const LIMIT: usize = 1 << 20;

/// What a request has of a token.
pub(super) enum Present {
    Found(Jwt),
    Missing(JwtRejection),
    NeedBody { limit: usize },
}

/// Looks for a token where it is configured to be.
pub(super) fn find_token(location: &TokenLocation, turn: &Turn<'_>) -> ActionResult<Present> {
    let text = match location.method {
        Method::Header => header_field(location, turn),
        Method::Body => match check_head(turn) {
            Err(refusal) => Err(refusal),
            Ok(is_json) => {
                let Some(body) = turn.full_body(LIMIT)? else {
                    return Ok(Present::NeedBody { limit: LIMIT });
                };
                if is_json {
                    json_field(&body, &location.name)
                } else {
                    form_field(&body, &location.name)
                }
            }
        },
    };
    let token = text.and_then(|text| {
        let token = text.strip_prefix(&location.prefix).ok_or(refusal::PREFIX)?.trim();
        if token.is_empty() {
            return Err(refusal::MISSING);
        }
        Jwt::parse(token).ok_or(refusal::MALFORMED)
    });
    Ok(token.map_or_else(Present::Missing, Present::Found))
}

fn header_field(location: &TokenLocation, turn: &Turn<'_>) -> Result<String, JwtRejection> {
    let request = turn.exchange.request().ok_or(refusal::HEADER)?;
    let mut values = SpelledValues::new(&request.head.headers, &location.name);
    let value = require_single(values.next(), values.next(), refusal::HEADER)?;
    value.to_str().map(str::to_owned).map_err(|_| refusal::MALFORMED)
}

/// One value, where there is not a second one: the server behind may read either.
fn require_single<T>(
    first: Option<T>,
    second: Option<T>,
    missing: JwtRejection,
) -> Result<T, JwtRejection> {
    match (first, second) {
        (Some(first), None) => Ok(first),
        (Some(_), Some(_)) => Err(refusal::SEVERAL),
        (None, _) => Err(missing),
    }
}

/// Whether the body is JSON or else a form, if it can carry a token.
fn check_head(turn: &Turn<'_>) -> Result<bool, JwtRejection> {
    let request = turn.exchange.request().ok_or(refusal::METHOD)?;
    if ![HttpMethod::POST, HttpMethod::PUT, HttpMethod::PATCH].contains(&request.head.method) {
        return Err(refusal::METHOD);
    }
    let kind = single_header(&request.head.headers, CONTENT_TYPE.as_str())
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.ok_or(refusal::TYPE)?.split(';').next().unwrap_or_default();
    match kind.trim().to_ascii_lowercase().as_str() {
        "application/x-www-form-urlencoded" => Ok(false),
        kind if kind == "application/json" || kind.ends_with("+json") => Ok(true),
        _ => Err(refusal::TYPE),
    }
}

fn json_field(body: &[u8], name: &str) -> Result<String, JwtRejection> {
    let Fields(fields) = serde_json::from_slice(body).map_err(|_| refusal::JSON)?;
    let mut values = fields.into_iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
    match require_single(values.next(), values.next(), refusal::MISSING)? {
        (_, Json::String(text)) => Ok(text),
        _ => Err(refusal::MISSING),
    }
}

/// The fields of a JSON object as they are written, those that are there twice as well.
struct Fields(Vec<(String, Json)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}

fn form_field(body: &[u8], name: &str) -> Result<String, JwtRejection> {
    let text = std::str::from_utf8(body).map_err(|_| refusal::FORM)?;
    let plain = |text: &str| {
        percent_decode_str(&text.replace('+', " ")).decode_utf8().map(|text| text.into_owned())
    };
    let mut values = Vec::new();
    for pair in text.split('&') {
        let (field, value) = pair.split_once('=').unwrap_or((pair, ""));
        if plain(field).map_err(|_| refusal::FORM)?.eq_ignore_ascii_case(name) {
            values.push(value);
        }
    }
    let value = require_single(values.first(), values.get(1), refusal::MISSING)?;
    plain(value).map_err(|_| refusal::FORM)
}
