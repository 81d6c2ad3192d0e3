//! Heads of requests, and the facts of responses that the relay must know; free of I/O.

use bytes::{Buf, Bytes, BytesMut};

use ginnel_http1::{
    self as http1, Body, HeadError, HeadField, RequestHead, ResponseHead, is_proper_upgrade,
    list_elements,
};
use ginnel_mux::protocol::rules_header;

/// The head of a request.
#[derive(Debug)]
pub(super) struct RelayRequest {
    pub is_head: bool,
    /// Whether sending it twice does what sending it once does.
    pub is_idempotent: bool,
    pub body: Body,
    /// Whether another request may follow.
    pub keep_alive: bool,
    pub upgrade: bool,
    /// Whether the protocol that it asks for is that of WebSockets.
    pub is_websocket: bool,
    pub target: String,
    /// What the visitor named.
    pub host: Option<Vec<u8>>,
    /// Whether a header may say which rules acted on the request.
    pub may_name_rules: bool,
    /// True if it asks for a protocol that no local service may be asked for.
    pub has_improper_upgrade: bool,
}

/// The head of an answer.
#[derive(Debug)]
pub(super) struct RelayResponse {
    pub length: usize,
    pub status: u16,
    pub body: Body,
    pub keep_alive: bool,
}

impl RelayResponse {
    pub fn from_head(head: &ResponseHead<'_, '_>) -> Self {
        let (length, status) = (head.bytes.len(), head.status);
        Self { length, status, body: head.body.clone(), keep_alive: head.keeps_alive }
    }
}

/// Takes the head of a request out of a buffer, and gives its bytes with it; none while it is
/// incomplete.
pub(super) fn take_request(
    buffer: &mut BytesMut,
) -> Result<Option<(RelayRequest, Bytes)>, HeadError> {
    let taken = take_request_as(buffer, |_| ())?;
    Ok(taken.map(|(request, (), bytes)| (request, bytes)))
}

/// As [`take_request`], with what else somebody has to know of the head.
///
/// One empty line before it is no part of it, and is taken as well (RFC 9112, section 2.2).
pub(super) fn take_request_as<T>(
    buffer: &mut BytesMut,
    read: impl FnOnce(&RequestHead<'_, '_>) -> T,
) -> Result<Option<(RelayRequest, T, Bytes)>, HeadError> {
    let bytes = match buffer.as_ref() {
        b"" | b"\r" => return Ok(None),
        [b'\r', b'\n', bytes @ ..] => bytes,
        bytes => bytes,
    };
    let skipped = buffer.len() - bytes.len();
    let taken = http1::read_request(bytes, |head| {
        Ok::<_, HeadError>((to_relay_request(head)?, read(head), head.bytes.len()))
    })?;
    let Some((request, read, length)) = taken.transpose()? else { return Ok(None) };
    buffer.advance(skipped);
    Ok(Some((request, read, buffer.split_to(length).freeze())))
}

fn to_relay_request(head: &RequestHead<'_, '_>) -> Result<RelayRequest, HeadError> {
    let fields = HeadFields::from_headers(head.fields)?;
    let upgrade = head.options.upgrade && fields.has_proper_upgrade;
    let is_idempotent =
        matches!(head.method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE" | "TRACE");
    Ok(RelayRequest {
        is_head: head.method == "HEAD",
        is_idempotent,
        body: head.body.clone(),
        keep_alive: head.options.is_persistent(head.is_http_1_1),
        upgrade,
        is_websocket: upgrade && fields.websocket,
        target: head.target.to_owned(),
        host: fields.host,
        may_name_rules: fields.may_name_rules,
        has_improper_upgrade: fields.has_improper_upgrade,
    })
}

/// The wishes of a request in its headers.
#[derive(Default)]
struct HeadFields {
    websocket: bool,
    has_proper_upgrade: bool,
    host: Option<Vec<u8>>,
    may_name_rules: bool,
    has_improper_upgrade: bool,
}

impl HeadFields {
    fn from_headers(headers: &[HeadField<'_>]) -> Result<Self, HeadError> {
        let mut fields = Self::default();
        let mut hosts = 0;
        for header in headers {
            match header.name.len() {
                4 if header.name.eq_ignore_ascii_case("host") => {
                    hosts += 1;
                    fields.host = Some(header.value.to_vec());
                }
                7 if header.name.eq_ignore_ascii_case("upgrade") => {
                    for protocol in list_elements(header.value) {
                        let is_proper = is_proper_upgrade(protocol);
                        fields.has_proper_upgrade |= is_proper;
                        fields.has_improper_upgrade |= !is_proper;
                        fields.websocket |= protocol.eq_ignore_ascii_case(b"websocket");
                    }
                }
                rules_header::NAME_BYTES => fields.may_name_rules = true,
                _ => {}
            }
        }
        if hosts > 1 {
            return Err(HeadError::Malformed("it names two hosts"));
        }
        Ok(fields)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_the_relay_must_know() {
        let bytes = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";

        let mut buffer = BytesMut::from(&bytes[..]);
        let (head, taken) = take_request(&mut buffer).unwrap().unwrap();
        assert_eq!((taken.len(), head.body, head.keep_alive), (48, Body::Length(3), true));
        assert_eq!((head.target.as_str(), head.host.as_deref()), ("/a", Some(&b"x"[..])));
        let two_hosts = b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n";
        let two_hosts = take_request(&mut BytesMut::from(&two_hosts[..])).unwrap_err();
        assert_eq!(two_hosts, HeadError::Malformed("it names two hosts"));
    }

    #[test]
    fn one_empty_line_before_a_request_is_no_part_of_it() {
        let request = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        let mut buffer = BytesMut::from(format!("\r\n{request}\r\n{request}abc").as_bytes());

        for _ in 0..2 {
            let (head, bytes) = take_request(&mut buffer).unwrap().unwrap();
            assert_eq!((head.target.as_str(), &bytes[..]), ("/a", request.as_bytes()));
        }
        assert_eq!(buffer, "abc");
        for part in ["", "\r", "\r\n", "\r\nGET /"] {
            assert!(take_request(&mut BytesMut::from(part)).unwrap().is_none(), "{part:?}");
        }
        for before in ["\r\n\r\n", "\n", "\r\n\n", "\r"] {
            let mut buffer = BytesMut::from(format!("{before}{request}").as_bytes());
            let refused = take_request(&mut buffer).unwrap_err();
            assert!(matches!(refused, HeadError::Malformed(_)), "{before:?}");
        }
    }
}
