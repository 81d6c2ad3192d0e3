//! The body of a request, on its way into a stream.

use std::future::poll_fn;

use bytes::{Buf, Bytes, BytesMut};
use h2::SendStream;
use tokio::io::{AsyncRead, AsyncReadExt};

use ginnel_http1::Body;

use super::heads;

/// How much of a body is kept, in case that the stream is refused and another must be tried.
const MAX_REPLAYABLE_BYTES: usize = 64 * 1024;
/// How much of what follows the body is read.
const MAX_READ_AHEAD_BYTES: usize = 64 * 1024;
/// How much is read at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// A body that is sent; it can be sent again while all of it is kept.
pub(super) struct Upload {
    body: Body,
    trailer: Vec<u8>,
    replayable: Vec<Bytes>,
    forgotten: bool,
    ended: bool,
}

/// The stream takes no more.
pub(super) struct UploadError;

impl Upload {
    pub fn new(body: Body) -> Self {
        Self { body, trailer: Vec::new(), replayable: Vec::new(), forgotten: false, ended: false }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.body == Body::NONE && self.replayable.is_empty()
    }

    /// Whether all of it was sent.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether all of it can be sent again.
    pub fn is_replayable(&self) -> bool {
        !self.forgotten
    }

    /// Sends it; ends only when the visitor goes away.
    pub async fn run(
        &mut self,
        stream: &mut SendStream<Bytes>,
        read: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
    ) {
        match self.send_body(stream, read, buffer).await {
            Ok(true) => self.ended = true,
            Ok(false) => return,
            // What became of the stream shows in the answer.
            Err(UploadError) => {}
        }
        while buffer.len() < MAX_READ_AHEAD_BYTES {
            match read.read_buf(buffer).await {
                Ok(1..) => {}
                _ => return,
            }
        }
        std::future::pending().await
    }

    /// False when the visitor goes away before the end.
    async fn send_body(
        &mut self,
        stream: &mut SendStream<Bytes>,
        read: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
    ) -> Result<bool, UploadError> {
        if self.is_empty() {
            return Ok(true);
        }
        for piece in self.replayable.clone() {
            send_piece(stream, piece, false).await?;
        }
        while !self.body.is_done() {
            if buffer.is_empty() {
                buffer.reserve(CHUNK_BYTES);
                match read.read_buf(buffer).await {
                    Ok(1..) => {}
                    _ => return Ok(false),
                }
            }
            // A body that cannot be followed ends the connection.
            let Some(piece) = self.take_piece(buffer) else { return Ok(false) };
            let ends = self.body.is_done() && self.trailer.len() <= 2;
            send_piece(stream, piece, ends).await?;
            if ends {
                return Ok(true);
            }
        }
        match heads::translate_trailers(&self.trailer) {
            Some(trailers) => stream.send_trailers(trailers).map_err(|_| UploadError)?,
            None => stream.send_data(Bytes::new(), true).map_err(|_| UploadError)?,
        }
        Ok(true)
    }

    /// The next piece, without framing; none when that is broken.
    fn take_piece(&mut self, buffer: &mut BytesMut) -> Option<Bytes> {
        let mut piece = BytesMut::with_capacity(buffer.len());
        let trailer = &mut self.trailer;
        let taken = self.body.take_all(
            buffer,
            |data| piece.extend_from_slice(data),
            |byte| trailer.push(byte),
        );
        buffer.advance(taken.ok()?);
        let piece = piece.freeze();
        self.keep_replayable(&piece);
        Some(piece)
    }

    fn keep_replayable(&mut self, piece: &Bytes) {
        let replayable: usize = self.replayable.iter().map(Bytes::len).sum();
        if self.forgotten || replayable + piece.len() > MAX_REPLAYABLE_BYTES {
            self.forgotten = true;
            self.replayable = Vec::new();
        } else if !piece.is_empty() {
            self.replayable.push(piece.clone());
        }
    }
}

/// Sends bytes as the local service makes room for them.
pub(super) async fn send_piece(
    stream: &mut SendStream<Bytes>,
    mut piece: Bytes,
    ends: bool,
) -> Result<(), UploadError> {
    if piece.is_empty() && ends {
        return stream.send_data(piece, true).map_err(|_| UploadError);
    }
    while !piece.is_empty() {
        stream.reserve_capacity(piece.len());
        while stream.capacity() == 0 {
            match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(Ok(_)) => {}
                _ => return Err(UploadError),
            }
        }
        let part = piece.split_to(stream.capacity().min(piece.len()));
        stream.send_data(part, ends && piece.is_empty()).map_err(|_| UploadError)?;
    }
    Ok(())
}
