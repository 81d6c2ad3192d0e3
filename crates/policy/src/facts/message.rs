//! What is known of a request and of its response, besides texts and numbers.

use std::collections::HashMap;

use cel::common::types::{CelList, CelMap, CelString};
use cel::common::value::{CowVal, Val};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use ginnel_http1::{list_elements, media_type_parameters};

use super::super::exchange::Exchange;
use super::super::user_agent_facts::UserAgentFacts;
use super::headers::HeaderMapFact;
use super::plain::readable_bytes;
use super::source::Message;
use super::url::{query_parameters, query_string};
use super::{
    FactValue, FieldValues, KnownHeader, cookies, owned_value, text_list, time_value, user_agent,
};

pub(super) fn request_variable<'b>(exchange: &'b Exchange, name: &str) -> FactValue<'b> {
    let request = exchange.request()?;
    let (memo, headers) = (&exchange.memo, &request.head.headers);
    match name {
        "cookies" => borrowed_value(memo.cookies.get_or_init(|| cookies::request_cookies(headers))),
        "ts.header_received" => time_value(request.received),
        "ts.body_received" => request.body_received.and_then(time_value),
        "url.query_params" => {
            borrowed_value(memo.query.get_or_init(|| query_parameters(query_string(request))))
        }
        _ if let Some(part) = name.strip_prefix("user_agent.") => {
            let read = || {
                UserAgentFacts::from_header(
                    &KnownHeader::UserAgent.read_text(Message::Request, headers),
                )
            };
            user_agent::user_agent_variable(memo.user_agent.get_or_init(read), part)
        }
        _ => message_variable(Message::Request, (headers, &request.trailers), name),
    }
}

pub(super) fn response_variable<'b>(exchange: &'b Exchange, name: &str) -> FactValue<'b> {
    let response = exchange.response()?;
    let headers = &response.head.headers;
    match name {
        "cookies" => borrowed_value(
            exchange.memo.response_cookies.get_or_init(|| cookies::response_cookies(headers)),
        ),
        _ => message_variable(Message::Response, (headers, &response.trailers), name),
    }
}

/// What requests and responses have alike.
fn message_variable<'b>(
    message: Message,
    (headers, trailers): (&'b HeaderMap, &'b HeaderMap),
    name: &str,
) -> FactValue<'b> {
    match name {
        "headers" => owned_value(HeaderMapFact::new(message, headers)),
        "trailers" => owned_value(HeaderMapFact::new(message, trailers)),
        "content_encoding" => {
            owned_value(token_list(message.header_values(headers, &CONTENT_ENCODING)))
        }
        "content_type.parameters" => {
            owned_value(type_parameters(message.header_values(headers, &CONTENT_TYPE)))
        }
        _ => None,
    }
}

fn borrowed_value(value: &(impl Val + 'static)) -> FactValue<'_> {
    Some(CowVal::Borrowed(value))
}

/// The words of a header that is a list.
fn token_list(lines: FieldValues<'_>) -> CelList<'static> {
    let mut words: Vec<CelString<'static>> = Vec::new();
    for line in lines {
        let found = list_elements(line.as_bytes()).filter(|word| !word.is_empty());
        words.extend(found.map(|word| CelString::from(readable_bytes(word).into_owned())));
    }
    text_list(words)
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
