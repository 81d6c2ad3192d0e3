//! WebSockets that are looked at while they pass: their messages are recorded.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use flate2::{Decompress, FlushDecompress, Status};
use tokio::io::{AsyncRead, ReadBuf};

use ginnel_http1::{FrameBoundary, FrameHead, FramePart, after_first_line, fields_in};

use super::BoxReader;
use crate::capture::{Recording, SocketMessage, StreamSide};

/// How much is kept of one message.
const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// How long a message may become without its compression; a longer one ends the reading of all others.
const MAX_INFLATED_BYTES: usize = 16 << 20;
/// How much is inflated at a time.
const INFLATE_BYTES: usize = 8 << 10;
/// What senders leave out at the end of each message (RFC 7692 §7.2.1).
const DEFLATE_TAIL: &[u8] = &[0, 0, 0xff, 0xff];
/// The first bit that an extension may use (RFC 6455 §5.2).
const RSV1: u8 = 0x40;
/// The last frame of a message.
const FIN: u8 = 0x80;

/// One direction of a WebSocket, whose messages are recorded as they pass.
pub(super) struct RecordedSocket<'r, R> {
    read: R,
    reader: MessageReader,
    recording: &'r Recording,
}

impl<'r, R> RecordedSocket<'r, R> {
    pub fn new(read: R, side: StreamSide, recording: &'r Recording) -> Self {
        let deflate = recording.with_response_head(|head| DeflateTerms::from_response(head, side));
        Self { read, reader: MessageReader::new(side, deflate.flatten()), recording }
    }

    /// Reads what came before.
    pub fn follow_bytes(&mut self, bytes: &[u8]) {
        let recording = self.recording;
        self.reader.follow_bytes(bytes, |message| recording.socket_message(message));
    }
}

impl AsyncRead for RecordedSocket<'_, &mut BoxReader> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = target.filled().len();
        ready!(this.read.as_mut().poll_read(cx, target))?;
        let came = target.filled().get(before..).unwrap_or_default();
        let recording = this.recording;
        this.reader.follow_bytes(came, |message| recording.socket_message(message));
        Poll::Ready(Ok(()))
    }
}

/// What both sides agreed on about compression (RFC 7692).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DeflateTerms {
    /// Whether each message begins anew.
    is_per_message: bool,
}

impl DeflateTerms {
    /// What the response to the upgrade says; none where nothing is compressed.
    fn from_response(head: &[u8], side: StreamSide) -> Option<Self> {
        let mut fields = fields_in(after_first_line(head));
        let is_extensions = |name: &[u8]| name.eq_ignore_ascii_case(b"sec-websocket-extensions");
        let (_, value) = fields.find(|(name, _)| is_extensions(name))?;
        let value = std::str::from_utf8(value).ok()?.to_ascii_lowercase();
        let mut parameters = value.split(';').map(str::trim);
        let own = match side {
            StreamSide::Client => "client_no_context_takeover",
            StreamSide::Server => "server_no_context_takeover",
        };
        (parameters.next()? == "permessage-deflate")
            .then(|| Self { is_per_message: parameters.any(|parameter| parameter == own) })
    }
}

/// Follows the frames of one direction, and puts messages together.
struct MessageReader {
    side: StreamSide,
    boundary: FrameBoundary,
    frame: FrameHead,
    /// Bytes of the frame's payload that were read.
    read: usize,
    /// The message of text or bytes that is under way.
    message: Option<PartialMessage>,
    /// A ping, pong or close, which may stand between the frames of a message.
    control: Option<PartialMessage>,
    inflater: Inflater,
}

#[derive(Debug)]
struct PartialMessage {
    opcode: u8,
    size: u64,
    data: Vec<u8>,
    is_compressed: bool,
    is_cut: bool,
    /// How long it is without its compression.
    inflated: usize,
}

impl MessageReader {
    fn new(side: StreamSide, deflate: Option<DeflateTerms>) -> Self {
        Self {
            side,
            boundary: FrameBoundary::default(),
            frame: FrameHead::default(),
            read: 0,
            message: None,
            control: None,
            inflater: Inflater::new(deflate),
        }
    }

