//! What a stream may do, driven without any connection.

use std::collections::VecDeque;

use bytes::Bytes;
use ginnel::mux::Code;
use ginnel::mux::stream_state::ReadResult;
use ginnel::mux::stream_state::StreamState;
use ginnel::mux::stream_state::WINDOW;
use proptest::collection::vec;
use proptest::prelude::*;

/// One thing that happens to a stream whose two sides are joined by wires.
#[derive(Debug, Clone)]
enum Step {
    Send(usize),
    Deliver,
    Take(usize),
    Copy(usize),
    Grant,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![1..200_usize, 8_000..9_000_usize, 30_000..300_000_usize];
    let step = prop_oneof![
        4 => length.clone().prop_map(Step::Send),
        4 => Just(Step::Deliver),
        2 => length.clone().prop_map(Step::Take),
        2 => length.prop_map(Step::Copy),
        2 => Just(Step::Grant),
    ];
    vec(step, 0..120)
}

/// One direction of a stream: sender, wire, receiver, and the way back of the increments.
#[derive(Default)]
struct Direction {
    sender: StreamState,
    receiver: StreamState,
    wire: VecDeque<Bytes>,
    back: VecDeque<u32>,
    sent: usize,
    read: usize,
}

/// The byte at a place of the text that is sent.
fn byte(at: usize) -> u8 {
    (at / 3) as u8 ^ (at >> 11) as u8
}

impl Direction {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Send(most) => self.send(*most),
            Step::Deliver => self.deliver(),
            Step::Take(most) => {
                if let ReadResult::Bytes(bytes) = self.receiver.take(*most) {
                    assert!(!bytes.is_empty() && bytes.len() <= *most);
                    self.check(&bytes);
                }
            }
            Step::Copy(most) => {
                let mut target = Vec::new();
                let copied = self.receiver.copy(*most, |bytes| target.extend_from_slice(bytes));
                assert_eq!(copied, target.len());
                self.check(&target);
            }
            Step::Grant => {
                if let Some(increment) = self.back.pop_front() {
                    self.sender.widen(increment as usize);
                }
            }
        }
        self.back.extend(self.receiver.grant());
        assert!(self.sent - self.read <= WINDOW, "more under way than a window");
        assert!(self.receiver.buffered() <= WINDOW);
    }

    fn send(&mut self, most: usize) {
        let length = most.min(self.sender.sendable());
        self.sender.sent(length);
        self.wire.push_back((self.sent..self.sent + length).map(byte).collect());
        self.sent += length;
    }

    fn deliver(&mut self) {
        if let Some(body) = self.wire.pop_front() {
            self.receiver.announce(body.len()).expect("a sender keeps to its window");
            if !body.is_empty() {
                self.receiver.arrive(body);
            }
        }
    }

    fn check(&mut self, read: &[u8]) {
        for found in read {
            assert_eq!(*found, byte(self.read));
            self.read += 1;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_arrive_in_order_and_never_beyond_the_window(steps in steps()) {
        let mut direction = Direction::default();

        steps.iter().for_each(|step| direction.step(step));

        // Whatever happened, the rest gets through.
        direction.sender.finish();
        while let Some(body) = direction.wire.pop_front() {
            direction.wire.push_front(body);
            direction.step(&Step::Deliver);
            direction.step(&Step::Copy(WINDOW));
        }
        direction.receiver.peer_finish();
        direction.step(&Step::Copy(WINDOW));
        prop_assert_eq!(direction.read, direction.sent);
        prop_assert_eq!(direction.receiver.take(1), ReadResult::End);
        prop_assert!(direction.receiver.at_end());
    }

    #[test]
    fn a_used_up_window_is_refilled_without_end(reads in vec(1..WINDOW, 1..40)) {
        let mut direction = Direction::default();

        for read in reads {
            direction.step(&Step::Send(WINDOW));
            direction.step(&Step::Deliver);
            direction.step(&Step::Copy(read));
            direction.step(&Step::Grant);
        }
        direction.step(&Step::Copy(WINDOW));
        direction.step(&Step::Grant);
        direction.step(&Step::Deliver);
        direction.step(&Step::Copy(WINDOW));

        prop_assert!(direction.sender.sendable() > WINDOW / 2, "the sender would stand still");
    }

    #[test]
    fn a_stream_is_gone_when_both_sides_have_finished(orders in vec(any::<bool>(), 1..6)) {
        let mut state = StreamState::default();
        let (mut ours, mut theirs) = (false, false);

        for is_ours in orders {
            if is_ours {
                prop_assert_eq!(state.finish(), !ours);
                ours = true;
            } else {
                state.peer_finish();
                theirs = true;
            }
            prop_assert_eq!(state.is_gone(), ours && theirs);
            prop_assert_eq!(state.sendable() == 0, ours);
        }
    }
}

#[test]
fn data_after_the_end_and_beyond_the_window_resets() {
    let mut finished = StreamState::default();
    finished.peer_finish();
    let mut full = StreamState::default();
    full.announce(WINDOW - 1).unwrap();
    full.announce(1).unwrap();

    assert_eq!(finished.announce(0), Err(Code::STREAM_CLOSED));
    assert_eq!(full.announce(1), Err(Code::FLOW_CONTROL));
    assert!(finished.is_gone() && full.is_gone());
}

#[test]
fn a_reset_takes_what_was_not_read_unless_it_was_complete() {
    for complete in [false, true] {
        let mut state = StreamState::default();
        state.announce(3).unwrap();
        state.arrive(Bytes::from_static(b"abc"));
        if complete {
            state.peer_finish();
        }

        state.reset(Code::CANCELLED);

        let expected = if complete {
            ReadResult::Bytes(Bytes::from_static(b"abc"))
        } else {
            ReadResult::Nothing
        };
        assert_eq!(state.take(9), expected);
        assert_eq!(state.at_end(), complete);
        assert_eq!((state.sendable(), state.was_reset()), (0, Some(Code::CANCELLED)));
    }
}

#[test]
fn increments_never_widen_beyond_a_window() {
    let mut state = StreamState::default();
    state.sent(WINDOW);
    assert_eq!(state.sendable(), 0);

    state.widen(0);
    assert_eq!(state.sendable(), 0);
    state.widen(1000);
    assert_eq!(state.sendable(), 1000);
    state.widen(usize::MAX);

    assert_eq!(state.sendable(), WINDOW);
}

#[test]
fn many_short_pieces_take_no_more_than_their_bytes() {
    let mut state = StreamState::default();
    let buffer = Bytes::from(vec![7; 64 * 1024]);
    for at in 0..50_000 {
        state.announce(1).unwrap();
        state.arrive(buffer.slice(at..=at));
    }

    assert!(matches!(state.take(usize::MAX), ReadResult::Bytes(bytes) if bytes.len() == 1));
    assert!(matches!(state.take(usize::MAX), ReadResult::Bytes(bytes) if bytes.len() == 49_999));
}
