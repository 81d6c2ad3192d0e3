//! What is kept, what is let go, and what listeners get.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::capture::{SocketMessage, StreamSide};

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

fn open(captures: &Arc<CaptureStore>, tunnel_name: &str) -> Recording {
    captures.start_recording(NewCapture {
        tunnel_name,
        source: Arc::default(),
        head: HEAD,
        body: &Body::NONE,
    })
}

/// What the records cost, counted anew.
fn counted(captures: &CaptureStore) -> usize {
    let cost = |record: &Arc<CaptureRecord>| record.memory_cost();
    captures.list(usize::MAX, None).iter().map(cost).sum()
}

#[test]
fn records_are_listed_newest_first_and_by_tunnel() {
    let captures = CaptureStore::new(CaptureLimit::default());
    let ids = ["a", "b", "a"].map(|tunnel| open(&captures, tunnel).record().id.clone());

    let listed = |limit, tunnel| {
        captures.list(limit, tunnel).iter().map(|r| r.id.clone()).collect::<Vec<_>>()
    };

    assert_eq!(listed(9, None), [&*ids[2], &*ids[1], &*ids[0]]);
    assert_eq!(listed(1, Some("a")), [&*ids[2]]);
    assert_eq!(captures.find(&ids[1]).unwrap().tunnel_name, "b");
    assert!(captures.find("0000000000000001").is_none());
    assert!(captures.find("é").is_none());
}

#[test]
fn the_oldest_go_first_and_the_count_stays_right() {
    let captures = CaptureStore::new(CaptureLimit::Bytes(10_000));

    for size in [0, 10, 4_000, 2_000, 9_999, 100] {
        let recording = open(&captures, "a");
        recording.request_body(&vec![b'x'; size]);
        recording.response_head(b"HTTP/1.1 200 OK\r\n\r\n", &Body::NONE);
        recording.response_body(&vec![b'y'; size]);
        assert!(captures.usage().bytes <= 10_000, "{:?}", captures.usage());
        assert_eq!(captures.usage().bytes, counted(&captures));
    }

    let newest = captures.list(1, None);
    assert_eq!(newest[0].lock_exchange().request.body_length, 100);
    assert_eq!(captures.usage().records as u64 + captures.usage().evicted, 6);
}

#[test]
fn a_body_beyond_the_cap_is_cut_and_marked() {
    for (total, body) in [(1_000_000, 3_000), (4_000, 1_000_000)] {
        let total = CaptureLimit::Bytes(total);
        let captures = CaptureStore::new(CaptureLimits { total, body });
        let recording = open(&captures, "a");

        recording.request_body(&[b'x'; 1_600]);
        recording.request_body(&[b'x'; 1_600]);

        let shown = recording.record().to_captured_request();
        assert_eq!(shown.request.truncated, ginnel_api::Flag(true));
        assert_eq!(recording.record().lock_exchange().request.body.len(), 3_000);
    }
}

#[test]
fn a_body_leaves_no_room_for_the_other_one_if_it_takes_it_all() {
    let captures = CaptureStore::new(CaptureLimit::Bytes(10_000));
    let recording = open(&captures, "a");
    recording.response_head(b"HTTP/1.1 200 OK\r\n\r\n", &Body::NONE);

    recording.request_body(&[b'x'; 7_000]);
    recording.response_body(&[b'y'; 700]);

    let exchange = recording.record().lock_exchange();
    let response = exchange.response.as_ref().unwrap();
    assert_eq!((exchange.request.body.len(), response.body.len()), (7_000, 500));
    assert!(!exchange.request.is_truncated() && response.is_truncated());
}

#[test]
fn a_list_carries_the_beginning_of_a_long_message() {
    let captures = CaptureStore::new(CaptureLimit::default());
    let recording = open(&captures, "a");

    recording.request_body(&vec![b'x'; 2 << 20]);

    let listed = recording.record().to_listed_request().request;
    let whole = recording.record().to_captured_request().request;
    assert_eq!((listed.truncated.0, listed.raw.0.len()), (true, 1 << 20));
    assert!(!whole.truncated.0 && whole.raw.0.len() > 2 << 20);
}

