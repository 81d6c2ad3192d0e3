//! Requests that the agent sends by itself, framed from their bodies.
//!
//! A captured request keeps its head as it came, or as an archive has it. Such a head may lack a length, name
//! a wrong one, or describe a connection that no longer exists. This module is the only place that writes the
//! framing of replays, edited requests and held requests.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use ginnel_base::address::Authority;
use ginnel_http1::{
    CHUNKED, HeadWriter, is_hop_by_hop, is_proper_upgrade, list_elements, may_be_named, may_trail,
    write_chunk, write_last_chunk,
};

use super::capture::{CaptureSource, CapturedMessage};

/// Methods whose requests have no length if their body is empty (RFC 9110, section 8.6).
const METHODS_WITHOUT_BODY: [&[u8]; 4] = [b"GET", b"HEAD", b"OPTIONS", b"DELETE"];

/// The connection on which a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestConnection {
    /// A new connection: fields about the connection of the original are left out.
    New,
    /// A new connection that asks for the same change of protocol as the original.
    Upgrading,
    /// The connection on which the request came.
    Same,
}

/// A request before it is framed.
#[derive(Debug)]
pub(super) struct OutgoingRequest {
    /// Method, target and version.
    pub start_line: [Vec<u8>; 3],
    /// The fields of the head. Those about framing are ignored.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The whole body, without chunks.
    pub body: Vec<u8>,
    /// The fields behind the body.
    pub trailers: HeaderMap,
}

/// Returns the bytes that repeat a captured request, which must be whole.
pub(super) fn replay_bytes(request: &CapturedMessage, source: &CaptureSource) -> Vec<u8> {
    let mut outgoing = OutgoingRequest::from_captured(request);
    let Some(origin) = &source.imported_from else {
        return outgoing.to_bytes(RequestConnection::Upgrading);
    };
    outgoing.replace_host(&host_of_origin(origin));
    outgoing.to_bytes(RequestConnection::New)
}

/// Returns the value of `Host` for the scheme and authority of an imported request.
pub(super) fn host_of_origin(origin: &str) -> Cow<'_, str> {
    match Authority::parse(origin) {
        Ok(authority) => authority.host_header().into(),
        // Archives name hosts that no resolver knows, such as `a_b`.
        Err(_) => origin.split_once("://").map_or(origin, |(_, host)| host).into(),
    }
}

impl OutgoingRequest {
    /// A captured request, without the framing that it came with.
    pub fn from_captured(message: &CapturedMessage) -> Self {
        let mut headers = message.exact_headers();
        if message.is_decoded {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-encoding"));
        }
        Self {
            start_line: message.exact_start_line().map(<[u8]>::to_vec),
            headers,
            body: message.body.bytes().into_owned(),
            trailers: captured_trailers(message),
        }
    }

    /// Returns true if the request names a host.
    pub fn names_host(&self) -> bool {
        self.headers.iter().any(|(name, _)| is_host(name))
    }

    /// Makes this the only host that the request names.
    pub fn replace_host(&mut self, host: &str) {
        let at = self.headers.iter().position(|(name, _)| is_host(name)).unwrap_or_default();
        self.headers.retain(|(name, _)| !is_host(name));
        self.headers.insert(at, ("Host".to_owned(), host.as_bytes().to_vec()));
    }

    /// Writes the head: what frames the body follows from the body.
    pub fn write_head(&self, connection: RequestConnection) -> Vec<u8> {
        let mut head = Vec::new();
        let line = self.start_line.join(&b' ');
        let mut writer = HeadWriter::begin_line(&line, &mut head);
        let fields = ConnectionFields::from_request(self, connection);
        let mut length = Some(self.body.len()).filter(|_| self.trailers.is_empty());
        for (name, value) in &self.headers {
            if name.eq_ignore_ascii_case("content-length") {
                // The length keeps its place, so that a request with a right one is sent as it came.
                length.take().into_iter().for_each(|length| {
                    writer.display_field(name, length);
                });
            } else if !is_framing(name) && fields.keeps_field(name, value) {
                writer.field(name, value);
            }
        }
        let [method, ..] = &self.start_line;
        if !self.trailers.is_empty() {
            let names: Vec<_> = self.trailers.keys().map(HeaderName::as_str).collect();
            writer.field("Trailer", names.join(", ")).field(CHUNKED.0, CHUNKED.1);
        } else if let Some(length) = length
            && (length > 0 || !METHODS_WITHOUT_BODY.contains(&method.as_slice()))
        {
            writer.display_field("Content-Length", length);
        }
        writer.end();
        head
    }

    /// Writes the request.
    pub fn to_bytes(&self, connection: RequestConnection) -> Vec<u8> {
        let mut bytes = self.write_head(connection);
        if self.trailers.is_empty() {
            bytes.extend_from_slice(&self.body);
        } else {
            write_chunk(&self.body, &mut bytes);
            write_last_chunk(self.trailers.iter(), &mut bytes);
        }
        bytes
    }
}

/// The fields that go along with a request to its new connection.
struct ConnectionFields<'r> {
    connection: RequestConnection,
    /// The options of `Connection`.
    named: Vec<&'r [u8]>,
}

impl<'r> ConnectionFields<'r> {
    fn from_request(request: &'r OutgoingRequest, connection: RequestConnection) -> Self {
        let lists = request.headers.iter().filter(|(name, _)| is_connection(name));
        let named = lists.flat_map(|(_, value)| list_elements(value)).collect();
        Self { connection, named }
    }

