//! Answers on a connection, as the clients read them.

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

use ginnel_http1::{self as http1, Body, HeadError, Response, ResponseHead, ResponseReader};

use crate::fuzz::hyper_peer;
use crate::fuzz::pieces::{Arriving, CUTS, Cut, pieces};

/// The largest body that is read.
const MAX_BODY_BYTES: usize = 64 << 10;
/// How many fields hyper reads.
const MAX_HYPER_FIELDS: usize = 100;

/// An answer is the same however it arrives; hyper reads the same, and so does the reader when it is
/// written again.
pub fn target(data: &[u8]) {
    let whole = read(data, Cut::Whole);
    let is_refused = !is_strictly_fine(data, Cut::Whole);
    for cut in CUTS {
        assert_eq!(
            read(data, cut).as_ref().map(Parts::of),
            whole.as_ref().map(Parts::of),
            "{cut:?}"
        );
        assert_eq!(is_strictly_fine(data, cut), !is_refused, "{cut:?}");
    }
    let Some(response) = whole else { return };
    let is_large = response.to_header_map().len() > MAX_HYPER_FIELDS;
    assert!(!is_refused || is_large, "the clients accept what the gateway refuses");
    assert_same_as_hyper(data, &response);
    assert_reads_again(&response);
}

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'r> {
    status: u16,
    headers: HeaderMap,
    body: &'r [u8],
    keeps_alive: bool,
    is_coded: bool,
}

impl<'r> Parts<'r> {
    fn of(response: &'r Response) -> Self {
        let (status, headers, body) = (response.status, response.to_header_map(), response.body());
        let (keeps_alive, is_coded) = (response.keeps_alive, response.is_coded);
        Self { status, headers, body, keeps_alive, is_coded }
    }
}

/// The answer that arrives and is followed by a close.
fn read(data: &[u8], cut: Cut) -> Option<Response> {
    let mut reader = ResponseReader::new(MAX_BODY_BYTES);
    for piece in pieces(data, cut) {
        if let Some(response) = reader.feed(piece).ok()? {
            return Some(response);
        }
    }
    reader.finish().ok()
}

/// Whether the gateway and the agent would pass the bytes on where one answer is awaited.
fn is_strictly_fine(data: &[u8], cut: Cut) -> bool {
    let (mut buffer, mut body) = (Vec::new(), None);
    for piece in pieces(data, cut) {
        buffer.extend_from_slice(piece);
        if body.is_none() {
            match read_final_head(&mut buffer) {
                Ok(read) => body = read,
                Err(_) => return false,
            }
        }
        if let Some(body) = &mut body {
            if body.take(&buffer, |_| {}).is_err() {
                return false;
            }
            buffer.clear();
        }
    }
    true
}

/// Takes heads out of a buffer up to the final one, and gives the body that follows it.
fn read_final_head(buffer: &mut Vec<u8>) -> Result<Option<Body>, HeadError> {
    let seen = |head: &ResponseHead<'_, '_>| (head.bytes.len(), head.status, head.body.clone());
    while let Some((length, status, body)) = http1::read_response(buffer, false, seen)? {
        buffer.drain(..length);
        if status == 101 || status >= 200 {
            return Ok(Some(body));
        }
        if buffer.is_empty() {
            break;
        }
    }
    Ok(None)
}

fn assert_same_as_hyper(data: &[u8], response: &Response) {
    let headers = response.to_header_map();
    // What comes unasked is an error there.
    if headers.len() > MAX_HYPER_FIELDS || response.has_surplus {
        return;
    }
    let (status, their_headers, body) =
        hyper_peer::response(Arriving::answer(data, Cut::Random)).expect("hyper refuses it");
    assert_eq!((status, &their_headers), (response.status, &headers));
    assert_eq!(body.data, response.body());
    assert!(body.is_complete);
}

fn assert_reads_again(response: &Response) {
    let mut headers = response.to_header_map();
    headers.remove(TRANSFER_ENCODING);
    if !matches!(response.status, 204 | 304) {
        headers.insert(CONTENT_LENGTH, response.body().len().into());
    }
    let mut text = format!("HTTP/1.1 {:03} \r\n", response.status).into_bytes();
    for (name, value) in &headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(response.body());

    let again = read(&text, Cut::Random).expect("what was written is read");

    assert_eq!((again.status, again.to_header_map()), (response.status, headers));
    assert_eq!((again.body(), again.has_surplus), (response.body(), false));
}
