//! The encoding of Protocol Buffers: fields with their numbers and kinds.

/// What a field holds on the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum WireValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
    /// What stands between the marks of a group.
    Group(&'a [u8]),
}

/// How deep groups may stand in each other.
const MAX_GROUP_DEPTH: usize = 64;

/// A number of variable length, and what comes after it.
pub(super) fn read_varint(data: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in data.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, data.get(at + 1..)?));
        }
    }
    None
}

/// The fields of a message in their order; the last one is none if the bytes are no message.
pub(super) struct WireFields<'a> {
    rest: &'a [u8],
}

impl<'a> WireFields<'a> {
    pub fn from_bytes(data: &'a [u8]) -> Self {
        Self { rest: data }
    }
}

impl<'a> Iterator for WireFields<'a> {
    type Item = Option<(u32, WireValue<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match read_field(self.rest, 0) {
            Some((Read::Field(number, value), rest)) => {
                self.rest = rest;
                Some(Some((number, value)))
            }
            _ => {
                self.rest = &[];
                Some(None)
            }
        }
    }
}

/// A field, or the end of the group with this number.
enum Read<'a> {
    Field(u32, WireValue<'a>),
    EndOfGroup(u32),
}

fn read_field(data: &[u8], depth: usize) -> Option<(Read<'_>, &[u8])> {
    let (key, rest) = read_varint(data)?;
    let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0)?;
    let (value, rest) = match key & 7 {
        0 => read_varint(rest).map(|(value, rest)| (WireValue::Varint(value), rest))?,
        1 => {
            let (bytes, rest) = rest.split_first_chunk()?;
            (WireValue::Fixed64(u64::from_le_bytes(*bytes)), rest)
        }
        2 => {
            let (length, rest) = read_varint(rest)?;
            let (bytes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            (WireValue::Bytes(bytes), rest)
        }
        3 if depth < MAX_GROUP_DEPTH => {
            let (length, after) = measure_group(rest, number, depth + 1)?;
            (WireValue::Group(rest.get(..length)?), after)
        }
        4 => return Some((Read::EndOfGroup(number), rest)),
        5 => {
            let (bytes, rest) = rest.split_first_chunk()?;
            (WireValue::Fixed32(u32::from_le_bytes(*bytes)), rest)
        }
        _ => return None,
    };
    Some((Read::Field(number, value), rest))
}

/// How long the content of a group is, and what comes after its end.
fn measure_group(data: &[u8], number: u32, depth: usize) -> Option<(usize, &[u8])> {
    let mut rest = data;
    loop {
        let before = data.len() - rest.len();
        let (read, after) = read_field(rest, depth)?;
        rest = after;
        if let Read::EndOfGroup(ended) = read {
            return (ended == number).then_some((before, rest));
        }
    }
}
