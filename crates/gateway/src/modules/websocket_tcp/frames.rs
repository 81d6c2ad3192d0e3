//! The frames of a WebSocket, as a visitor sends them; knows nothing of sockets.

use ginnel_http1::{FrameBoundary, FrameHead, FramePart};

/// The longest message of the protocol itself, such as a ping, in bytes.
const CONTROL: usize = 125;

/// What a visitor has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FramePiece {
    /// Bytes of a message, or of a part of one.
    Data(Vec<u8>),
    /// A question whether we are there, to be answered with the same bytes.
    Ping(Vec<u8>),
    /// The visitor is done, for this reason.
    Close(Vec<u8>),
}

/// The visitor does not keep to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebSocketError;

/// Takes the frames of a visitor apart, wherever reads may cut them.
#[derive(Debug, Default)]
pub struct FrameReader {
    boundary: FrameBoundary,
    frame: Frame,
    /// True after the first part of a message, until its last.
    within: bool,
}

/// The frame that is being read.
#[derive(Debug, Default)]
struct Frame {
    opcode: u8,
    missing: u64,
    mask: [u8; 4],
    /// Where in the mask the next byte stands.
    turn: usize,
    /// What there is of a message of the protocol itself.
    control: Vec<u8>,
}

impl FrameReader {
    /// Takes bytes, and gives what they say.
    pub fn read_frames(&mut self, mut bytes: &[u8]) -> Result<Vec<FramePiece>, WebSocketError> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (used, part) = self.boundary.follow_part(bytes);
            bytes = bytes.get(used..).unwrap_or_default();
            match part {
                Some(FramePart::Head(head)) => {
                    self.begin_frame(head)?;
                    // Without a payload, the frame is complete.
                    pieces.extend(
                        (head.length == 0).then(|| self.frame.unmask_payload(&[])).flatten(),
                    );
                }
                Some(FramePart::Payload(payload)) => {
                    pieces.extend(self.frame.unmask_payload(payload))
                }
                None => {}
            }
        }
        Ok(pieces)
    }

    /// Begins a frame, if the protocol allows it here.
    fn begin_frame(&mut self, head: FrameHead) -> Result<(), WebSocketError> {
        let FrameHead { first, mask, length } = head;
        let (opcode, is_last) = (first & 0x0f, first & 0x80 != 0);
        let is_control = opcode >= 8;
        let fits = !is_control || (is_last && length <= CONTROL as u64);
        let in_order = match opcode {
            0 => self.within,
            1 | 2 => !self.within,
            8..=10 => true,
            _ => false,
        };
        let mask = mask.ok_or(WebSocketError)?;
        if first & 0x70 != 0 || !fits || !in_order || length >> 63 != 0 {
            return Err(WebSocketError);
        }
        if !is_control {
            self.within = !is_last;
        }
        self.frame = Frame { opcode, missing: length, mask, turn: 0, control: Vec::new() };
        Ok(())
    }
}

impl Frame {
    /// Takes bytes of the frame; gives what they say, if that is all or can go on at once.
    fn unmask_payload(&mut self, bytes: &[u8]) -> Option<FramePiece> {
        let plain = bytes.iter().zip(self.turn..).map(|(byte, at)| byte ^ self.mask[at % 4]);
        let plain: Vec<u8> = plain.collect();
        self.turn = (self.turn + bytes.len()) % 4;
        self.missing -= bytes.len() as u64;
        if self.opcode < 8 {
            return Some(FramePiece::Data(plain)).filter(|_| !bytes.is_empty());
        }
        self.control.extend(plain);
        if self.missing > 0 {
            return None;
        }
        let all = std::mem::take(&mut self.control);
        match self.opcode {
            8 => Some(FramePiece::Close(all)),
            9 => Some(FramePiece::Ping(all)),
            _ => None,
        }
    }
}

/// A frame to a visitor that is a message by itself.
pub fn encode_frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..=125 => frame.push(length as u8),
        length @ 126..=0xffff => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as a visitor sends it.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = encode_frame(first & 0x0f, payload);
        let start = bytes.len() - payload.len();
        bytes[0] = first;
        bytes[1] |= 0x80;
        let mask = [1, 2, 3, 4];
        for (at, byte) in bytes[start..].iter_mut().enumerate() {
            *byte ^= mask[at % 4];
        }
        bytes.splice(start..start, mask);
        bytes
    }

    /// All data, and what else there was, however the bytes are cut.
    fn read(bytes: &[u8], size: usize) -> Result<(Vec<u8>, Vec<FramePiece>), WebSocketError> {
        let mut reader = FrameReader::default();
        let (mut data, mut others) = (Vec::new(), Vec::new());
        for chunk in bytes.chunks(size) {
            for piece in reader.read_frames(chunk)? {
                match piece {
                    FramePiece::Data(more) => data.extend(more),
                    other => others.push(other),
                }
            }
        }
        Ok((data, others))
    }

    #[test]
    fn messages_come_out_whole_however_they_are_cut() {
        let long = vec![7; 70_000];
        let bytes = [
            masked(0x82, b"abc"),
            masked(0x01, b"de"),
            masked(0x89, b"there?"),
            masked(0x80, &long),
            masked(0x82, b""),
            masked(0x8a, b"pong"),
            masked(0x82, &long[..200]),
            masked(0x88, &[3, 232]),
        ]
        .concat();
        let data = [&b"abcde"[..], &long, &long[..200]].concat();
        let others = vec![FramePiece::Ping(b"there?".to_vec()), FramePiece::Close(vec![3, 232])];

        for size in [1, 2, 3, 1000, bytes.len()] {
            assert!(read(&bytes, size) == Ok((data.clone(), others.clone())), "{size}");
        }
    }

    #[test]
    fn who_breaks_the_protocol_is_found_out() {
        for bytes in [
            encode_frame(2, b"unmasked"),
            masked(0xc2, b"reserved bit"),
            masked(0x83, b"unknown opcode"),
            masked(0x80, b"goes on with nothing"),
            [masked(0x02, b"one"), masked(0x82, b"another")].concat(),
            masked(0x09, b"half a ping"),
            masked(0x89, &[0; 126]),
        ] {
            assert_eq!(read(&bytes, 3), Err(WebSocketError));
        }
    }
}
