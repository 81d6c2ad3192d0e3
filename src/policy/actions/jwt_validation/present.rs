//! The tokens that a request carries.

use http::Method as HttpMethod;
use http::header::CONTENT_TYPE;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value as Json};

use super::super::super::jwt::Token as Jwt;
use super::super::super::run::{Failure, Turn};
use super::refusal::{self, Refusal};
use super::{Method, Token};

/// How long a body may be that carries a token, in bytes.
const LIMIT: usize = 1 << 20;

/// What a request has of a token.
pub(super) enum Present {
    Found(Jwt),
    Missing(Refusal),
    NeedBody { limit: usize },
}

/// Looks for a token where it is configured to be.
pub(super) fn find(wanted: &Token, turn: &Turn<'_>) -> Result<Present, Failure> {
    let text = match wanted.method {
        Method::Header => header(wanted, turn),
        Method::Body => match check_head(turn) {
            Err(refusal) => Err(refusal),
            Ok(is_json) => {
                let Some(body) = turn.body(LIMIT)? else {
                    return Ok(Present::NeedBody { limit: LIMIT });
                };
                if is_json {
                    json_field(&body, &wanted.name)
                } else {
                    form_field(&body, &wanted.name)
                }
            }
        },
    };
    let token = text.and_then(|text| {
        let token = text.strip_prefix(&wanted.prefix).ok_or(refusal::PREFIX)?.trim();
        if token.is_empty() {
            return Err(refusal::MISSING);
        }
        Jwt::parse(token).ok_or(refusal::MALFORMED)
    });
    Ok(token.map_or_else(Present::Missing, Present::Found))
}

fn header(wanted: &Token, turn: &Turn<'_>) -> Result<String, Refusal> {
    let headers = turn.exchange.request().map(|request| &request.head.headers);
    let value = headers.and_then(|headers| headers.get(wanted.name.as_str()));
    let value = value.ok_or(refusal::HEADER)?;
    value.to_str().map(str::to_owned).map_err(|_| refusal::MALFORMED)
}

/// Whether the body is JSON or else a form, if it can carry a token.
fn check_head(turn: &Turn<'_>) -> Result<bool, Refusal> {
    let request = turn.exchange.request().ok_or(refusal::METHOD)?;
    if ![HttpMethod::POST, HttpMethod::PUT, HttpMethod::PATCH].contains(&request.head.method) {
        return Err(refusal::METHOD);
    }
    let kind = request.head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.ok_or(refusal::TYPE)?.split(';').next().unwrap_or_default();
    match kind.trim().to_ascii_lowercase().as_str() {
        "application/x-www-form-urlencoded" => Ok(false),
        kind if kind == "application/json" || kind.ends_with("+json") => Ok(true),
        _ => Err(refusal::TYPE),
    }
}

fn json_field(body: &[u8], name: &str) -> Result<String, Refusal> {
    let fields: Map<String, Json> = serde_json::from_slice(body).map_err(|_| refusal::JSON)?;
    let mut values = fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
    let value = values.next().and_then(|(_, value)| value.as_str());
    value.map(str::to_owned).ok_or(refusal::MISSING)
}

fn form_field(body: &[u8], name: &str) -> Result<String, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| refusal::FORM)?;
    let plain = |text: &str| {
        percent_decode_str(&text.replace('+', " ")).decode_utf8().map(|text| text.into_owned())
    };
    for pair in text.split('&') {
        let (field, value) = pair.split_once('=').unwrap_or((pair, ""));
        if plain(field).map_err(|_| refusal::FORM)?.eq_ignore_ascii_case(name) {
            return plain(value).map_err(|_| refusal::FORM);
        }
    }
    Err(refusal::MISSING)
}
