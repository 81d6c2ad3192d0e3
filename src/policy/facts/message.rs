//! What is known of a request and of its response, besides texts and numbers.

use std::collections::HashMap;

use cel::common::types::{CelList, CelMap, CelString};
use cel::common::value::{CowVal, Val};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};

use super::super::exchange::Exchange;
use super::super::user_agent_facts::UserAgentFacts;
use super::headers::HeaderMapFact;
use super::url::{parameters, query};
use super::{FactValue, KnownHeader, cookies, some, texts, time, user_agent};

pub(super) fn request<'b>(exchange: &'b Exchange, name: &str) -> FactValue<'b> {
    let request = exchange.request()?;
    let (memo, headers) = (&exchange.memo, &request.head.headers);
    match name {
        "cookies" => borrowed(memo.cookies.get_or_init(|| cookies::sent(headers))),
        "ts.header_received" => time(request.received),
        "ts.body_received" => request.body_received.and_then(time),
        "url.query_params" => borrowed(memo.query.get_or_init(|| parameters(query(request)))),
        _ if let Some(part) = name.strip_prefix("user_agent.") => {
            let read = || UserAgentFacts::read(&KnownHeader::UserAgent.read(headers));
            user_agent::variable(memo.user_agent.get_or_init(read), part)
        }
        _ => common(headers, &request.trailers, name),
    }
}

pub(super) fn response<'b>(exchange: &'b Exchange, name: &str) -> FactValue<'b> {
    let response = exchange.response()?;
    let headers = &response.head.headers;
    match name {
        "cookies" => borrowed(exchange.memo.response_cookies.get_or_init(|| cookies::set(headers))),
        _ => common(headers, &response.trailers, name),
    }
}

/// What requests and responses have alike.
fn common<'b>(headers: &'b HeaderMap, trailers: &'b HeaderMap, name: &str) -> FactValue<'b> {
    match name {
        "headers" => some(HeaderMapFact::new(headers)),
        "trailers" => some(HeaderMapFact::new(trailers)),
        "content_encoding" => some(tokens(headers, &CONTENT_ENCODING)),
        "content_type.parameters" => some(type_parameters(headers)),
        _ => None,
    }
}

fn borrowed(value: &(impl Val + 'static)) -> FactValue<'_> {
    Some(CowVal::Borrowed(value))
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
