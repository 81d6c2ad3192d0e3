//! Frames become bytes and events again, however the bytes are cut.

use ginnel_mux::Code;
use ginnel_mux::frame;
use ginnel_mux::frame::Data;
use ginnel_mux::frame::Decoder;
use ginnel_mux::frame::FrameError;
use ginnel_mux::frame::FrameEvent;
use ginnel_mux::protocol::json_object::ObjectScanner;

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;

/// A frame as a test writes it down.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    Data { stream: u32, syn: bool, fin: bool, body: Vec<u8> },
    Reset { stream: u32, code: u32 },
    Window { stream: u32, increment: u32 },
    Unknown { kind: u8, body: Vec<u8> },
}

impl Frame {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Data { stream, syn, fin, body } => {
                frame::put_data(out, *stream, *syn, *fin, body);
            }
            Self::Reset { stream, code } => frame::put_reset(out, *stream, Code(*code)),
            Self::Window { stream, increment } => frame::put_window(out, *stream, *increment),
            Self::Unknown { kind, body } => {
                out.extend_from_slice(&[0, 0, body.len() as u8, kind << 4, 0, 0, 0, 1]);
                out.extend_from_slice(body);
            }
        }
    }
}

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let stream = || 1..=0x7fff_ffff_u32;
    let frame = prop_oneof![
        (stream(), any::<bool>(), any::<bool>(), vec(any::<u8>(), 0..600))
            .prop_map(|(stream, syn, fin, body)| Frame::Data { stream, syn, fin, body }),
        (stream(), any::<u32>()).prop_map(|(stream, code)| Frame::Reset { stream, code }),
        (stream(), 0..=0x7fff_ffff_u32)
            .prop_map(|(stream, increment)| Frame::Window { stream, increment }),
        (4..16_u8, vec(any::<u8>(), 0..200)).prop_map(|(kind, body)| Frame::Unknown { kind, body }),
    ];
    vec(frame, 0..20)
}

/// Decodes bytes that come in pieces of the given lengths, over and over.
fn decode(bytes: &[u8], cuts: &[usize]) -> Result<Vec<FrameEvent>, FrameError> {
    let mut decoder = Decoder::default();
    let mut input = BytesMut::new();
    let mut events = Vec::new();
    let mut rest = bytes;
    for cut in cuts.iter().cycle() {
        let (piece, later) = rest.split_at((*cut).min(rest.len()));
        input.extend_from_slice(piece);
        while let Some(event) = decoder.next(&mut input)? {
            events.push(event);
        }
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    Ok(events)
}

/// The frames that events tell of; panics when pieces do not add up.
fn frames_of(events: Vec<FrameEvent>) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut missing = 0;
    for event in events {
        match event {
            FrameEvent::Piece { bytes, left } => {
                let Some(Frame::Data { body, .. }) = frames.last_mut() else { panic!("no frame") };
                assert!(!bytes.is_empty());
                assert_eq!(missing - bytes.len(), left);
                missing = left;
                body.extend_from_slice(&bytes);
            }
            other => {
                assert_eq!(missing, 0, "a body is incomplete before {other:?}");
                missing = if let FrameEvent::Data(data) = &other { data.length } else { 0 };
                frames.push(frame_of(other));
            }
        }
    }
    assert_eq!(missing, 0);
    frames
}

fn frame_of(event: FrameEvent) -> Frame {
    match event {
        FrameEvent::Data(Data { stream, syn, fin, .. }) => {
            Frame::Data { stream, syn, fin, body: Vec::new() }
        }
        FrameEvent::Reset { stream, code } => Frame::Reset { stream, code: code.0 },
        FrameEvent::Window { stream, increment } => Frame::Window { stream, increment },
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn frames_survive_any_cutting(frames in frames(), cuts in vec(1..700_usize, 1..8)) {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.put(&mut bytes));

        let decoded = frames_of(decode(&bytes, &cuts).unwrap());

        let known: Vec<Frame> =
            frames.into_iter().filter(|frame| !matches!(frame, Frame::Unknown { .. })).collect();
        prop_assert_eq!(decoded, known);
    }

    #[test]
    fn any_bytes_are_events_or_malformed(bytes in vec(any::<u8>(), 0..400), cut in 1..50_usize) {
        let whole = decode(&bytes, &[bytes.len().max(1)]);
        let cut = decode(&bytes, &[cut]);

        prop_assert_eq!(whole.err(), cut.err());
    }

    #[test]
    fn an_unwanted_body_is_passed_over(
        body in vec(any::<u8>(), 1..500), skip_at in 0..500_usize, cut in 1..70_usize,
    ) {
        let mut bytes = Vec::new();
        frame::put_data(&mut bytes, 3, true, false, &body);
        frame::put_window(&mut bytes, 3, 9);

        let (mut decoder, mut input, mut seen) = (Decoder::default(), BytesMut::new(), 0);
        let mut last = None;
        for piece in bytes.chunks(cut) {
            input.extend_from_slice(piece);
            while let Some(event) = decoder.next(&mut input).unwrap() {
                if let FrameEvent::Piece { bytes, .. } = &event {
                    seen += bytes.len();
                }
                if seen >= skip_at {
                    decoder.skip_body();
                }
                last = Some(event);
            }
        }

        prop_assert_eq!(last, Some(FrameEvent::Window { stream: 3, increment: 9 }));
        prop_assert!(seen <= skip_at + cut);
    }

    #[test]
    fn an_object_ends_where_it_ends(
        members in proptest::collection::btree_map(".{0,8}", ".{0,8}", 0..4),
        white in "[ \t\r\n]{0,3}", behind in ".{0,6}", cut in 1..9_usize,
    ) {
        let nested = serde_json::json!({"members": members, "list": [[], {}, "]}"]});
        let object = format!("{white}{nested}");
        let text = format!("{object}{behind}");

        let mut scanner = ObjectScanner::default();
        let mut found = None;
        for end in (cut..text.len()).step_by(cut).chain([text.len()]) {
            found = scanner.find_end(&text.as_bytes()[..end]).unwrap();
            if found.is_some() {
                break;
            }
        }

        prop_assert_eq!(found, Some(object.len()));
    }
}

