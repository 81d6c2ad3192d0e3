//! Captured and imported requests as the writer of requests takes them.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use ginnel_base::address::Authority;
use ginnel_content::{OutgoingRequest, RequestConnection};
use ginnel_http1::may_trail;

use super::capture::{CaptureSource, CapturedMessage};

/// Returns the bytes that repeat a captured request, which must be whole.
pub(super) fn replay_bytes(request: &CapturedMessage, source: &CaptureSource) -> Vec<u8> {
    request.to_outgoing(source).to_bytes(replay_connection(source))
}

/// Returns the connection on which a captured request is repeated. An archive does not know the connection of its request.
pub(super) fn replay_connection(source: &CaptureSource) -> RequestConnection {
    match source.imported_from {
        Some(_) => RequestConnection::New,
        None => RequestConnection::Upgrading,
    }
}

/// Returns the value of `Host` for the scheme and authority of an imported request.
pub(super) fn host_of_origin(origin: &str) -> Cow<'_, str> {
    match Authority::parse(origin) {
        Ok(authority) => authority.host_header().into(),
        // Archives name hosts that no resolver knows, such as `a_b`.
        Err(_) => origin.split_once("://").map_or(origin, |(_, host)| host).into(),
    }
}

impl CapturedMessage {
    /// Returns the request without the framing that it came with. An imported one names the host of its URL.
    pub(super) fn to_outgoing(&self, source: &CaptureSource) -> OutgoingRequest {
        let mut outgoing = self.to_unframed();
        if let Some(origin) = &source.imported_from {
            outgoing.replace_host(&host_of_origin(origin));
        }
        outgoing
    }

    /// Returns the request with the host that its head names, without the framing that it came with.
    pub(super) fn to_unframed(&self) -> OutgoingRequest {
        let mut headers = self.exact_headers();
        if self.is_decoded {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-encoding"));
        }
        OutgoingRequest {
            start_line: self.exact_start_line().map(<[u8]>::to_vec),
            headers,
            body: self.body.bytes().into_owned(),
            trailers: captured_trailers(self),
        }
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
