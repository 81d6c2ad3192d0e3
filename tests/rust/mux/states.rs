//! What a stream may do, driven without any connection.

use std::collections::VecDeque;

use ginnel_mux::Code;
use ginnel_mux::stream_state::ReadResult;
use ginnel_mux::stream_state::StreamState;
use ginnel_mux::stream_state::WINDOW;

use bytes::Bytes;
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
                if let ReadResult::Bytes(bytes) = self.receiver.take_chunk(*most) {
                    assert!(!bytes.is_empty() && bytes.len() <= *most);
                    self.check(&bytes);
                }
            }
            Step::Copy(most) => {
                let mut target = Vec::new();
                let copied =
                    self.receiver.copy_chunks(*most, |bytes| target.extend_from_slice(bytes));
                assert_eq!(copied, target.len());
                self.check(&target);
            }
            Step::Grant => {
                if let Some(increment) = self.back.pop_front() {
                    self.sender.increase_window(increment as usize);
                }
            }
        }
        self.back.extend(self.receiver.grant_window());
        assert!(self.sent - self.read <= WINDOW, "more under way than a window");
        assert!(self.receiver.buffered_bytes() <= WINDOW);
    }

    fn send(&mut self, most: usize) {
        let length = most.min(self.sender.sendable_bytes());
        self.sender.record_sent(length);
        self.wire.push_back((self.sent..self.sent + length).map(byte).collect());
        self.sent += length;
    }

    fn deliver(&mut self) {
        if let Some(body) = self.wire.pop_front() {
            self.receiver.announce_body(body.len()).expect("a sender keeps to its window");
            if !body.is_empty() {
                self.receiver.receive_bytes(body);
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
        prop_assert_eq!(direction.receiver.take_chunk(1), ReadResult::End);
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

        prop_assert!(direction.sender.sendable_bytes() > WINDOW / 2, "the sender would stand still");
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
            prop_assert_eq!(state.sendable_bytes() == 0, ours);
        }
    }
}

#[test]
fn data_after_the_end_and_beyond_the_window_resets() {
    let mut finished = StreamState::default();
    finished.peer_finish();
    let mut full = StreamState::default();
    full.announce_body(WINDOW - 1).unwrap();
    full.announce_body(1).unwrap();

    assert_eq!(finished.announce_body(0), Err(Code::STREAM_CLOSED));
    assert_eq!(full.announce_body(1), Err(Code::FLOW_CONTROL));
    assert!(finished.is_gone() && full.is_gone());
}

#[test]
fn a_reset_takes_what_was_not_read_unless_it_was_complete() {
    for complete in [false, true] {
        let mut state = StreamState::default();
        state.announce_body(3).unwrap();
        state.receive_bytes(Bytes::from_static(b"abc"));
        if complete {
            state.peer_finish();
        }

        state.reset(Code::CANCELLED);

        let expected = if complete {
            ReadResult::Bytes(Bytes::from_static(b"abc"))
        } else {
            ReadResult::Nothing
        };
        assert_eq!(state.take_chunk(9), expected);
        assert_eq!(state.at_end(), complete);
        assert_eq!((state.sendable_bytes(), state.was_reset()), (0, Some(Code::CANCELLED)));
    }
}

#[test]
fn increments_never_widen_beyond_a_window() {
    let mut state = StreamState::default();
    state.record_sent(WINDOW);
    assert_eq!(state.sendable_bytes(), 0);

    state.increase_window(0);
    assert_eq!(state.sendable_bytes(), 0);
    state.increase_window(1000);
    assert_eq!(state.sendable_bytes(), 1000);
    state.increase_window(usize::MAX);

    assert_eq!(state.sendable_bytes(), WINDOW);
}

#[test]
fn many_short_pieces_take_no_more_than_their_bytes() {
    let mut state = StreamState::default();
    let buffer = Bytes::from(vec![7; 64 * 1024]);
    for at in 0..50_000 {
        state.announce_body(1).unwrap();
        state.receive_bytes(buffer.slice(at..=at));
    }

    assert!(matches!(state.take_chunk(usize::MAX), ReadResult::Bytes(bytes) if bytes.len() == 1));
    assert!(
        matches!(state.take_chunk(usize::MAX), ReadResult::Bytes(bytes) if bytes.len() == 49_999)
    );
}

/// A stream to which these pieces came as they were announced.
fn filled(pieces: &[usize]) -> StreamState {
    let mut state = StreamState::default();
    for length in pieces {
        state.announce_body(*length).unwrap();
        state.receive_bytes(vec![7; *length].into());
    }
    state
}

