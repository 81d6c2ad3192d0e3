//! Checksums: CRC-64 (ISO 3309, as Go has it) and XXH64 with seed 0. CRC-32 is from `crc32fast`.

const CRC_64: u64 = 0xd800_0000_0000_0000;

const PRIMES: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];

pub(super) fn crc64(bytes: &[u8]) -> u64 {
    !bytes.iter().fold(u64::MAX, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| (sum >> 1) ^ (CRC_64 * (sum & 1)))
    })
}

pub(super) fn xxhash64(bytes: &[u8]) -> u64 {
    let (stripes, rest) = bytes.as_chunks::<32>();
    let start = if stripes.is_empty() { PRIMES[4] } else { merge_lanes(accumulate_lanes(stripes)) };
    avalanche(mix_tail(start.wrapping_add(bytes.len() as u64), rest))
}

fn accumulate_lanes(stripes: &[[u8; 32]]) -> [u64; 4] {
    let first = PRIMES[0].wrapping_add(PRIMES[1]);
    let mut lanes = [first, PRIMES[1], 0, 0u64.wrapping_sub(PRIMES[0])];
    for stripe in stripes {
        let (words, _) = stripe.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = round(*lane, u64::from_le_bytes(*word));
        }
    }
    lanes
}

fn merge_lanes(lanes: [u64; 4]) -> u64 {
    let turns = [1, 7, 12, 18];
    let sum = lanes
        .iter()
        .zip(turns)
        .fold(0u64, |sum, (lane, turn)| sum.wrapping_add(lane.rotate_left(turn)));
    lanes.iter().fold(sum, |sum, lane| {
        (sum ^ round(0, *lane)).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3])
    })
}

fn mix_tail(start: u64, rest: &[u8]) -> u64 {
    let (words, rest) = rest.as_chunks::<8>();
    let sum = words.iter().fold(start, |sum, word| {
        let mixed = sum ^ round(0, u64::from_le_bytes(*word));
        mixed.rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3])
    });
    let (halves, rest) = rest.as_chunks::<4>();
    let sum = halves.iter().fold(sum, |sum, half| {
        let half = u64::from(u32::from_le_bytes(*half)).wrapping_mul(PRIMES[0]);
        (sum ^ half).rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2])
    });
    rest.iter().fold(sum, |sum, byte| {
        let byte = u64::from(*byte).wrapping_mul(PRIMES[4]);
        (sum ^ byte).rotate_left(11).wrapping_mul(PRIMES[0])
    })
}

fn round(lane: u64, word: u64) -> u64 {
    let sum = lane.wrapping_add(word.wrapping_mul(PRIMES[1]));
    sum.rotate_left(31).wrapping_mul(PRIMES[0])
}

fn avalanche(sum: u64) -> u64 {
    let sum = (sum ^ (sum >> 33)).wrapping_mul(PRIMES[1]);
    let sum = (sum ^ (sum >> 29)).wrapping_mul(PRIMES[2]);
    sum ^ (sum >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_have_their_check_values() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc64(b"123456789"), 0xb909_56c7_75a4_1001);
    }

    #[test]
    fn xxhash_has_its_published_values() {
        assert_eq!(xxhash64(b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxhash64(b"a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(xxhash64(b"abc"), 0x44bc_2cf5_ad77_0999);
    }
}
