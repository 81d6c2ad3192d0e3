//! Frames: the outermost form of everything on a session's connection. No I/O.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::Code;

/// Bytes before the body of a frame.
pub const FRAME_HEAD_BYTES: usize = 8;

const RESET: u8 = 0;
const DATA: u8 = 1;
const WINDOW: u8 = 2;
const GO_AWAY: u8 = 3;

const FIN: u8 = 1;
const SYN: u8 = 2;

/// The top bit of ids and increments is reserved.
const LOW_31: u32 = 0x7fff_ffff;
/// How much of a peer's last words is listened to.
const MAX_TEXT_BYTES: usize = 1024;

/// A frame that breaks the rules of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// RST or WNDINC whose body is not four bytes.
    #[error("a frame of fixed length has another length")]
    Length,
    /// A frame that needs a stream and names none.
    #[error("a frame for stream 0")]
    NoStream,
    /// A second SYN for a stream that lives.
    #[error("a stream was opened twice")]
    OpenedTwice,
    /// A SYN for an id that belongs to this side.
    #[error("a stream was opened under a wrong id")]
    ForeignId,
}

/// What a peer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameEvent {
    /// The head of a DATA frame; its body follows in pieces.
    Data(Data),
    /// Some of the body of the DATA frame announced last.
    Piece {
        /// The bytes, at least one.
        bytes: Bytes,
        /// How many are still to come.
        left: usize,
    },
    /// Both directions of a stream are over.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        code: Code,
    },
    /// More may be sent on a stream.
    Window {
        /// The stream.
        stream: u32,
        /// How many bytes more.
        increment: u32,
    },
    /// The session is over.
    GoAway {
        /// Why.
        code: Code,
        /// Why, in the peer's words.
        text: String,
    },
}

/// The head of a DATA frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// The stream.
    pub stream: u32,
    /// The first frame of the stream.
    pub syn: bool,
    /// The last frame of the sender's direction.
    pub fin: bool,
    /// Bytes in the body.
    pub length: usize,
}

/// What the decoder waits for.
#[derive(Debug, Clone, Copy)]
enum Want {
    Head,
    /// The rest of the body of a DATA frame.
    Body(usize),
    /// The rest of a body that nobody wants.
    Nothing(usize),
}

/// Makes events of a peer's bytes, however they were cut.
#[derive(Debug)]
pub struct Decoder {
    want: Want,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { want: Want::Head }
    }
}

