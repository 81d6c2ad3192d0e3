//! Bodies of a length, in chunks with trailers, and until the close.

use std::fmt::Write;

use http::{HeaderMap, HeaderName, HeaderValue};

use ginnel_http1::Body;

use crate::fuzz::hyper_peer;
use crate::fuzz::pieces::{Arriving, CUTS, Cut, pieces};

/// The first byte says how the body is framed; the others are the body.
pub fn target(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let body = match first {
        b'c' => Body::CHUNKED,
        b'u' => Body::UntilClose,
        length => Body::Length(u64::from(*length)),
    };
    let whole = BodyRead::read(body.clone(), bytes, Cut::Whole);
    for cut in CUTS {
        assert_eq!(BodyRead::read(body.clone(), bytes, cut), whole, "{cut:?}");
    }
    assert_eq!(body.check_bytes(bytes).is_ok(), whole.is_fine);
    if body == Body::CHUNKED && whole.is_done {
        assert_same_as_hyper(&bytes[..whole.taken], &whole);
        assert_reads_again(bytes, &whole);
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct BodyRead {
    data: Vec<u8>,
    trailer: Vec<u8>,
    /// How many bytes belong to the body, or are fine.
    taken: usize,
    is_fine: bool,
    is_done: bool,
}

impl BodyRead {
    fn read(mut body: Body, bytes: &[u8], cut: Cut) -> Self {
        let mut read = Self { is_fine: true, ..Self::default() };
        for piece in pieces(bytes, cut) {
            let data = |piece: &[u8]| read.data.extend_from_slice(piece);
            match body.take_all(piece, data, |byte| read.trailer.push(byte)) {
                Ok(taken) => read.taken += taken,
                Err(error) => {
                    read.taken += error.fine;
                    read.is_fine = false;
                    return read;
                }
            }
        }
        Self { is_done: body.is_done(), ..read }
    }

    fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        for line in self.trailer.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
            if let Some(colon) = line.iter().position(|byte| *byte == b':') {
                let name = HeaderName::from_bytes(&line[..colon]).expect("a name was read");
                let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
                trailers.append(name, value.expect("a value was read"));
            }
        }
        trailers
    }
}

fn assert_same_as_hyper(bytes: &[u8], read: &BodyRead) {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let requests = hyper_peer::requests(Arriving::new(&[head, bytes].concat(), Cut::Random));
    let [request] = requests.as_slice() else { panic!("hyper reads {requests:?}") };
    assert!(request.body.is_complete, "hyper refuses it");
    assert_eq!(request.body.data, read.data);
    assert_eq!(request.body.trailers, read.trailers());
}

/// Writes the data in chunks of lengths that depend on it, and the trailer as it was.
fn assert_reads_again(bytes: &[u8], read: &BodyRead) {
    let mut text = String::new();
    let mut written = Vec::new();
    for piece in pieces(&read.data, Cut::Random) {
        text.clear();
        write!(text, "{:x}\r\n", piece.len()).unwrap();
        written.extend_from_slice(text.as_bytes());
        written.extend_from_slice(piece);
        written.extend_from_slice(b"\r\n");
    }
    written.extend_from_slice(b"0\r\n");
    written.extend_from_slice(&read.trailer);

    let again = BodyRead::read(Body::CHUNKED, &written, Cut::Random);

    assert_eq!((&again.data, &again.trailer), (&read.data, &read.trailer), "{bytes:?}");
    assert!(again.is_done && again.taken == written.len());
}
