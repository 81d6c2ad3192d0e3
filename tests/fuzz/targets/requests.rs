//! Requests on a connection: where each begins and ends, and what its body is.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::HeaderMap;
use tokio::io::{AsyncRead, ReadBuf};

use ginnel_http1::{Body, BodyLength, Expects, StrictStream};

use crate::fuzz::hyper_peer;
use crate::fuzz::pieces::{Arriving, CUTS, Cut};

/// What the parser behind gets in the place of what is ambiguous.
const INVALID: &[u8] = b"\0\n\r\n\r\n";
/// More fields than hyper takes.
const MAX_FIELDS: usize = 256;

/// The framing is the same however the requests arrive, and hyper sees the same requests behind it.
pub fn target(data: &[u8]) {
    let whole = Passed::read(data, Cut::Whole);
    for cut in CUTS {
        assert_same(&whole, &Passed::read(data, cut));
    }
    let announced = announced(&whole.bytes);
    let seen = hyper_peer::requests(StrictStream::new(Arriving::new(data, Cut::Random)));
    assert!(seen.len() <= announced.len(), "hyper sees {seen:?}, and not {announced:?}");
    for (seen, announced) in seen.iter().zip(&announced) {
        assert_eq!(seen.method, announced.method);
        assert_eq!(seen.headers, announced.headers);
        assert_eq!(seen.body.is_complete, announced.is_complete, "{announced:?}");
        assert!(announced.data.starts_with(&seen.body.data), "{seen:?}, and not {announced:?}");
        if seen.body.is_complete {
            assert_eq!(seen.body.data.len(), announced.data.len());
        }
    }
}

/// What a strict stream passes on.
#[derive(Debug)]
struct Passed {
    bytes: Vec<u8>,
    /// What is missing; none when something was refused.
    expects: Option<Expects>,
}

impl Passed {
    fn read(data: &[u8], cut: Cut) -> Self {
        let mut stream = StrictStream::new(Arriving::new(data, cut));
        let mut bytes = Vec::new();
        let mut room = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut room);
            let mut context = Context::from_waker(Waker::noop());
            let read = Pin::new(&mut stream).poll_read(&mut context, &mut buffer);
            assert!(matches!(read, Poll::Ready(Ok(()))));
            if buffer.filled().is_empty() {
                break;
            }
            bytes.extend_from_slice(buffer.filled());
        }
        if !stream.has_refused() {
            return Self { bytes, expects: Some(stream.expected_part()) };
        }
        let fine = bytes.strip_suffix(INVALID).expect("what is refused ends with what is invalid");
        Self { bytes: fine.to_vec(), expects: None }
    }
}

/// In pieces, the beginning of a line has gone on before its end is refused.
fn assert_same(whole: &Passed, cut: &Passed) {
    assert_eq!(whole.expects, cut.expects);
    match whole.expects {
        Some(_) => assert_eq!(whole.bytes, cut.bytes),
        None => assert!(cut.bytes.starts_with(&whole.bytes), "{whole:?} {cut:?}"),
    }
}

/// A request whose borders are read here.
#[derive(Debug)]
struct Announced {
    method: String,
    headers: HeaderMap,
    data: Vec<u8>,
    is_complete: bool,
}

/// The requests of bytes that were passed on, one after the other, until one is incomplete.
fn announced(mut bytes: &[u8]) -> Vec<Announced> {
    let mut requests = Vec::new();
    while let Some((request, length)) = first(bytes) {
        let is_complete = request.is_complete;
        requests.push(request);
        if !is_complete {
            break;
        }
        bytes = &bytes[length..];
    }
    requests
}

fn first(bytes: &[u8]) -> Option<(Announced, usize)> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(head) = parsed.parse(bytes).ok()? else { return None };
    let (mut length, mut headers) = (BodyLength::default(), HeaderMap::new());
    for field in parsed.headers.iter() {
        length.read_field(field.name.as_bytes(), field.value).expect("the stream has read it");
        let name = http::HeaderName::from_bytes(field.name.as_bytes()).unwrap();
        headers.append(name, http::HeaderValue::from_bytes(field.value).unwrap());
    }
    let body = length.to_body(parsed.version == Some(1)).expect("the stream has read it");
    let (mut body, mut data) = (body.unwrap_or(Body::NONE), Vec::new());
    let taken = body.take(&bytes[head..], |piece| data.extend_from_slice(piece));
    let taken = taken.expect("the stream has read it");
    let method = parsed.method.unwrap_or_default().to_owned();
    Some((Announced { method, headers, data, is_complete: body.is_done() }, head + taken))
}
