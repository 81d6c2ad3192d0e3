//! Tunnels of HTTP proxies: CONNECT (RFC 9110, section 9.3.6).
//!
//! The heads of answers are not read by `http1`, which refuses what is ambiguous about a body: a successful
//! answer has none, whatever its fields say, and they are to be ignored. Its status line is all that
//! counts, and not one byte behind the head may be taken.

use std::io::{Read, Write};

use http::StatusCode;
use http::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};

use ginnel_http1::HeadWriter;

use super::{ProxyError, TunnelTarget};

/// How long the heads of a proxy's answer may be.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// How much of a proxy's reason phrase an error shows.
const MAX_REASON_CHARS: usize = 100;
/// How every answer begins.
const VERSION: &[u8] = b"HTTP/1.";

/// Asks for a tunnel. What a successful answer says of a body means nothing: the tunnel begins right
/// behind its head.
pub(super) fn open_tunnel(
    stream: &mut (impl Read + Write),
    target: &TunnelTarget<'_>,
    port: u16,
    authorization: Option<&HeaderValue>,
) -> Result<(), ProxyError> {
    stream.write_all(&encode_request(target, port, authorization))?;
    stream.flush()?;
    let mut left = MAX_HEAD_BYTES;
    loop {
        let head = read_head(stream, left)?;
        left -= head.len();
        let (status, reason) = parse_status_line(&head)?;
        match status {
            _ if status.is_success() => return Ok(()),
            // Another answer follows, except where the protocol changes, which nobody asked for.
            _ if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS => {}
            _ => return Err(refused_error(status, &reason)),
        }
    }
}

fn encode_request(
    target: &TunnelTarget<'_>,
    port: u16,
    authorization: Option<&HeaderValue>,
) -> Vec<u8> {
    let host = match target {
        TunnelTarget::Name(name) => (*name).to_owned(),
        TunnelTarget::Address(address) if address.is_ipv6() => format!("[{address}]"),
        TunnelTarget::Address(address) => address.to_string(),
    };
    let authority = format!("{host}:{port}");
    let mut request = Vec::new();
    let mut head = HeadWriter::begin_request("CONNECT", &[&authority], &mut request);
    head.field(HOST, &authority);
    if let Some(value) = authorization {
        head.field(PROXY_AUTHORIZATION, value);
    }
    head.end();
    request
}

/// One head, up to its empty line. Byte by byte, since what follows is the origin's.
fn read_head(stream: &mut impl Read, max: usize) -> Result<Vec<u8>, ProxyError> {
    let mut head = Vec::with_capacity(256);
    while !(head.ends_with(b"\n\r\n") || head.ends_with(b"\n\n")) {
        if head.len() == max {
            return Err(malformed_error(format!("its head is longer than {MAX_HEAD_BYTES} bytes")));
        }
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
        // What is no HTTP may never come to an empty line.
        if !head.iter().zip(VERSION).all(|(byte, expected)| byte == expected) {
            return Err(malformed_error(format!("it begins with \"{}\"", head.escape_ascii())));
        }
    }
    Ok(head)
}

/// Status and reason phrase of a head.
fn parse_status_line(head: &[u8]) -> Result<(StatusCode, String), ProxyError> {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let parsed = match line.strip_prefix(VERSION) {
        Some([b'0'..=b'9', b' ', code @ ..]) if code.get(3).is_none_or(|byte| *byte == b' ') => {
            let code = code.get(..3).and_then(|code| StatusCode::from_bytes(code).ok());
            code.filter(|code| code.as_u16() < 600)
        }
        _ => None,
    };
    let status = parsed.ok_or_else(|| {
        let shown = line.get(..MAX_REASON_CHARS).unwrap_or(line);
        malformed_error(format!("its status line is \"{}\"", shown.escape_ascii()))
    })?;
    Ok((status, reason_phrase(status, line)))
}

/// The reason phrase of a status line, or the usual one, as a text that can be shown.
fn reason_phrase(status: StatusCode, line: &[u8]) -> String {
    let own = String::from_utf8_lossy(line.get(VERSION.len() + 6..).unwrap_or_default());
    let own = own.trim().chars().filter(|letter| !letter.is_control()).take(MAX_REASON_CHARS);
    match own.collect::<String>() {
        own if own.is_empty() => status.canonical_reason().unwrap_or_default().to_owned(),
        own => own,
    }
}

fn refused_error(status: StatusCode, reason: &str) -> ProxyError {
    let reason = format!("{} {reason}", status.as_u16()).trim_end().to_owned();
    let is_transient = status.is_server_error() || matches!(status.as_u16(), 408 | 429);
    ProxyError::Refused { reason, is_transient }
}

fn malformed_error(problem: String) -> ProxyError {
    ProxyError::Malformed { protocol: "HTTP", problem }
}