    /// Follows all of `bytes`; `each` gets the messages that they complete.
    fn follow_bytes(&mut self, mut bytes: &[u8], mut each: impl FnMut(SocketMessage)) {
        while !bytes.is_empty() {
            let (used, part) = self.boundary.follow_part(bytes);
            match part {
                Some(FramePart::Head(head)) => self.begin_frame(head),
                Some(FramePart::Payload(payload)) => self.push_payload(payload),
                None => {}
            }
            if part.is_some() && self.boundary.is_at_boundary() {
                self.end_frame().into_iter().for_each(&mut each);
            }
            bytes = bytes.get(used..).unwrap_or_default();
        }
    }

    fn begin_frame(&mut self, head: FrameHead) {
        (self.frame, self.read) = (head, 0);
        let opcode = head.first & 0x0f;
        let begun = PartialMessage {
            opcode,
            size: 0,
            data: Vec::new(),
            is_compressed: head.first & RSV1 != 0,
            is_cut: false,
            inflated: 0,
        };
        match opcode {
            // The next part of a message.
            0 => drop(self.message.get_or_insert(begun)),
            8.. => self.control = Some(begun),
            _ => self.message = Some(begun),
        }
    }

    fn push_payload(&mut self, payload: &[u8]) {
        let is_control = self.frame.first & 0x0f >= 8;
        let slot = if is_control { &mut self.control } else { &mut self.message };
        let Some(message) = slot else { return };
        let mask = self.frame.mask.unwrap_or_default();
        let plain: Vec<u8> = payload
            .iter()
            .enumerate()
            .map(|(at, byte)| byte ^ mask[(self.read + at) % 4])
            .collect();
        self.read += payload.len();
        message.size += payload.len() as u64;
        if message.is_compressed {
            self.inflater.inflate_bytes(&plain, message);
        } else {
            message.append_bytes(&plain);
        }
    }

    /// The message that the frame ends.
    fn end_frame(&mut self) -> Option<SocketMessage> {
        let is_control = self.frame.first & 0x0f >= 8;
        let message = match is_control {
            true => self.control.take(),
            false if self.frame.first & FIN != 0 => self.message.take(),
            false => None,
        };
        let mut message = message?;
        if message.is_compressed {
            self.inflater.finish_message(&mut message);
        }
        let PartialMessage { opcode, size, data, is_compressed, is_cut, .. } = message;
        let (side, at) = (self.side, Duration::ZERO);
        Some(SocketMessage { side, opcode, at, size, data, is_cut, is_compressed })
    }
}

impl PartialMessage {
    fn append_bytes(&mut self, bytes: &[u8]) {
        let room = MAX_MESSAGE_BYTES - self.data.len();
        self.data.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.is_cut |= bytes.len() > room;
    }
}

/// Takes the compression off messages, as far as that is understood.
struct Inflater {
    terms: Option<DeflateTerms>,
    /// None once something could not be read: what follows may refer to it.
    state: Option<Decompress>,
}

impl Inflater {
    fn new(terms: Option<DeflateTerms>) -> Self {
        Self { terms, state: terms.map(|_| Decompress::new(false)) }
    }

    /// Inflates more of a message; keeps it as it is where that is not understood.
    fn inflate_bytes(&mut self, bytes: &[u8], message: &mut PartialMessage) {
        let inflated = match &mut self.state {
            Some(state) => inflate_into(state, bytes, message),
            None => false,
        };
        if !inflated {
            if self.state.take().is_some() {
                // What was inflated of it is not what there is.
                message.data.clear();
                message.is_cut = true;
            }
            message.append_bytes(bytes);
        }
    }

    fn finish_message(&mut self, message: &mut PartialMessage) {
        if self.state.is_some() {
            self.inflate_bytes(DEFLATE_TAIL, message);
            message.is_compressed = self.state.is_none();
        }
        if self.terms.is_some_and(|terms| terms.is_per_message) {
            self.state = Some(Decompress::new(false));
        }
    }
}

