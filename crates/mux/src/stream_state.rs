//! What one side knows about one stream. No I/O, nothing that waits.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::Code;

/// Bytes that each side may send before the other has read any. The same in every agent there is:
/// it is not negotiated.
pub const WINDOW: usize = 262_144;

/// Bytes to be read before the peer is told that it may send as many again.
const INCREMENT: usize = 64 * 1024;

/// A shorter piece is copied, so that it does not keep the whole buffer it came in.
const WORTH_KEEPING: usize = 8 * 1024;

/// One stream, seen from one side.
#[derive(Debug)]
pub struct StreamState {
    chunks: VecDeque<Bytes>,
    /// Short pieces, after all chunks.
    tail: BytesMut,
    /// How long all of them are together.
    buffered: usize,
    /// How often something was read or sent.
    moves: u64,
    /// What the peer may still send.
    incoming: usize,
    /// What was read and not yet granted again.
    consumed: usize,
    /// What may still be sent.
    outgoing: usize,
    peer_finished: bool,
    finished: bool,
    reset: Option<Code>,
}

impl Default for StreamState {
    fn default() -> Self {
        Self {
            chunks: VecDeque::new(),
            tail: BytesMut::new(),
            buffered: 0,
            moves: 0,
            incoming: WINDOW,
            consumed: 0,
            outgoing: WINDOW,
            peer_finished: false,
            finished: false,
            reset: None,
        }
    }
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// Bytes, at least one.
    Bytes(Bytes),
    /// The end of the peer's direction.
    End,
    /// Nothing so far.
    Nothing,
}

impl StreamState {
    /// The peer announces a body. On `Err` the stream is reset with that code.
    ///
    /// # Errors
    /// When the peer may not send it.
    pub fn announce_body(&mut self, length: usize) -> Result<(), Code> {
        let refused = match () {
            () if self.peer_finished => Code::STREAM_CLOSED,
            () if length > self.incoming => Code::FLOW_CONTROL,
            () => {
                self.incoming -= length;
                return Ok(());
            }
        };
        self.reset(refused);
        Err(refused)
    }

    /// Some of an announced body is there.
    pub fn receive_bytes(&mut self, bytes: Bytes) {
        if self.reset.is_some() {
            return;
        }
        self.buffered += bytes.len();
        let is_first = self.chunks.is_empty() && self.tail.is_empty();
        if !is_first && bytes.len() < WORTH_KEEPING {
            self.tail.extend_from_slice(&bytes);
            return;
        }
        self.seal_tail();
        self.chunks.push_back(bytes);
    }

    /// The peer sends no more.
    pub fn peer_finish(&mut self) {
        self.peer_finished = true;
    }

    /// The peer may be sent more, but never more than a window at once.
    pub fn increase_window(&mut self, increment: usize) {
        self.outgoing = self.outgoing.saturating_add(increment).min(WINDOW);
    }

    /// Both directions are over. What was not read is gone, unless it is all that the peer had to
    /// say: it may answer early and drop the rest of what it is being sent.
    pub fn reset(&mut self, code: Code) {
        if self.reset.is_none() {
            self.reset = Some(code);
            if !self.peer_finished {
                self.chunks = VecDeque::new();
                self.tail = BytesMut::new();
                self.buffered = 0;
            }
        }
    }

    /// The peer has reset the stream. Bytes before a reset of the connection behind the stream are still read: TCP
    /// delivers them as well.
    pub fn reset_by_peer(&mut self, code: Code) {
        match code {
            Code::RESET if self.reset.is_none() => self.reset = Some(code),
            _ => self.reset(code),
        }
    }

    /// True once the peer has sent its last byte in order.
    pub fn is_peer_finished(&self) -> bool {
        self.peer_finished
    }

    /// The code, once the stream was reset.
    pub fn was_reset(&self) -> Option<Code> {
        self.reset
    }

    /// Takes at most `most` bytes.
    pub fn take_chunk(&mut self, most: usize) -> ReadResult {
        self.seal_tail_if_next();
        let Some(first) = self.chunks.front_mut() else {
            return if self.peer_finished { ReadResult::End } else { ReadResult::Nothing };
        };
        let bytes = if first.len() <= most {
            self.chunks.pop_front().unwrap_or_default()
        } else {
            first.split_to(most)
        };
        self.consumed += bytes.len();
        self.buffered -= bytes.len();
        self.moves += 1;
        ReadResult::Bytes(bytes)
    }

    /// Hands at most `most` bytes to `put`, and says how many; 0 when there are none.
    pub fn copy_chunks(&mut self, most: usize, mut put: impl FnMut(&[u8])) -> usize {
        let mut copied = 0;
        while copied < most {
            self.seal_tail_if_next();
            let Some(first) = self.chunks.front_mut() else { break };
            let length = first.len().min(most - copied);
            put(&first[..length]);
            first.advance(length);
            copied += length;
            if first.is_empty() {
                self.chunks.pop_front();
            }
        }
        self.consumed += copied;
        self.buffered -= copied;
        self.moves += u64::from(copied > 0);
        copied
    }

    /// True when the peer sends no more and all was read.
    pub fn at_end(&self) -> bool {
        self.peer_finished && self.chunks.is_empty() && self.tail.is_empty()
    }

    /// The increment to tell the peer now, if it is time for one.
    pub fn grant_window(&mut self) -> Option<u32> {
        let is_over = self.peer_finished || self.reset.is_some();
        if is_over || self.consumed < INCREMENT {
            return None;
        }
        let increment = std::mem::take(&mut self.consumed);
        self.incoming += increment;
        u32::try_from(increment).ok()
    }

    /// How much may be sent now.
    pub fn sendable_bytes(&self) -> usize {
        if self.finished || self.reset.is_some() { 0 } else { self.outgoing }
    }

    /// `length` bytes go out; never more than [`StreamState::sendable_bytes`].
    pub fn record_sent(&mut self, length: usize) {
        self.outgoing -= length;
        self.moves += 1;
    }

    /// This side sends no more. False when that was known before, or the stream was reset.
    pub fn finish(&mut self) -> bool {
        !std::mem::replace(&mut self.finished, true) && self.reset.is_none()
    }

    /// True once this side sends no more.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// True when neither side has anything to send: the id means nothing any more.
    pub fn is_gone(&self) -> bool {
        self.reset.is_some() || (self.finished && self.peer_finished)
    }

    /// True when the peer can send nothing before something is read.
    pub fn holds_up_peer(&self) -> bool {
        self.incoming == 0 && !self.peer_finished
    }

    /// Bytes that wait for a reader.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered
    }

    /// How often something was read or sent: while this stays as it is, the stream stands still.
    pub fn move_count(&self) -> u64 {
        self.moves
    }

    fn seal_tail_if_next(&mut self) {
        if self.chunks.is_empty() {
            self.seal_tail();
        }
    }

    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(std::mem::take(&mut self.tail).freeze());
        }
    }
}