#[test]
fn short_pieces_are_joined_and_long_ones_stay_as_they_came() {
    let long = 8 * 1024;
    for (pieces, taken) in [
        (&[1][..], &[1][..]),
        (&[1, 1, 1], &[1, 2]),
        (&[long, 1, 1, long, 1], &[long, 2, long, 1]),
        (&[1, long - 1, long, long], &[1, long - 1, long, long]),
        (&[long, long - 1, 1], &[long, long]),
    ] {
        let mut state = filled(pieces);

        for length in taken {
            let ReadResult::Bytes(bytes) = state.take_chunk(usize::MAX) else {
                panic!("{pieces:?}")
            };
            assert_eq!(bytes.len(), *length, "{pieces:?}");
        }

        assert_eq!(
            (state.take_chunk(1), state.buffered_bytes()),
            (ReadResult::Nothing, 0),
            "{pieces:?}"
        );
    }
}

#[test]
fn what_is_taken_and_copied_is_counted() {
    let mut state = filled(&[10, 10]);
    let mut copied = Vec::new();

    assert_eq!(state.buffered_bytes(), 20);
    assert!(matches!(state.take_chunk(4), ReadResult::Bytes(bytes) if bytes.len() == 4));
    assert_eq!(state.buffered_bytes(), 16);
    assert_eq!(state.copy_chunks(12, |bytes| copied.push(bytes.len())), 12);
    assert_eq!((copied, state.buffered_bytes()), (vec![6, 6], 4));
    assert_eq!(state.copy_chunks(9, |_| {}), 4);
    assert_eq!(state.copy_chunks(9, |_| panic!("nothing is left")), 0);
}

#[test]
fn an_increment_is_due_when_enough_was_read() {
    const INCREMENT: usize = 64 * 1024;
    let mut state = filled(&[INCREMENT, INCREMENT]);

    state.copy_chunks(INCREMENT - 1, |_| {});
    assert_eq!(state.grant_window(), None);
    state.copy_chunks(1, |_| {});
    assert_eq!(state.grant_window(), Some(INCREMENT as u32));
    assert_eq!(state.grant_window(), None, "it was told");
    // The window is as wide as before then.
    state.announce_body(WINDOW - INCREMENT).unwrap();
    assert_eq!(state.announce_body(1), Err(Code::FLOW_CONTROL));
}

#[test]
fn who_sends_no_more_needs_no_increment() {
    for end in [StreamState::peer_finish, |state: &mut StreamState| state.reset(Code::CANCELLED)] {
        let mut state = filled(&[WINDOW]);
        state.copy_chunks(WINDOW, |_| {});

        end(&mut state);

        assert_eq!(state.grant_window(), None);
    }
}

#[test]
fn a_stream_moves_when_something_was_read_or_sent() {
    let mut state = filled(&[10]);
    assert_eq!(state.move_count(), 0);

    state.take_chunk(1);
    state.copy_chunks(1, |_| {});
    state.record_sent(1);
    assert_eq!(state.move_count(), 3);

    state.copy_chunks(0, |_| {});
    state.increase_window(1);
    state.announce_body(1).unwrap();
    state.take_chunk(8);
    state.take_chunk(8);
    assert_eq!(state.move_count(), 4, "nothing was left for the last");
}

#[test]
fn a_peer_is_held_up_while_its_window_is_used_up() {
    let mut state = filled(&[WINDOW - 1]);
    assert!(!state.holds_up_peer());
    state.announce_body(1).unwrap();
    assert!(state.holds_up_peer());

    state.copy_chunks(WINDOW, |_| {});
    assert!(state.holds_up_peer(), "it does not know yet");
    state.grant_window();
    assert!(!state.holds_up_peer());

    let mut finished = filled(&[WINDOW]);
    finished.peer_finish();
    assert!(!finished.holds_up_peer());
}

#[test]
fn nothing_arrives_after_a_reset_and_the_first_code_stays() {
    let mut state = StreamState::default();
    state.announce_body(5).unwrap();
    state.reset(Code::REFUSED);

    state.receive_bytes(Bytes::from_static(b"late"));
    state.reset(Code::CANCELLED);

    assert_eq!((state.buffered_bytes(), state.take_chunk(9)), (0, ReadResult::Nothing));
    assert_eq!(state.was_reset(), Some(Code::REFUSED));
    assert!(!state.finish(), "there is nobody to tell");
}
