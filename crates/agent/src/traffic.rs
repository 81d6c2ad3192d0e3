//! What a tunnel carried over the last hour, in slots of ten seconds: plots are there again when a page is.
//!
//! Slots without requests take no memory. Durations are counted in classes, whose lower ends grow by a
//! quarter each, so that percentiles are right to a few percent. Nothing here reads a clock.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

/// How long a slot is.
pub(super) const SLOT_MS: u64 = 10_000;
/// How many slots there are at most.
const MAX_SLOTS: u64 = 360;
/// How many classes of durations there are,
const CLASSES: usize = 72;
/// the end of the first in milliseconds, and what each of the next is longer by.
const FIRST_END_MS: f64 = 0.05;
const GROWTH: f64 = 1.25;

/// One exchange, when it is over.
#[derive(Debug, Clone, Copy)]
pub struct EndedExchange {
    /// When it began.
    pub started: Instant,
    /// How long it took; none where that says nothing, as of WebSockets.
    pub took: Option<Duration>,
    /// Whether it failed.
    pub is_failed: bool,
    /// How long the bodies were.
    pub received: u64,
    /// How long the bodies of responses were.
    pub sent: u64,
}

/// What came in one slot.
#[derive(Debug, Clone, Serialize)]
pub struct TrafficSlot {
    /// When it began, in milliseconds since 1970.
    pub at: u64,
    /// How many requests began.
    pub requests: u32,
    /// How many of them failed.
    pub errors: u32,
    /// The bytes of their bodies.
    pub received: u64,
    /// The bytes of the bodies of responses.
    pub sent: u64,
    /// How many took how long: classes and numbers, without those that have none.
    pub classes: Vec<(usize, u32)>,
}

/// The slots of one tunnel.
#[derive(Debug)]
pub(super) struct TrafficRing {
    /// The same moment by both clocks.
    origin: (Instant, SystemTime),
    slots: VecDeque<TrafficSlot>,
}

impl TrafficRing {
    pub fn new(now: Instant, time: SystemTime) -> Self {
        Self { origin: (now, time), slots: VecDeque::new() }
    }

    /// Counts an exchange in the slot in which it began.
    pub fn add_exchange(&mut self, exchange: &EndedExchange) {
        let at = self.slot_at(exchange.started);
        let slot = match self.slots.iter().rposition(|slot| slot.at <= at) {
            Some(place) if self.slots[place].at == at => place,
            before => {
                let place = before.map_or(0, |before| before + 1);
                self.slots.insert(place, TrafficSlot::new(at));
                place
            }
        };
        let slot = &mut self.slots[slot];
        slot.requests += 1;
        slot.errors += u32::from(exchange.is_failed);
        slot.received += exchange.received;
        slot.sent += exchange.sent;
        if let Some(took) = exchange.took {
            slot.count_class(class_of(took));
        }
        self.evict_expired(at);
    }

    /// The slots from one on, oldest first.
    pub fn slots_since(&mut self, from: u64, now: Instant) -> Vec<TrafficSlot> {
        self.evict_expired(self.slot_at(now));
        self.slots.iter().filter(|slot| slot.at >= from).cloned().collect()
    }

    /// The beginning of the slot of a moment.
    fn slot_at(&self, moment: Instant) -> u64 {
        let (origin, time) = self.origin;
        let elapsed = moment.saturating_duration_since(origin);
        let epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + elapsed;
        let milliseconds = u64::try_from(epoch.as_millis()).unwrap_or_default();
        milliseconds - milliseconds % SLOT_MS
    }

    /// Lets slots go that are too old at a time.
    fn evict_expired(&mut self, now: u64) {
        let oldest = now.saturating_sub((MAX_SLOTS - 1) * SLOT_MS);
        while self.slots.front().is_some_and(|slot| slot.at < oldest) {
            self.slots.pop_front();
        }
    }
}

impl TrafficSlot {
    fn new(at: u64) -> Self {
        Self { at, requests: 0, errors: 0, received: 0, sent: 0, classes: Vec::new() }
    }

    fn count_class(&mut self, class: usize) {
        match self.classes.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(place) => self.classes[place].1 += 1,
            Err(place) => self.classes.insert(place, (class, 1)),
        }
    }
}

/// The ends of the classes in milliseconds.
pub(super) fn class_ends() -> impl Iterator<Item = f64> {
    std::iter::successors(Some(FIRST_END_MS), |end| Some(end * GROWTH)).take(CLASSES)
}

fn class_of(took: Duration) -> usize {
    let milliseconds = took.as_secs_f64() * 1000.0;
    class_ends().position(|end| milliseconds < end).unwrap_or(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(started: Instant, milliseconds: u64) -> EndedExchange {
        let took = Some(Duration::from_millis(milliseconds));
        EndedExchange { started, took, is_failed: milliseconds > 100, received: 1, sent: 2 }
    }

    #[test]
    fn exchanges_count_where_they_began() {
        let now = Instant::now();
        let mut ring = TrafficRing::new(now, SystemTime::UNIX_EPOCH + Duration::from_secs(1000));
        let at = |seconds| now + Duration::from_secs(seconds);

        for (seconds, took) in [(0, 1), (25, 1), (3, 500), (9, 1), (14, 1), (25, 2)] {
            ring.add_exchange(&exchange(at(seconds), took));
        }

        let slots = ring.slots_since(0, at(30));
        let counts: Vec<_> =
            slots.iter().map(|slot| (slot.at, slot.requests, slot.errors)).collect();
        assert_eq!(counts, [(1_000_000, 3, 1), (1_010_000, 1, 0), (1_020_000, 2, 0)]);
        assert_eq!((slots[0].received, slots[0].sent), (3, 6));
        assert_eq!(slots[0].classes.iter().map(|(_, count)| count).sum::<u32>(), 3);
        assert_eq!(ring.slots_since(1_010_000, at(30)).len(), 2);
    }

    #[test]
    fn what_is_older_than_an_hour_is_forgotten() {
        let now = Instant::now();
        let mut ring = TrafficRing::new(now, SystemTime::UNIX_EPOCH + Duration::from_secs(1000));

        for seconds in 0..4000 {
            ring.add_exchange(&exchange(now + Duration::from_secs(seconds), 1));
        }

        let last = now + Duration::from_secs(3999);
        assert_eq!(ring.slots_since(0, last).len() as u64, MAX_SLOTS);
        assert_eq!(ring.slots_since(0, last + Duration::from_secs(3590)).len(), 1);
        assert!(ring.slots_since(0, last + Duration::from_secs(3600)).is_empty());
    }

    #[test]
    fn classes_are_narrow_and_reach_from_microseconds_to_minutes() {
        let ends: Vec<_> = class_ends().collect();

        assert!(ends[CLASSES - 2] > 300_000.0, "{ends:?}");
        for milliseconds in [0, 1, 7, 40, 999, 60_000] {
            let class = class_of(Duration::from_millis(milliseconds));
            let milliseconds = milliseconds as f64;
            assert!(milliseconds < ends[class] && (class == 0 || milliseconds >= ends[class - 1]));
        }
        assert_eq!(class_of(Duration::MAX), CLASSES - 1);
    }
}