/// Inflates bytes into a message; false where that cannot be done.
fn inflate_into(state: &mut Decompress, bytes: &[u8], message: &mut PartialMessage) -> bool {
    let (mut room, mut rest) = ([0; INFLATE_BYTES], bytes);
    loop {
        let (read, written) = (state.total_in(), state.total_out());
        let status = state.decompress(rest, &mut room, FlushDecompress::None);
        let taken = (state.total_in() - read) as usize;
        let made = (state.total_out() - written) as usize;
        message.inflated += made;
        message.append_bytes(room.get(..made).unwrap_or_default());
        rest = rest.get(taken..).unwrap_or_default();
        match status {
            Err(_) => return false,
            _ if message.inflated > MAX_INFLATED_BYTES => return false,
            // A block may be marked as the last one and is not (RFC 7692, section 7.2.3.5).
            Ok(Status::StreamEnd) => {
                state.reset(false);
                if rest.is_empty() {
                    return true;
                }
            }
            Ok(_) if taken == 0 && made == 0 => return rest.is_empty(),
            Ok(_) if rest.is_empty() && made < INFLATE_BYTES => return true,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};

    use super::*;

    fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
        let masked = if mask.is_some() { 0x80 } else { 0 };
        let mut frame = vec![first];
        match payload.len() {
            length @ ..126 => frame.push(masked | length as u8),
            length => {
                frame.push(masked | 126);
                frame.extend((length as u16).to_be_bytes());
            }
        }
        frame.extend(mask.into_iter().flatten());
        let mask = mask.unwrap_or_default();
        frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
        frame
    }

    fn read(reader: &mut MessageReader, bytes: &[u8], piece: usize) -> Vec<SocketMessage> {
        let mut messages = Vec::new();
        bytes.chunks(piece).for_each(|bytes| reader.follow_bytes(bytes, |it| messages.push(it)));
        messages
    }

    fn texts(messages: &[SocketMessage]) -> Vec<(u8, String)> {
        let text = |it: &SocketMessage| (it.opcode, String::from_utf8_lossy(&it.data).into_owned());
        messages.iter().map(text).collect()
    }

    #[test]
    fn a_block_that_is_marked_as_the_last_does_not_end_the_compression() {
        let hello = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
        let stream = [frame(0xc1, &hello, None), frame(0xc1, &hello, None)].concat();
        let terms = DeflateTerms { is_per_message: false };

        for piece in [1, 3, 1_000] {
            let mut reader = MessageReader::new(StreamSide::Client, Some(terms));
            let messages = read(&mut reader, &stream, piece);
            assert_eq!(texts(&messages), [(1, "Hello".to_owned()), (1, "Hello".to_owned())]);
            assert!(messages.iter().all(|it| !it.is_compressed && !it.is_cut));
        }
    }

    #[test]
    fn messages_are_whole_however_they_were_cut() {
        let mask = Some([1, 2, 3, 4]);
        let long = "x".repeat(300);
        let stream = [
            frame(0x81, b"hello", mask),
            frame(0x01, b"in ", mask),
            frame(0x89, b"ping", mask),
            frame(0x80, b"parts", mask),
            frame(0x82, long.as_bytes(), None),
            frame(0x81, b"", None),
            frame(0x88, &[3, 232], mask),
        ]
        .concat();

        for piece in [1, 2, 3, 7, 1_000] {
            let mut reader = MessageReader::new(StreamSide::Client, None);
            let messages = texts(&read(&mut reader, &stream, piece));
            let expected = [
                (1, "hello"),
                (9, "ping"),
                (1, "in parts"),
                (2, &long),
                (1, ""),
                (8, "\u{3}\u{fffd}"),
            ];
            assert_eq!(messages, expected.map(|(opcode, text)| (opcode, text.to_owned())));
        }
    }

    #[test]
    fn a_long_message_is_cut_and_its_size_is_true() {
        let mut reader = MessageReader::new(StreamSide::Server, None);
        let stream = [
            frame(0x02, &[7; 60_000], None),
            frame(0x80, &[7; 60_000], None),
            frame(0x81, b"next", None),
        ]
        .concat();

        let messages = read(&mut reader, &stream, 1_000);

        let (long, next) = (messages.first().unwrap(), messages.get(1).unwrap());
        assert_eq!((long.data.len(), long.size, long.is_cut), (MAX_MESSAGE_BYTES, 120_000, true));
        assert_eq!((next.data.as_slice(), next.is_cut), (&b"next"[..], false));
    }

    /// A compressed message, as RFC 7692 has it.
    fn deflated(state: &mut Compress, text: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(text.len() + 100);
        assert!(state.compress_vec(text, &mut bytes, FlushCompress::Sync).is_ok());
        bytes.truncate(bytes.len() - DEFLATE_TAIL.len());
        bytes
    }

    #[test]
    fn compression_is_taken_off_also_where_messages_refer_to_those_before() {
        let texts_sent = ["hello hello hello", "hello hello hello again", "x"];
        for is_per_message in [false, true] {
            let mut state = Compress::new(Compression::default(), false);
            let mut stream = Vec::new();
            for text in texts_sent {
                if is_per_message {
                    state.reset();
                }
                let bytes = deflated(&mut state, text.as_bytes());
                let (first, second) = bytes.split_at(bytes.len() / 2);
                stream.extend(frame(0x41, first, None));
                stream.extend(frame(0x80, second, None));
            }
            stream.extend(frame(0x81, b"plain", None));
            let mut reader =
                MessageReader::new(StreamSide::Server, Some(DeflateTerms { is_per_message }));

            let messages = read(&mut reader, &stream, 5);

            let expected = texts_sent.into_iter().chain(["plain"]);
            let expected: Vec<_> = expected.map(|text| (1, text.to_owned())).collect();
            assert_eq!(texts(&messages), expected);
            assert!(messages.iter().all(|message| !message.is_compressed && !message.is_cut));
        }
    }

    #[test]
    fn what_cannot_be_inflated_stays_compressed() {
        let mut reader =
            MessageReader::new(StreamSide::Server, Some(DeflateTerms { is_per_message: false }));
        let mut state = Compress::new(Compression::default(), false);
        let good = deflated(&mut state, b"good");
        let stream = [
            frame(0xc1, &[0xff, 0xff, 0xff], None),
            frame(0xc1, &good, None),
            frame(0x81, b"plain", None),
        ]
        .concat();

        let messages = read(&mut reader, &stream, 100);

        let compressed: Vec<_> = messages.iter().map(|message| message.is_compressed).collect();
        assert_eq!(compressed, [true, true, false]);
        assert_eq!(messages.get(1).map(|message| &message.data), Some(&good));
    }

    #[test]
    fn a_bomb_is_not_inflated_to_its_end() {
        let mut state = Compress::new(Compression::best(), false);
        let bomb = deflated(&mut state, &vec![0; MAX_INFLATED_BYTES + 1_000_000]);
        let mut reader =
            MessageReader::new(StreamSide::Client, Some(DeflateTerms { is_per_message: true }));

        let stream = [frame(0xc2, &bomb, None), frame(0x81, b"next", None)].concat();
        let messages = read(&mut reader, &stream, 4_096);

        assert!(messages.first().is_some_and(|bomb| bomb.is_compressed && bomb.is_cut));
        assert_eq!(messages.len(), 2);
    }

    #[test]
    fn what_was_agreed_on_is_in_the_response() {
        let agreed = |extensions: &str, side| {
            let head = format!(
                "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Extensions: {extensions}\r\n\r\n"
            );
            DeflateTerms::from_response(head.as_bytes(), side).map(|terms| terms.is_per_message)
        };

        let own = "permessage-deflate; server_no_context_takeover; client_max_window_bits=15";
        assert_eq!(agreed(own, StreamSide::Server), Some(true));
        assert_eq!(agreed(own, StreamSide::Client), Some(false));
        assert_eq!(agreed("x-other", StreamSide::Client), None);
        assert_eq!(
            DeflateTerms::from_response(b"HTTP/1.1 101 x\r\n\r\n", StreamSide::Client),
            None
        );
    }
}
