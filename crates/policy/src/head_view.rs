//! A request of HTTP/1.1 of which nothing but the head was read: what rules see of it without a copy.

use std::borrow::Cow;

use http::HeaderName;
use http::header::{CONTENT_TYPE, COOKIE};

use ginnel_http1::HeadField;

use super::authority::host_and_port;
use super::exchange::VisitorConnection;
use super::facts::{
    self, FactSource, FieldValues, KnownHeader, Message, NumberFact, TextFact, is_named,
    join_lines, media_type,
};

/// The head of a request, and whose it is.
///
/// Its path and its host hold nothing that would be normalized, and no field says what only proxies may say.
#[derive(Debug, Clone, Copy)]
pub struct HeadView<'h> {
    /// The method.
    pub method: &'h str,
    /// The path and the query.
    pub target: &'h str,
    /// The value of `Host`.
    pub host: &'h str,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// All fields, in order.
    pub fields: &'h [HeadField<'h>],
    /// The connection.
    pub connection: &'h VisitorConnection,
    /// The address of the visitor as a text.
    pub client_ip: &'h str,
}

impl TextFact {
    /// Whether the head tells it.
    pub(super) fn is_of_head(self) -> bool {
        !matches!(
            self,
            Self::ResponseHeader(_)
                | Self::ResponseMediaType
                | Self::EndpointId
                | Self::EndpointUrl
                | Self::EndpointHost
                | Self::EndpointProtocol
        )
    }
}

impl NumberFact {
    /// Whether the head tells it.
    pub(super) fn is_of_head(self) -> bool {
        matches!(self, Self::Port | Self::RequestLength | Self::ClientPort | Self::ServerPort)
    }
}

impl<'h> HeadView<'h> {
    /// The values of a header as they were read, in all spellings that CGI and WSGI cannot tell apart.
    pub fn raw_header_values(&self, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
        self.fields.iter().filter(move |field| is_named(field, name)).map(|field| field.value)
    }

    fn path(&self) -> &'h str {
        self.target.split('?').next().unwrap_or(self.target)
    }

    fn url(&self) -> String {
        format!("{}://{}{}", self.scheme, self.host, self.target)
    }

    /// Returns the values of a header as texts, unless the head has it in several spellings. A message has those in
    /// another order, so the engine decides.
    fn header_texts<'s>(&'s self, name: &'s HeaderName) -> Option<FieldValues<'s>> {
        let mut named = self.fields.iter().filter(|field| is_named(field, name));
        let spelling = named.next().map(|field| field.name);
        let is_same = |field: &HeadField<'_>| {
            spelling.is_some_and(|spelling| field.name.eq_ignore_ascii_case(spelling))
        };
        named.all(is_same).then(|| FieldValues::Fields(self.fields.iter(), name))
    }

    fn known_header(&self, header: KnownHeader) -> Option<Cow<'_, str>> {
        Some(join_lines(self.header_texts(header.name())?).unwrap_or_default())
    }

    fn content_length(&self) -> i64 {
        // Only this spelling frames the body.
        let is_length = |field: &&HeadField<'_>| field.name.eq_ignore_ascii_case("content-length");
        let length = self.fields.iter().find(is_length);
        let length = length.and_then(|field| str::from_utf8(field.value).ok());
        length.and_then(|length| length.parse().ok()).unwrap_or(0)
    }
}

impl FactSource for HeadView<'_> {
    fn text_value(&self, fact: TextFact) -> Option<Cow<'_, str>> {
        let text = match fact {
            TextFact::Method => self.method,
            TextFact::Host => self.host,
            TextFact::Version => "HTTP/1.1",
            TextFact::Url | TextFact::RawUrl => return Some(self.url().into()),
            TextFact::Path | TextFact::RawPath => self.path(),
            TextFact::Scheme => self.scheme,
            TextFact::UrlHost => host_and_port(self.host, self.scheme).0,
            TextFact::Query => self.query_string()?,
            TextFact::PathAndQuery => self.target,
            TextFact::UserPassword => "",
            TextFact::Place(place) => return Some(place.read_text(self.connection)),
            TextFact::RequestHeader(header) => return self.known_header(header),
            TextFact::RequestMediaType => {
                return Some(media_type(self.header_texts(&CONTENT_TYPE)?));
            }
            TextFact::ClientIp => self.client_ip,
            TextFact::ServerIp => {
                return Some(facts::address_text(self.connection.server.ip()).into());
            }
            TextFact::Region => &self.connection.region,
            TextFact::TlsVersion | TextFact::CipherSuite | TextFact::Sni | TextFact::Alpn => {
                fact.read_tls(self.connection.tls.as_ref()?)
            }
            TextFact::ResponseHeader(_)
            | TextFact::ResponseMediaType
            | TextFact::EndpointId
            | TextFact::EndpointUrl
            | TextFact::EndpointHost
            | TextFact::EndpointProtocol => return None,
        };
        Some(Cow::Borrowed(text))
    }

    fn number_value(&self, fact: NumberFact) -> Option<i64> {
        Some(match fact {
            NumberFact::Port => host_and_port(self.host, self.scheme).1.into(),
            NumberFact::RequestLength => self.content_length(),
            NumberFact::ClientPort => self.connection.client.port().into(),
            NumberFact::ServerPort => self.connection.server.port().into(),
            _ => return None,
        })
    }

    fn header_values<'s>(
        &'s self,
        message: Message,
        name: &'s HeaderName,
    ) -> Option<FieldValues<'s>> {
        self.header_texts(name).filter(|_| message == Message::Request)
    }

    fn query_string(&self) -> Option<&str> {
        Some(self.target.split_once('?').map_or("", |(_, query)| query))
    }

    fn cookie_value(&self, name: &str) -> Option<Option<Cow<'_, str>>> {
        let lines = self.raw_header_values(&COOKIE);
        Some(facts::cookies_in(lines).find(|(known, _)| *known == name).map(|(_, value)| value))
    }
}