#[test]
fn frames_are_the_recorded_bytes() {
    let mut bytes = Vec::new();
    frame::put_data(&mut bytes, 3, true, false, &[0xff; 4]);
    frame::put_data(&mut bytes, 0x0102_0304, false, true, &[]);
    frame::put_reset(&mut bytes, 5, Code::STREAM_CLOSED);
    frame::put_window(&mut bytes, 7, 65_536);
    frame::put_go_away(&mut bytes, 9, Code::PROTOCOL, "why");

    let recorded: &[&[u8]] = &[
        &[0, 0, 4, 0x12, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0x11, 1, 2, 3, 4],
        &[0, 0, 4, 0x00, 0, 0, 0, 5, 0, 0, 0, 4],
        &[0, 0, 4, 0x20, 0, 0, 0, 7, 0, 1, 0, 0],
        &[0, 0, 11, 0x30, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, b'w', b'h', b'y'],
    ];
    assert_eq!(bytes, recorded.concat());
    let events = decode(&bytes, &[1]).unwrap();
    let opened = Data { stream: 3, syn: true, fin: false, length: 4 };
    assert_eq!(events[0], FrameEvent::Data(opened));
    let goodbye = FrameEvent::GoAway { code: Code::PROTOCOL, text: "why".into() };
    assert_eq!(events.last(), Some(&goodbye));
}

#[test]
fn the_reserved_bit_means_nothing() {
    let bytes = [0, 0, 4, 0x20, 0x80, 0, 0, 7, 0x80, 0, 0, 5];

    let events = decode(&bytes, &[12]).unwrap();

    assert_eq!(events, [FrameEvent::Window { stream: 7, increment: 5 }]);
}

#[test]
fn a_goodbye_is_understood_with_a_wrong_length_too() {
    // The length forgets the fixed bytes, as some agents have it.
    let bytes = [0, 0, 3, 0x30, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, b'w', b'h', b'y'];
    for short in [8, 12, bytes.len()] {
        let events = decode(&bytes[..short], &[short]).unwrap();

        let code = if short < 16 { Code::NONE } else { Code::PROTOCOL };
        assert!(matches!(&events[..], [FrameEvent::GoAway { code: heard, .. }] if *heard == code));
    }
}

#[test]
fn long_last_words_are_cut() {
    let mut bytes = vec![0x80, 0, 0, 0x30, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1];
    bytes.resize(4096, b'x');

    let events = decode(&bytes, &[100]).unwrap();

    let [FrameEvent::GoAway { code, text }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*code, text.len()), (Code::PROTOCOL, 1024));
}

#[test]
fn wrong_lengths_and_missing_streams_are_malformed() {
    let cases: [(&[u8], FrameError); 6] = [
        (&[0, 0, 5, 0x00, 0, 0, 0, 3], FrameError::Length),
        (&[0, 0, 0, 0x00, 0, 0, 0, 3], FrameError::Length),
        (&[0, 0, 3, 0x20, 0, 0, 0, 3], FrameError::Length),
        (&[0, 0, 4, 0x10, 0, 0, 0, 0], FrameError::NoStream),
        (&[0, 0, 4, 0x00, 0, 0, 0, 0], FrameError::NoStream),
        (&[0, 0, 4, 0x20, 0x80, 0, 0, 0], FrameError::NoStream),
    ];
    for (bytes, expected) in cases {
        assert_eq!(decode(bytes, &[8]).unwrap_err(), expected, "{bytes:?}");
    }
}

#[test]
fn large_pieces_are_not_copied() {
    let mut input = BytesMut::new();
    frame::put_data(&mut input, 3, true, false, &vec![7; 32 * 1024]);
    let body = input[frame::FRAME_HEAD_BYTES..].as_ptr();
    let mut decoder = Decoder::default();

    decoder.next(&mut input).unwrap();
    let Some(FrameEvent::Piece { bytes, left: 0 }) = decoder.next(&mut input).unwrap() else {
        panic!("the body is whole")
    };

    assert_eq!(bytes[..].as_ptr(), body);
}
