//! Texts of JSON with escapes in them.
//!
//! `serde_json` looks at such a text byte by byte: for metadata of 32 characters, eight of them
//! escaped, it takes 2,300 instructions, a fifth of what it takes to decode an API key (callgrind).

/// What stands for one character behind a backslash, and how many bytes that takes.
type Escape = (char, usize);

/// What a text between two quotes says (`tests/python/test_decode_random.py`); none where an escape is wrong. Half of a surrogate pair is
/// no character, so a result that held it could not be written.
pub(super) fn unescape_text(text: &str) -> Option<String> {
    let mut said = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte == b'\\') {
        let (plain, escaped) = rest.split_at_checked(at)?;
        let (character, length) = decode_escape(escaped.as_bytes().get(1..)?)?;
        said.push_str(plain);
        said.push(character);
        rest = escaped.get(1 + length..)?;
    }
    said.push_str(rest);
    Some(said)
}

fn decode_escape(bytes: &[u8]) -> Option<Escape> {
    let character = match bytes.first()? {
        same @ (b'"' | b'\\' | b'/') => char::from(*same),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return code_point(bytes.get(1..)?),
        _ => return None,
    };
    Some((character, 1))
}

/// What four digits say, or eight with another `\u` between them.
fn code_point(bytes: &[u8]) -> Option<Escape> {
    let unit = code_unit(bytes)?;
    if let Some(character) = char::from_u32(unit) {
        return Some((character, 5));
    }
    let low = code_unit(bytes.get(4..)?.strip_prefix(b"\\u")?)?;
    let is_pair = (0xd800..0xdc00).contains(&unit) && (0xdc00..0xe000).contains(&low);
    let character = char::from_u32(0x10000 + ((unit & 0x3ff) << 10 | (low & 0x3ff)));
    character.filter(|_| is_pair).map(|character| (character, 11))
}

fn code_unit(bytes: &[u8]) -> Option<u32> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    bytes.get(..4)?.iter().try_fold(0, |unit, byte| Some(unit << 4 | digit(byte)?))
}

/// Returns how many bytes of a string come before the next quote, backslash or control character.
pub(super) fn plain_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    // Strings are most of a response, so many bytes are compared at once.
    for block in bytes.chunks_exact(block::BYTES) {
        if let Some(special) = block::first_special(block) {
            return at + special;
        }
        at += block::BYTES;
    }
    let special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < b' ';
    at + bytes[at..].iter().take_while(|byte| !special(byte)).count()
}

/// Sixteen bytes at once, with the instructions that each x86-64 processor has. A tenth of the time of a page of 100 keys
/// was spent on eight bytes at once (`perf`).
#[cfg(target_arch = "x86_64")]
mod block {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set1_epi8,
    };

    pub(super) const BYTES: usize = 16;

    /// Returns the position of the first quote, backslash or control character.
    #[inline]
    pub(super) fn first_special(block: &[u8]) -> Option<usize> {
        let block: &[u8; BYTES] = block.try_into().ok()?;
        // SAFETY: reads the 16 bytes of the array, which need no alignment. SSE2 is part of x86-64.
        let special = unsafe {
            let bytes = _mm_loadu_si128(block.as_ptr().cast::<__m128i>());
            let last_control = _mm_set1_epi8(0x1f);
            let controls = _mm_cmpeq_epi8(_mm_min_epu8(bytes, last_control), bytes);
            let quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"'.cast_signed()));
            let backslashes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\'.cast_signed()));
            _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quotes, backslashes), controls))
        };
        (special != 0).then(|| special.trailing_zeros() as usize)
    }
}

/// Eight bytes at once, as one number.
#[cfg(not(target_arch = "x86_64"))]
mod block {
    pub(super) const BYTES: usize = 8;

    /// Returns the position of the first quote, backslash or control character.
    pub(super) fn first_special(block: &[u8]) -> Option<usize> {
        const ONES: u64 = u64::MAX / 255;
        const HIGHS: u64 = ONES << 7;
        let word = u64::from_le_bytes(block.try_into().ok()?);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        let quotes = quote.wrapping_sub(ONES) & !quote;
        let backslashes = backslash.wrapping_sub(ONES) & !backslash;
        let controls = word.wrapping_sub(ONES * b' ' as u64) & !word;
        // The lowest of these bits is right; higher ones may be set because of it.
        let special = (quotes | backslashes | controls) & HIGHS;
        (special != 0).then(|| special.trailing_zeros() as usize / 8)
    }
}

/// Returns true if a text begins with another one. The texts are short, so the comparison is made here: the general one
/// of the C library takes twice the time.
#[inline]
pub(super) fn begins_with(text: &[u8], start: &[u8]) -> bool {
    const WORD: usize = size_of::<u64>();
    let Some(text) = text.get(..start.len()) else { return false };
    let Some(last) = start.len().checked_sub(WORD) else { return text.iter().eq(start) };
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + WORD).and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes)
    };
    (0..last).step_by(WORD).chain([last]).all(|at| word(text, at) == word(start, at))
}
