//! What is known of a request and of its response, besides texts and numbers.

use std::collections::HashMap;

use cel::common::types::{CelList, CelMap, CelString};
use cel::common::value::{CowVal, Val};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use ginnel_http1::{elements, media_type_parameters};

use super::super::exchange::Exchange;
use super::super::user_agent_facts::UserAgentFacts;
use super::headers::HeaderMapFact;
use super::plain::readable_bytes;
use super::source::Message;
use super::url::{parameters, query};
use super::{FactValue, FieldValues, KnownHeader, cookies, some, texts, time, user_agent};

pub(super) fn request<'b>(exchange: &'b Exchange, name: &str) -> FactValue<'b> {
    let request = exchange.request()?;
    let (memo, headers) = (&exchange.memo, &request.head.headers);
    match name {
        "cookies" => borrowed(memo.cookies.get_or_init(|| cookies::sent(headers))),
        "ts.header_received" => time(request.received),
        "ts.body_received" => request.body_received.and_then(time),
        "url.query_params" => borrowed(memo.query.get_or_init(|| parameters(query(request)))),
        _ if let Some(part) = name.strip_prefix("user_agent.") => {
            let read =
                || UserAgentFacts::read(&KnownHeader::UserAgent.read(Message::Request, headers));
            user_agent::variable(memo.user_agent.get_or_init(read), part)
        }
        _ => common(Message::Request, (headers, &request.trailers), name),
    }
}

pub(super) fn response<'b>(exchange: &'b Exchange, name: &str) -> FactValue<'b> {
    let response = exchange.response()?;
    let headers = &response.head.headers;
    match name {
        "cookies" => borrowed(exchange.memo.response_cookies.get_or_init(|| cookies::set(headers))),
        _ => common(Message::Response, (headers, &response.trailers), name),
    }
}

/// What requests and responses have alike.
fn common<'b>(
    message: Message,
    (headers, trailers): (&'b HeaderMap, &'b HeaderMap),
    name: &str,
) -> FactValue<'b> {
    match name {
        "headers" => some(HeaderMapFact::new(message, headers)),
        "trailers" => some(HeaderMapFact::new(message, trailers)),
        "content_encoding" => some(tokens(message.values(headers, &CONTENT_ENCODING))),
        "content_type.parameters" => some(type_parameters(message.values(headers, &CONTENT_TYPE))),
        _ => None,
    }
}

fn borrowed(value: &(impl Val + 'static)) -> FactValue<'_> {
    Some(CowVal::Borrowed(value))
}

/// The words of a header that is a list.
fn tokens(lines: FieldValues<'_>) -> CelList<'static> {
    let mut words: Vec<CelString<'static>> = Vec::new();
    for line in lines {
        let found = elements(line.as_bytes()).filter(|word| !word.is_empty());
        words.extend(found.map(|word| CelString::from(readable_bytes(word).into_owned())));
    }
    texts(words)
}

/// The parameters of the media type, such as `charset=utf-8`.
fn type_parameters(mut lines: FieldValues<'_>) -> CelMap<'static> {
    let line = lines.next().unwrap_or_default();
    let parameters = media_type_parameters(&line).into_iter().map(|(name, value)| {
        let value: Box<dyn Val> = Box::new(CelString::from(value));
        (name.into(), value)
    });
    CelMap::from(parameters.collect::<HashMap<_, _>>())
}
