//! Bodies of HTTP/1.1 without their framing.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Frame, SizeHint};

use ginnel_http1::{self as http1, Body, FramingError, LINE_END};

/// What is shorter is copied out of its buffer.
const MAX_COPIED_BYTES: usize = 2 << 10;

/// Reads a body out of a buffer, and the fields behind it.
#[derive(Debug)]
pub struct Http1BodyReader {
    body: Body,
    /// The lines behind the last chunk, as far as they have come.
    trailer: Vec<u8>,
}

impl Http1BodyReader {
    pub fn new(body: Body) -> Self {
        Self { body, trailer: Vec::new() }
    }

    /// Whether all of it was read.
    pub fn is_done(&self) -> bool {
        self.body.is_done()
    }

    /// Whether only the end of the connection ends it.
    pub fn is_until_close(&self) -> bool {
        self.body == Body::UntilClose
    }

    /// Returns true if padding was read that strict readers refuse.
    pub fn has_padding(&self) -> bool {
        self.body.has_padding()
    }

    /// Takes what there is of the body out of a buffer.
    ///
    /// # Errors
    /// When its framing is broken.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Bytes, FramingError> {
        let (mut data, mut is_raw) = (BytesMut::new(), false);
        let Self { body, trailer } = self;
        let is_chunked = matches!(body, Body::Chunks(_));
        let taken = body.take_all(
            buffer,
            |piece| match is_chunked {
                true => data.extend_from_slice(piece),
                false => is_raw = true,
            },
            |byte| trailer.push(byte),
        )?;
        if is_raw && taken > MAX_COPIED_BYTES {
            return Ok(buffer.split_to(taken).freeze());
        }
        // The buffer stays whole, for what comes next.
        if is_raw {
            data.extend_from_slice(buffer.get(..taken).unwrap_or_default());
        }
        buffer.advance(taken);
        Ok(data.freeze())
    }

    /// Whether there are fields behind the body.
    pub fn has_trailers(&self) -> bool {
        self.is_done() && self.trailer.len() > LINE_END.len()
    }

    /// The fields behind the body, once.
    pub fn take_trailers(&mut self) -> Option<Frame<Bytes>> {
        if !self.has_trailers() {
            return None;
        }
        let lines = std::mem::take(&mut self.trailer);
        let trailers: HeaderMap = http1::read_fields(&lines, |fields| {
            let fields = fields.iter().filter_map(|field| {
                let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
                Some((name, HeaderValue::from_bytes(field.value).ok()?))
            });
            fields.collect()
        })?;
        Some(Frame::trailers(trailers))
    }

    pub fn size_hint(&self) -> SizeHint {
        match self.body {
            Body::Length(left) => SizeHint::with_exact(left),
            Body::Chunks(_) | Body::UntilClose => SizeHint::default(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_body_loses_its_framing_and_keeps_its_trailers() {
        let bytes = b"2\r\nhe\r\n3;x\r\nllo\r\n0\r\nX-Sum: 7\r\n\r\nnext";
        for piece in 1..bytes.len() {
            let (mut decoder, mut data) = (Http1BodyReader::new(Body::CHUNKED), Vec::new());
            let mut buffer = BytesMut::new();
            for piece in bytes.chunks(piece) {
                buffer.extend_from_slice(piece);
                if !decoder.is_done() {
                    data.extend_from_slice(&decoder.decode(&mut buffer).unwrap());
                }
            }

            assert_eq!((data.as_slice(), &buffer[..]), (&b"hello"[..], &b"next"[..]), "{piece}");
            let trailers = decoder.take_trailers().unwrap().into_trailers().unwrap();
            assert_eq!(trailers["x-sum"], "7");
            assert!(!decoder.has_trailers());
        }
    }

    #[test]
    fn a_length_is_known_until_the_end() {
        let mut decoder = Http1BodyReader::new(Body::Length(5));
        let mut buffer = BytesMut::from("hel");

        assert_eq!(decoder.decode(&mut buffer).unwrap(), "hel");
        assert_eq!(decoder.size_hint().exact(), Some(2));
        buffer.extend_from_slice(b"lo GET");
        assert_eq!(decoder.decode(&mut buffer).unwrap(), "lo");
        assert_eq!((decoder.is_done(), &buffer[..]), (true, &b" GET"[..]));
    }
}
