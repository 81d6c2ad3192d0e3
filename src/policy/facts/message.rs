//! What is known of a request and of its response.

use std::collections::HashMap;

use cel::common::types::{CelList, CelMap, CelString};
use cel::common::value::{CowVal, Val};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName};

use super::super::exchange::{Content, Exchange, Request};
use super::headers::{Headers, readable};
use super::url::{authority, host_and_port, parameters, path_and_query, unescaped, whole};
use super::{Known, Memo, cookies, integer, some, text, texts, time};

pub(super) fn request<'b>(exchange: &'b Exchange, name: &str) -> Known<'b> {
    let request = exchange.request()?;
    let memo = &exchange.memo;
    match name {
        "method" => text(request.head.method.as_str()),
        "host" => text(authority(request)),
        "version" => some(CelString::from(format!("{:?}", request.head.version))),
        "user_agent" => header(&request.head.headers, &USER_AGENT),
        "cookies" => borrowed(memo.cookies.get_or_init(|| cookies::sent(&request.head.headers))),
        "ts.header_received" => time(request.received),
        "ts.body_received" => request.body_received.and_then(time),
        _ => match name.strip_prefix("url") {
            Some("") => text(memo.url.get_or_init(|| whole(request))),
            Some(part) => url(request, memo, part.strip_prefix('.')?),
            None => common(&request.head.headers, &request.trailers, &request.body, name),
        },
    }
}

pub(super) fn response<'b>(exchange: &'b Exchange, name: &str) -> Known<'b> {
    let response = exchange.response()?;
    let headers = &response.head.headers;
    match name {
        "status_code" => integer(response.head.status.as_u16()),
        "cookies" => borrowed(exchange.memo.response_cookies.get_or_init(|| cookies::set(headers))),
        _ => common(headers, &response.trailers, &response.body, name),
    }
}

fn url<'b>(request: &'b Request, memo: &'b Memo, part: &str) -> Known<'b> {
    let uri = &request.head.uri;
    match part {
        "path" => match memo.path.get_or_init(|| unescaped(uri.path())) {
            Some(path) => text(path),
            None => text(uri.path()),
        },
        "raw_path" => text(uri.path()),
        "raw" => text(memo.url.get_or_init(|| whole(request))),
        "scheme" => text(request.scheme),
        "authority" => text(authority(request)),
        "host" => text(host_and_port(authority(request), request.scheme).0),
        "port" => integer(host_and_port(authority(request), request.scheme).1),
        "query" => text(uri.query().unwrap_or_default()),
        "uri" => text(path_and_query(request)),
        "user_password" => {
            let authority = uri.authority().map_or("", |it| it.as_str());
            text(authority.rsplit_once('@').map_or("", |(user, _)| user))
        }
        "query_params" => {
            borrowed(memo.query.get_or_init(|| parameters(uri.query().unwrap_or_default())))
        }
        _ => None,
    }
}

/// What requests and responses have alike.
fn common<'b>(
    headers: &'b HeaderMap,
    trailers: &'b HeaderMap,
    body: &Content,
    name: &str,
) -> Known<'b> {
    match name {
        "headers" => some(Headers::new(headers)),
        "trailers" => some(Headers::new(trailers)),
        "location" => header(headers, &LOCATION),
        "content_length" => integer(content_length(headers, body)),
        "content_encoding" => some(tokens(headers, &CONTENT_ENCODING)),
        "content_type" | "content_type.raw" => header(headers, &CONTENT_TYPE),
        "content_type.parameters" => some(type_parameters(headers)),
        _ => None,
    }
}

fn borrowed(value: &(impl Val + 'static)) -> Known<'_> {
    Some(CowVal::Borrowed(value))
}

/// The first value of a header; empty when there is none.
fn header<'b>(headers: &'b HeaderMap, name: &HeaderName) -> Known<'b> {
    headers.get(name).map_or_else(|| text(""), |value| some(readable(value)))
}

fn content_length(headers: &HeaderMap, body: &Content) -> u64 {
    if let Content::Full(body) = body {
        return body.len() as u64;
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}

/// The words of a header that is a list.
fn tokens<'b>(headers: &'b HeaderMap, name: &HeaderName) -> CelList<'b> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    let words = lines.flat_map(|line| line.split(',')).map(str::trim);
    texts(words.filter(|word| !word.is_empty()).map(CelString::from))
}

/// What stands behind the type: `charset=utf-8`.
fn type_parameters(headers: &HeaderMap) -> CelMap<'static> {
    let line = headers.get(CONTENT_TYPE).and_then(|line| line.to_str().ok()).unwrap_or_default();
    let parameters = line.split(';').skip(1).filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = CelString::from(value.trim().trim_matches('"').to_owned());
        let value: Box<dyn Val> = Box::new(value);
        Some((name.trim().to_ascii_lowercase().into(), value))
    });
    CelMap::from(parameters.collect::<HashMap<_, _>>())
}
