//! Maps by numbers that this program counts up itself.
//!
//! Nobody can choose such numbers to collide, so one multiplication hashes them; with the standard
//! library's hasher, the dozen lookups of a call take an event loop 2 % of its time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers that were counted up.
pub type NumberMap<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// 2⁶⁴ divided by the golden ratio, which spreads neighbours over all bits.
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes one number.
#[derive(Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(HASH_MULTIPLIER).rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn neighbours_are_spread_over_the_bits_that_maps_look_at() {
        let hash = |number: u64| NumberMap::<()>::default().hasher().hash_one(number);
        let low: HashSet<_> = (0..1024).map(|number| hash(number) & 1023).collect();
        let high: HashSet<_> = (0..1024).map(|number| hash(number) >> 57).collect();
        assert!(low.len() > 512, "{} of 1024 buckets", low.len());
        assert_eq!(high.len(), 128);
    }
}
