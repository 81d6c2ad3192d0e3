//! Texts of JSON with escapes in them.
//!
//! `serde_json` looks at such a text byte by byte: for metadata of 32 characters, eight of them
//! escaped, it takes 2,300 instructions, a fifth of what it takes to decode an API key (callgrind).

/// What stands for one character behind a backslash, and how many bytes that takes.
type Escape = (char, usize);

/// What a text between two quotes says (`tests/python/test_decode_random.py`); none where an escape is wrong. Half of a surrogate pair is
/// no character, so a result that held it could not be written.
pub(super) fn unescaped(text: &str) -> Option<String> {
    let mut said = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte == b'\\') {
        let (plain, escaped) = rest.split_at_checked(at)?;
        let (character, length) = escape(escaped.as_bytes().get(1..)?)?;
        said.push_str(plain);
        said.push(character);
        rest = escaped.get(1 + length..)?;
    }
    said.push_str(rest);
    Some(said)
}

fn escape(bytes: &[u8]) -> Option<Escape> {
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

/// How many bytes a string goes on without a quote, a backslash or a control character.
pub(super) fn plain(bytes: &[u8]) -> usize {
    let mut at = 0;
    // Eight bytes at once: strings are what answers consist of.
    for word in bytes.chunks_exact(8) {
        let word = word.try_into().map_or(0, u64::from_le_bytes);
        let special = special_bytes(word);
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < b' ';
    at + bytes[at..].iter().take_while(|byte| !special(byte)).count()
}

/// The highest bits of the bytes that end a plain stretch. The lowest bit that is set is right;
/// those above it may be there because of it.
const fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let quotes = quote.wrapping_sub(ONES) & !quote;
    let backslashes = backslash.wrapping_sub(ONES) & !backslash;
    let controls = word.wrapping_sub(ONES * b' ' as u64) & !word;
    (quotes | backslashes | controls) & HIGHS
}
