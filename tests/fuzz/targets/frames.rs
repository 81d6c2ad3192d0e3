//! Frames of a session between agent and service.

use bytes::BytesMut;

use ginnel_mux::frame::{self, Data, Decoder, FrameError, FrameEvent};

use crate::fuzz::pieces::{CUTS, Cut, pieces};

/// The longest text of a GOAWAY that is written.
const MAX_TEXT_BYTES: usize = 1024;

/// Events are the same however the frames arrive, and when they are written again.
pub fn target(data: &[u8]) {
    let whole = Decoded::of(data, Cut::Whole);
    for cut in CUTS {
        assert_same(&whole, Decoded::of(data, cut));
    }
    let (mut written, mut frames) = (Vec::new(), whole.frames);
    frames.retain(|frame| write(frame, &mut written));
    assert_eq!(Decoded::of(&written, Cut::Random).frames, frames);
}

/// An event, and the body that came behind it.
type Frame = (FrameEvent, Vec<u8>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    frames: Vec<Frame>,
    problem: Option<FrameError>,
}

impl Decoded {
    fn of(data: &[u8], cut: Cut) -> Self {
        let (mut decoder, mut input, mut decoded) =
            (Decoder::default(), BytesMut::new(), Self::default());
        for piece in pieces(data, cut) {
            input.extend_from_slice(piece);
            if decoded.take(&mut decoder, &mut input) {
                break;
            }
        }
        decoded
    }

    /// Takes all events that are there; true when no more may follow.
    fn take(&mut self, decoder: &mut Decoder, input: &mut BytesMut) -> bool {
        loop {
            match decoder.next(input) {
                Ok(None) => return false,
                Ok(Some(FrameEvent::Piece { bytes, left })) => self.add(&bytes, left),
                Ok(Some(event)) => self.frames.push((event, Vec::new())),
                Err(problem) => self.problem = Some(problem),
            }
            if self.problem.is_some()
                || matches!(self.frames.last(), Some((FrameEvent::GoAway { .. }, _)))
            {
                return true;
            }
        }
    }

    fn add(&mut self, bytes: &[u8], left: usize) {
        let Some((FrameEvent::Data(Data { length, .. }), body)) = self.frames.last_mut() else {
            panic!("a piece comes behind its head")
        };
        body.extend_from_slice(bytes);
        assert!(!bytes.is_empty() && body.len() + left == *length);
    }
}

/// Of a GOAWAY whose length does not count the eight fixed bytes, so much is read as has arrived.
fn assert_same(whole: &Decoded, mut cut: Decoded) {
    if let (
        Some((FrameEvent::GoAway { code, text }, _)),
        Some((FrameEvent::GoAway { code: known, .. }, _)),
    ) = (whole.frames.last(), cut.frames.last_mut())
        && text.is_empty()
    {
        *known = *code;
    }
    assert_eq!(*whole, cut);
}

/// Writes a frame, if all of it is known.
fn write((event, body): &Frame, out: &mut Vec<u8>) -> bool {
    match event {
        FrameEvent::Data(Data { stream, syn, fin, length }) if *length == body.len() => {
            frame::put_data(out, *stream, *syn, *fin, body);
        }
        FrameEvent::Reset { stream, code } => frame::put_reset(out, *stream, *code),
        FrameEvent::Window { stream, increment } => frame::put_window(out, *stream, *increment),
        // What replaced bytes that are no text may be longer than they were.
        FrameEvent::GoAway { code, text } if text.len() <= MAX_TEXT_BYTES => {
            frame::put_go_away(out, 0, *code, text);
        }
        _ => return false,
    }
    true
}
