//! Which requests may go the fast path; free of I/O.

use std::ops::Range;
use std::sync::Arc;

use http::HeaderName;

use ginnel_http1::{
    Body, HeadField, HeadLine, HeadWriter, RequestHead, head_lines, is_forwarded, is_hop_by_hop,
};
use ginnel_policy::head_change::HeadChange;

use crate::message::forwarded::VisitorOrigin;
use crate::message::forwarded_head::{self, MAX_PATH_BYTES};
use crate::message::rule_notes;

/// A request that only wants to be carried; the places are those in its bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct FastPathRequest {
    /// How many bytes its head has.
    pub length: usize,
    pub body: Body,
    pub is_head: bool,
    /// Whether it changes nothing.
    pub is_safe: bool,
    /// Whether the connection is to close afterwards.
    pub closes: bool,
    /// Whether it says what only proxies may say.
    pub is_forwarded: bool,
    /// The path without its query.
    pub path: Range<usize>,
    pub host: Range<usize>,
    /// What modules change about the head.
    pub changes: Vec<Arc<HeadChange>>,
}

impl FastPathRequest {
    /// Whether it may be sent twice.
    pub fn is_repeatable(&self) -> bool {
        self.is_safe && self.body.is_done()
    }

    /// Whether a module removes a line of the head.
    fn removes_line(&self, line: HeadLine<'_>) -> bool {
        self.changes.iter().any(|change| change.removes_field(line.name()))
    }
}

/// Looks at a request; none where it is not only to be carried.
pub fn classify_request(head: &RequestHead<'_, '_>) -> Option<FastPathRequest> {
    let (bytes, method, target) = (head.bytes, head.method, head.target);
    if !head.is_http_1_1 || !is_plain_target(target) || method == "CONNECT" {
        return None;
    }
    let (mut host, mut closes, mut forwarded) = (None, false, false);
    for header in head.fields {
        if header.name.eq_ignore_ascii_case("host") {
            if host.replace(header.value).is_some() || !forwarded_head::is_host(header.value) {
                return None;
            }
        } else if header.name.eq_ignore_ascii_case("connection") {
            match header.value {
                value if value.eq_ignore_ascii_case(b"close") => closes = true,
                value if value.eq_ignore_ascii_case(b"keep-alive") => {}
                _ => return None,
            }
        } else if is_special(header) {
            return None;
        } else {
            forwarded |= is_forwarded(header.name.as_bytes());
        }
    }
    let path = target.split('?').next().unwrap_or(target);
    Some(FastPathRequest {
        length: bytes.len(),
        body: head.body.clone(),
        is_head: method == "HEAD",
        is_safe: matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE"),
        closes,
        is_forwarded: forwarded,
        path: range_of(bytes, path.as_bytes())?,
        host: range_of(bytes, host?)?,
        changes: Vec::new(),
    })
}

/// Whether the target of a request is a path of nothing but what belongs there (RFC 3986,
/// section 3.3); others may be fine, which is for the full path to say.
fn is_plain_target(target: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte);
    target.starts_with('/') && target.len() <= MAX_PATH_BYTES && target.bytes().all(is_plain)
}

/// Where a part of some bytes lies.
fn range_of(bytes: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
    let range_of = start..start + part.len();
    bytes.get(range_of.clone()).map(|_| range_of)
}

/// Whether a header says how the request is to be handled, or which services it came through. How the
/// body is framed stays, because it goes on as it was written.
fn is_special(header: &HeadField<'_>) -> bool {
    let is = |name: &str| header.name.eq_ignore_ascii_case(name);
    match header.name.len() {
        6 => is("expect"),
        7 if is("trailer") => true,
        8 => is("cdn-loop"),
        17 if is("transfer-encoding") => false,
        19 => is("proxy-authorization"),
        _ => is_hop_by_hop(header.name),
    }
}