#[test]
fn what_was_let_go_takes_no_memory_although_it_lasts() {
    let captures = CaptureStore::new(CaptureLimit::Bytes(4_000));
    let lasting = open(&captures, "a");
    lasting.request_body(&[b'x'; 900]);
    lasting.response_head(b"HTTP/1.1 200 OK\r\n\r\n", &Body::NONE);
    lasting.response_body(&[b'x'; 900]);

    (0..2).for_each(|_| open(&captures, "a").request_body(&[b'x'; 1_000]));

    assert_eq!(captures.usage().evicted, 1);
    let exchange = lasting.record().lock_exchange();
    assert!(exchange.request.body.is_empty());
    assert!(exchange.response.as_ref().unwrap().body.is_empty());
    assert!(exchange.request.is_truncated());
}

#[test]
fn a_request_that_is_replaced_counts_as_what_it_is_now() {
    let captures = CaptureStore::new(CaptureLimit::default());
    let recording = open(&captures, "a");

    for head in ["PUT /longer-than-before HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"] {
        recording.edit_request(head.as_bytes(), &Body::NONE);
        assert_eq!(captures.usage().bytes, counted(&captures));
    }

    assert_eq!(recording.record().lock_exchange().request.start_line()[0], "GET");
}

#[test]
fn a_request_in_chunks_that_replaces_another_is_shown_without_them() {
    let captures = CaptureStore::new(CaptureLimit::default());
    let recording = open(&captures, "a");
    let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";

    recording.edit_request(head, &Body::CHUNKED);
    recording.request_body(b"hello");
    recording.request_complete(b"x-sum: 7\r\n\r\n");

    let shown = recording.record().to_captured_request().request;
    assert!(shown.raw.0.ends_with(b"Content-Length: 5\r\n\r\nhello"), "{shown:?}");
    assert_eq!(shown.trailers.0["X-Sum"], ["7"]);
}

#[test]
fn messages_and_the_times_of_parts_count() {
    let captures = CaptureStore::new(CaptureLimit::Bytes(20_000));
    let recording = open(&captures, "a");
    recording.response_head(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        &Body::CHUNKED,
    );
    recording.response_body(b"data: 1\n\n");
    assert_eq!(captures.usage().bytes, counted(&captures));
    recording.begin_socket();

    for size in [10, 1_000, 3_000, 2_000, 9_000, 1] {
        recording.socket_message(SocketMessage {
            side: StreamSide::Client,
            opcode: 1,
            at: Duration::ZERO,
            size: size as u64,
            data: vec![b'x'; size],
            is_cut: false,
            is_compressed: false,
        });
        assert_eq!(captures.usage().bytes, counted(&captures));
    }

    let exchange = recording.record().lock_exchange();
    let socket = exchange.socket.as_ref().unwrap();
    assert_eq!((socket.messages.len(), socket.dropped, socket.bytes), (1, 5, [15_011, 0]));
    drop(exchange);
    open(&captures, "a").request_body(&[b'x'; 5_000]);
    (0..40).for_each(|_| drop(open(&captures, "a")));
    assert_eq!(captures.usage().bytes, counted(&captures));
}