    fn keeps_field(&self, name: &str, value: &[u8]) -> bool {
        let upgrades = || list_elements(value).any(is_proper_upgrade);
        match self.connection {
            RequestConnection::Same => true,
            RequestConnection::Upgrading if name.eq_ignore_ascii_case("upgrade") => upgrades(),
            RequestConnection::Upgrading if is_connection(name) => {
                list_elements(value).any(|option| option.eq_ignore_ascii_case(b"upgrade"))
            }
            // gRPC needs it.
            _ if name.eq_ignore_ascii_case("te") => {
                value.trim_ascii().eq_ignore_ascii_case(b"trailers")
            }
            // The body follows at once, and no interim response is waited for.
            _ if name.eq_ignore_ascii_case("expect") => false,
            _ => !is_hop_by_hop(name) && !self.names_field(name),
        }
    }

    /// Returns true if `Connection` names a field that may be left out for it.
    fn names_field(&self, name: &str) -> bool {
        let is_it = |option: &&[u8]| option.eq_ignore_ascii_case(name.as_bytes());
        may_be_named(name.as_bytes()) && self.named.iter().any(is_it)
    }
}

/// Returns the fields behind a captured body that may be sent there.
fn captured_trailers(message: &CapturedMessage) -> HeaderMap {
    let header = |(name, value): (String, Vec<u8>)| {
        let field = (HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
        may_trail(&field.0).then_some(field)
    };
    message.exact_trailers().into_iter().filter_map(header).collect()
}

fn is_host(name: &str) -> bool {
    name.eq_ignore_ascii_case("host")
}

fn is_connection(name: &str) -> bool {
    name.eq_ignore_ascii_case("connection")
}

/// Returns true if a field describes the framing of the body or concerns one connection. `TE` does not count:
/// gRPC needs it.
pub(super) fn is_made_anew(name: &str) -> bool {
    is_framing(name) || is_hop_by_hop(name) && !name.eq_ignore_ascii_case("te")
}

/// Returns true if a field describes the framing of the body.
fn is_framing(name: &str) -> bool {
    ["content-length", "trailer", CHUNKED.0].iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn captured(head: &str, body: &str) -> CapturedMessage {
        let mut message = CapturedMessage::new(head.as_bytes(), false);
        message.body = body.as_bytes().to_vec().into();
        message.body_length = body.len() as u64;
        message
    }

    fn imported(head: &str, body: &str, origin: &str) -> String {
        let imported_from = Some(origin.to_owned());
        let source = CaptureSource { imported_from, ..CaptureSource::default() };
        String::from_utf8(replay_bytes(&captured(head, body), &source)).unwrap()
    }

    #[test]
    fn an_imported_request_is_framed_from_its_body() {
        let expected = "POST /a HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 5\r\n\r\nhello";

        for fields in [
            "Host: shop.test\r\n",
            "Host: shop.test\r\nContent-Length: 5\r\n",
            "Host: shop.test\r\nContent-Length: 999\r\n",
            "Host: shop.test\r\nContent-Length: 1\r\nContent-Length: 5\r\n",
            "Host: shop.test\r\nContent-Length: x\r\n",
            "Transfer-Encoding: chunked\r\nhost: shop.test\r\n",
            "Host: shop.test\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 7\r\n",
            "Host: other.test\r\nHost: shop.test\r\n",
            "Host: shop.test\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n",
            "Host: shop.test\r\nProxy-Connection: close\r\nTE: gzip\r\nExpect: 100-continue\r\n",
            "Host: shop.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nTrailer: x\r\n",
            "",
        ] {
            let head = format!("POST /a HTTP/1.1\r\n{fields}\r\n");

            assert_eq!(imported(&head, "hello", "https://shop.test"), expected, "{fields}");
        }
    }

    #[test]
    fn the_host_of_an_imported_request_is_that_of_its_url() {
        for (origin, host) in [
            ("https://shop.test:443", "shop.test"),
            ("http://shop.test:443", "shop.test:443"),
            ("wss://SHOP.test", "shop.test"),
            ("http://[::1]:80", "[::1]"),
            ("http://a b", "a b"),
        ] {
            let sent = imported("GET / HTTP/1.1\r\n\r\n", "", origin);

            assert_eq!(sent, format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        }
    }

    #[test]
    fn a_captured_request_is_sent_as_it_came() {
        for (head, body) in [
            ("POST /\u{e9}?\" HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nX: 1\r\n\r\n", "hello"),
            ("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", ""),
            ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTE: trailers\r\n\r\n", ""),
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""),
        ] {
            let sent = replay_bytes(&captured(head, body), &CaptureSource::default());

            assert_eq!(String::from_utf8(sent).unwrap(), format!("{head}{body}"));
        }
    }

    #[test]
    fn a_request_without_a_body_has_a_length_if_its_method_expects_one() {
        let sent = imported("POST / HTTP/1.1\r\n\r\n", "", "http://a.test");
        assert!(sent.contains("\r\nContent-Length: 0\r\n"), "{sent}");
        let sent = imported("GET / HTTP/1.1\r\n\r\n", "", "http://a.test");
        assert!(!sent.contains("Length"), "{sent}");
    }

    #[test]
    fn a_body_that_is_kept_decoded_is_sent_without_its_coding() {
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\n\r\n";
        let mut message = captured(head, "hello");
        message.is_decoded = true;

        let sent = replay_bytes(&message, &CaptureSource::default());

        let expected = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(sent, expected);
    }

    #[test]
    fn fields_behind_a_body_are_sent_there_again() {
        let head = "POST / HTTP/1.1\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut message = captured(head, "hello");
        message.chunked = true;
        message.trailer = b"x-sum: 7\r\nContent-Length: 9\r\n\r\n".to_vec();

        let sent = replay_bytes(&message, &CaptureSource::default());

        let expected = format!("{head}5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n");
        assert_eq!(String::from_utf8(sent).unwrap(), expected);
    }
}