/// Writes a head as it goes on: its own lines, but for what only proxies may say, then whose changes these
/// are, where somebody asks, and who asks, unless that is known there.
pub fn rewrite_request_head(
    bytes: &[u8],
    request: &FastPathRequest,
    (origin, rules_header): (Option<&VisitorOrigin>, Option<(&HeaderName, bool)>),
    out: &mut Vec<u8>,
) {
    let mut head = HeadWriter::resume(out);
    for line in head_lines(bytes.get(..request.length).unwrap_or_default()) {
        // It says "close" or "keep-alive", which concerns this connection alone.
        let is_connection = line.has_name("connection");
        let is_claim = request.is_forwarded && is_forwarded(line.name());
        if !is_connection && !is_claim && !request.removes_line(line) {
            head.lines(line.0);
        }
    }
    for (name, value) in request.changes.iter().flat_map(|change| &change.added) {
        head.field(name, value);
    }
    if let Some((name, is_own)) = rules_header {
        let notes = request.changes.iter().filter_map(|change| change.notes.get());
        let notes = notes.map(|notes| notes.for_agent(is_own));
        if let Some(value) = rule_notes::join_notes(notes) {
            head.field(name, value);
        }
    }
    let host = bytes.get(request.host.clone()).unwrap_or_default();
    if let Some(origin) = origin {
        origin.write_fields(host, &mut head);
    }
    head.end();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn plain(bytes: &[u8]) -> Option<FastPathRequest> {
        ginnel_http1::read_request(bytes, classify_request).ok().flatten().flatten()
    }

    #[test]
    fn a_request_goes_on_as_it_was_written() {
        let bytes = b"GET /a?b=c HTTP/1.1\r\nHOST: A.test:80\r\nconnection: Keep-Alive\r\n\
                      X-Odd:  two  \r\n\r\nGET";
        let request = plain(bytes).unwrap();
        let origin = VisitorOrigin::new("192.0.2.1".parse().unwrap(), "http");

        let mut out = Vec::new();
        rewrite_request_head(bytes, &request, (Some(&origin), None), &mut out);

        assert_eq!((&bytes[request.path.clone()], request.is_safe), (&b"/a"[..], true));
        assert!(!request.closes);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "GET /a?b=c HTTP/1.1\r\nHOST: A.test:80\r\nX-Odd:  two  \r\n\
             x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: http\r\n\
             x-forwarded-host: A.test:80\r\ncdn-loop: ginnel\r\n\r\n"
        );
    }

    #[test]
    fn what_a_visitor_says_for_proxies_is_left_out() {
        let bytes = b"GET / HTTP/1.1\r\nX-Forwarded-For: 1\r\nHost: a\r\nx_real_ip: 2\r\n\
                      FORWARDED: for=3\r\nX-Forwarded-For: 4\r\nX-Mine: 5\r\n\r\n";
        let request = plain(bytes).unwrap();
        let origin = VisitorOrigin::new("192.0.2.1".parse().unwrap(), "https");

        let mut out = Vec::new();
        rewrite_request_head(bytes, &request, (Some(&origin), None), &mut out);

        assert!(request.is_forwarded);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "GET / HTTP/1.1\r\nHost: a\r\nX-Mine: 5\r\nx-forwarded-for: 192.0.2.1\r\n\
             x-forwarded-proto: https\r\nx-forwarded-host: a\r\ncdn-loop: ginnel\r\n\r\n"
        );
    }

    #[test]
    fn whatever_is_special_goes_the_long_way() {
        for line in [
            "Content-Length: +1",
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Trailer: x",
            "Connection: close, x-mine",
            "Connection: upgrade",
            "Upgrade: websocket",
            "TE: trailers",
            "Expect: 100-continue",
            "CDN-Loop: ginnel",
            "Host: b",
            " folded",
            "Name : x",
        ] {
            let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n");
            assert_eq!(plain(bytes.as_bytes()), None, "{line}");
        }
        for bytes in [
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /a\"b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /é HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "\0",
        ] {
            assert_eq!(plain(bytes.as_bytes()), None, "{bytes:?}");
        }
        let last = plain(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n");
        assert!(last.is_some_and(|last| last.closes));
    }
}