#[test]
fn a_body_that_never_came_to_its_end_is_marked() {
    let captures = CaptureStore::new(CaptureLimit::default());

    for (is_whole, is_held) in [(false, false), (false, true), (true, false), (true, true)] {
        let recording = captures.start_recording(NewCapture {
            tunnel_name: "a",
            source: Arc::default(),
            head: b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
            body: &Body::Length(5),
        });
        let record = recording.record().clone();
        let is_cut = || record.lock_exchange().request.is_truncated();
        if is_held {
            recording.begin_hold("h");
            assert!(is_cut() && record.lock_exchange().is_held, "it is not in the record yet");
        }
        if is_whole {
            recording.end_hold();
            recording
                .resume_request(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", &Body::Length(5));
            recording.request_body(b"hello");
            recording.request_complete(b"");
        }
        drop(recording);

        assert_eq!((is_cut(), record.lock_exchange().is_held), (!is_whole, false));
    }
}

#[test]
fn what_was_cleared_grows_no_more() {
    let captures = CaptureStore::new(CaptureLimit::default());
    let recording = open(&captures, "a");

    captures.clear();
    recording.request_body(b"late");

    assert_eq!((captures.usage().records, captures.usage().bytes), (0, 0));
}

#[test]
fn a_record_that_is_removed_counts_no_more_and_is_named_to_who_asks() {
    let captures = CaptureStore::new(CaptureLimit::default());
    let recordings: Vec<_> = (0..3).map(|_| open(&captures, "web")).collect();
    let ids: Vec<_> = recordings.iter().map(|one| one.record().id.clone()).collect();
    let before = captures.revision();

    assert!(captures.remove(&ids[1]));

    assert!(!captures.remove(&ids[1]) && !captures.remove("00"));
    recordings[1].response_body(b"nobody keeps this");
    let listed: Vec<_> = captures.list(9, None).iter().map(|one| one.id.clone()).collect();
    assert_eq!(listed, [ids[2].clone(), ids[0].clone()]);
    assert_eq!(captures.usage().bytes, counted(&captures));
    let snapshot = captures.snapshot_since(Some(before));
    assert_eq!(snapshot.since, Some(before));
    assert_eq!(snapshot.removed, [ids[1].clone()]);
    assert_eq!((snapshot.records.len(), snapshot.usage), (2, captures.usage()));
    assert!(captures.snapshot_since(Some(snapshot.revision)).removed.is_empty());
    assert_eq!(captures.snapshot_since(Some(snapshot.revision + 1)).since, None);
}

#[test]
fn removals_beyond_those_that_are_remembered_make_pages_begin_anew() {
    let captures = CaptureStore::new(CaptureLimit::default());
    let before = captures.revision();

    for _ in 0..=MAX_REMOVALS {
        let recording = open(&captures, "web");
        assert!(captures.remove(&recording.record().id));
    }

    let snapshot = captures.snapshot_since(Some(before));
    assert_eq!((snapshot.since, snapshot.removed.len()), (None, 0));
    let is_known = |since: &u64| captures.snapshot_since(Some(*since)).since.is_some();
    let first = (before..=snapshot.revision).find(is_known);
    assert_eq!(captures.snapshot_since(first).removed.len(), MAX_REMOVALS);
}

#[test]
fn listeners_hear_of_the_start_the_answer_and_the_end() {
    let captures = CaptureStore::new(CaptureLimit::default());
    let mut changes = captures.subscribe();

    let recording = open(&captures, "a");
    recording.response_head(b"HTTP/1.1 200 OK\r\n\r\n", &Body::NONE);
    drop(recording);

    let received: Vec<_> = std::iter::from_fn(|| changes.try_recv().ok()).collect();
    assert!(
        matches!(
            received[..],
            [CaptureChange::Updated(_), CaptureChange::Updated(_), CaptureChange::Ended(_)]
        ),
        "{received:?}"
    );
}

#[test]
fn an_exchange_that_nobody_completed_has_failed() {
    let captures = CaptureStore::new(CaptureLimit::default());

    for complete in [true, false] {
        let recording = open(&captures, "a");
        recording.response_head(b"HTTP/1.1 200 OK\r\n\r\n", &Body::NONE);
        if complete {
            recording.mark_complete();
        }
        let record = recording.record().clone();
        drop(recording);

        let exchange = record.lock_exchange();
        let cut_off = exchange.response.as_ref().unwrap().cut_off;
        assert_eq!((exchange.error.is_none(), cut_off), (complete, !complete));
    }
}