impl Decoder {
    /// Takes the next event out of `input`; `None` when it needs more bytes.
    ///
    /// # Errors
    /// When the peer broke the protocol; there is no going on then.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<FrameEvent>, FrameError> {
        loop {
            match self.want {
                Want::Head => {
                    if let Some(found) = self.decode_frame(input)? {
                        return Ok(found);
                    }
                }
                Want::Body(left) => return Ok(self.take_piece(input, left)),
                Want::Nothing(left) => {
                    let skipped = left.min(input.len());
                    input.advance(skipped);
                    self.expect_bytes(Want::Nothing, left - skipped);
                    if skipped < left {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Passes over what is left of the DATA frame announced last.
    pub fn skip_body(&mut self) {
        if let Want::Body(left) = self.want {
            self.want = Want::Nothing(left);
        }
    }

    fn take_piece(&mut self, input: &mut BytesMut, left: usize) -> Option<FrameEvent> {
        if input.is_empty() {
            return None;
        }
        let bytes = input.split_to(left.min(input.len())).freeze();
        let left = left - bytes.len();
        self.expect_bytes(Want::Body, left);
        Some(FrameEvent::Piece { bytes, left })
    }

    fn expect_bytes(&mut self, want: fn(usize) -> Want, left: usize) {
        self.want = if left == 0 { Want::Head } else { want(left) };
    }

    /// Reads a head, and the body of a short frame. The outer `None` is a frame to pass over.
    fn decode_frame(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<Option<FrameEvent>>, FrameError> {
        let Some(head) = FrameHeader::peek(input) else { return Ok(Some(None)) };
        match head.kind {
            DATA => {
                head.needs_stream()?;
                input.advance(FRAME_HEAD_BYTES);
                self.expect_bytes(Want::Body, head.length);
                Ok(Some(Some(FrameEvent::Data(Data {
                    stream: head.stream,
                    syn: head.flags & SYN != 0,
                    fin: head.flags & FIN != 0,
                    length: head.length,
                }))))
            }
            RESET => Ok(Some(head.take_number(input)?.map(|number| {
                let code = Code(number);
                FrameEvent::Reset { stream: head.stream, code }
            }))),
            WINDOW => Ok(Some(head.take_number(input)?.map(|number| {
                let increment = number & LOW_31;
                FrameEvent::Window { stream: head.stream, increment }
            }))),
            GO_AWAY => Ok(Some(go_away(input, head.length))),
            _ => {
                input.advance(FRAME_HEAD_BYTES);
                self.expect_bytes(Want::Nothing, head.length);
                Ok(None)
            }
        }
    }
}

/// The first eight bytes of a frame.
#[derive(Debug, Clone, Copy)]
struct FrameHeader {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl FrameHeader {
    fn peek(input: &[u8]) -> Option<Self> {
        let head: &[u8; FRAME_HEAD_BYTES] = input.first_chunk()?;
        let [l2, l1, l0, kind_flags, s3, s2, s1, s0] = *head;
        Some(Self {
            length: u32::from_be_bytes([0, l2, l1, l0]) as usize,
            kind: kind_flags >> 4,
            flags: kind_flags & 0xf,
            stream: u32::from_be_bytes([s3, s2, s1, s0]) & LOW_31,
        })
    }

    fn needs_stream(&self) -> Result<(), FrameError> {
        if self.stream == 0 { Err(FrameError::NoStream) } else { Ok(()) }
    }

    /// Takes a frame whose body is one number.
    fn take_number(&self, input: &mut BytesMut) -> Result<Option<u32>, FrameError> {
        self.needs_stream()?;
        if self.length != 4 {
            return Err(FrameError::Length);
        }
        if input.len() < FRAME_HEAD_BYTES + 4 {
            return Ok(None);
        }
        input.advance(FRAME_HEAD_BYTES);
        Ok(Some(input.get_u32()))
    }
}

/// Takes a GOAWAY. Some agents forget the eight fixed bytes in its length, so a shorter one than
/// that is taken for one, too; nothing is read behind it.
fn go_away(input: &mut BytesMut, length: usize) -> Option<FrameEvent> {
    let needed = if length < 8 { 0 } else { FRAME_HEAD_BYTES + length.min(8 + MAX_TEXT_BYTES) };
    if input.len() < needed {
        return None;
    }
    let body = input.split_off(FRAME_HEAD_BYTES);
    let code = body.get(4..8).and_then(|code| code.try_into().ok());
    let text = body.get(8..length.clamp(8, 8 + MAX_TEXT_BYTES)).unwrap_or_default();
    input.clear();
    Some(FrameEvent::GoAway {
        code: Code(code.map_or(0, u32::from_be_bytes)),
        text: String::from_utf8_lossy(text).into_owned(),
    })
}

/// Appends a DATA frame.
///
/// The body must be shorter than 16 MiB; the length has no more bits.
pub fn put_data(out: &mut impl BufMut, stream: u32, syn: bool, fin: bool, body: &[u8]) {
    let flags = if syn { SYN } else { 0 } | if fin { FIN } else { 0 };
    put_head(out, body.len(), DATA, flags, stream);
    out.put_slice(body);
}

/// Appends a RST frame.
pub fn put_reset(out: &mut impl BufMut, stream: u32, code: Code) {
    put_head(out, 4, RESET, 0, stream);
    out.put_u32(code.0);
}

/// Appends a WNDINC frame.
pub fn put_window(out: &mut impl BufMut, stream: u32, increment: u32) {
    put_head(out, 4, WINDOW, 0, stream);
    out.put_u32(increment & LOW_31);
}

/// Appends a GOAWAY frame; `last` is the last stream of the peer that was taken.
pub fn put_go_away(out: &mut impl BufMut, last: u32, code: Code, text: &str) {
    let text = &text.as_bytes()[..text.len().min(MAX_TEXT_BYTES)];
    put_head(out, 8 + text.len(), GO_AWAY, 0, 0);
    out.put_u32(last & LOW_31);
    out.put_u32(code.0);
    out.put_slice(text);
}

fn put_head(out: &mut impl BufMut, length: usize, kind: u8, flags: u8, stream: u32) {
    debug_assert!(length < 1 << 24);
    out.put_u32((length as u32) << 8 | u32::from(kind << 4 | flags));
    out.put_u32(stream & LOW_31);
}
