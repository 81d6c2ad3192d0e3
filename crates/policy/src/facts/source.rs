//! Where the texts and numbers come from that expressions read without the engine.

use std::borrow::Cow;

use http::header::ValueIter;
use http::{HeaderMap, HeaderName, HeaderValue};

use ginnel_http1::{HeadField, SpelledValues, is_same_for_cgi};

use super::super::exchange::Exchange;
use super::cookies;
use super::plain::{NumberFact, TextFact, readable_bytes, readable_value};
use super::url::query_string;

/// A request or its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Message {
    Request,
    Response,
}

impl Message {
    /// Returns the values of a header, in order. A header of a request has the values of all spellings that
    /// CGI and WSGI give one name: the application behind may read `X_User` as `x-user`.
    pub(in super::super) fn header_values<'h>(
        self,
        headers: &'h HeaderMap,
        name: &'h HeaderName,
    ) -> FieldValues<'h> {
        match self {
            Self::Request => FieldValues::Spelled(SpelledValues::new(headers, name.as_str())),
            Self::Response => FieldValues::Map(headers.get_all(name).iter()),
        }
    }
}

/// What expressions are decided on. Each part is none where there is no such message.
pub(in super::super) trait FactSource {
    fn text_value(&self, fact: TextFact) -> Option<Cow<'_, str>>;

    fn number_value(&self, fact: NumberFact) -> Option<i64>;

    /// The values of a header, in order.
    fn header_values<'s>(
        &'s self,
        message: Message,
        name: &'s HeaderName,
    ) -> Option<FieldValues<'s>>;

    /// The query of the request, which may be empty.
    fn query_string(&self) -> Option<&str>;

    /// The first cookie of a name, if there is one.
    fn cookie_value(&self, name: &str) -> Option<Option<Cow<'_, str>>>;
}

/// The values of a header.
pub(in super::super) enum FieldValues<'s> {
    Map(ValueIter<'s, HeaderValue>),
    Spelled(SpelledValues<'s, 's>),
    Fields(std::slice::Iter<'s, HeadField<'s>>, &'s HeaderName),
}

impl<'s> Iterator for FieldValues<'s> {
    type Item = Cow<'s, str>;

    fn next(&mut self) -> Option<Cow<'s, str>> {
        match self {
            Self::Map(values) => values.next().map(readable_value),
            Self::Spelled(values) => values.next().map(readable_value),
            Self::Fields(fields, name) => {
                let mut named = fields.filter(|field| is_named(field, name));
                named.next().map(|field| readable_bytes(field.value))
            }
        }
    }
}

/// Returns true if a field of a request has this name, or another spelling that CGI and WSGI take for it.
pub(in super::super) fn is_named(field: &HeadField<'_>, name: &HeaderName) -> bool {
    is_same_for_cgi(field.name.as_bytes(), name.as_str().as_bytes())
}

impl FactSource for Exchange {
    fn text_value(&self, fact: TextFact) -> Option<Cow<'_, str>> {
        fact.read_text(self)
    }

    fn number_value(&self, fact: NumberFact) -> Option<i64> {
        fact.read_number(self)
    }

    fn header_values<'s>(
        &'s self,
        message: Message,
        name: &'s HeaderName,
    ) -> Option<FieldValues<'s>> {
        Some(message.header_values(message_headers(self, message)?, name))
    }

    fn query_string(&self) -> Option<&str> {
        self.request().map(query_string)
    }

    fn cookie_value(&self, name: &str) -> Option<Option<Cow<'_, str>>> {
        let headers = &self.request()?.head.headers;
        Some(
            cookies::request_cookie_pairs(headers)
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value),
        )
    }
}

fn message_headers(exchange: &Exchange, message: Message) -> Option<&HeaderMap> {
    match message {
        Message::Request => exchange.request().map(|it| &it.head.headers),
        Message::Response => exchange.response().map(|it| &it.head.headers),
    }
}
