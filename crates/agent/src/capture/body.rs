//! Captured bodies, in blocks.

use std::borrow::Cow;

/// How long a block is at most, in bytes. Memory that a body of any length gives back fits into the
/// next one, and so what is resident stays near what is counted.
const BLOCK_BYTES: usize = 32 * 1024;

/// The bytes of a body, as far as they are kept.
#[derive(Debug, Default, Clone)]
pub struct CapturedBody {
    /// All of a short body.
    first: Vec<u8>,
    /// What did not fit into the first block; all but the last are full.
    others: Vec<Vec<u8>>,
    length: usize,
}

impl CapturedBody {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// All bytes in one piece; a short body is one already.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        if self.others.is_empty() {
            return Cow::Borrowed(&self.first);
        }
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        Cow::Owned(bytes)
    }

    /// Puts all bytes behind others.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        self.append_within(bytes, usize::MAX);
    }

    /// Puts bytes behind others until there are `most` of them in all. Returns true if some did not fit.
    pub fn append_within(&self, bytes: &mut Vec<u8>, most: usize) -> bool {
        let mut room = self.length.min(most.saturating_sub(bytes.len()));
        let is_cut = room < self.length;
        bytes.reserve(room);
        for block in std::iter::once(&self.first).chain(&self.others) {
            let now = block.get(..room).unwrap_or(block);
            bytes.extend_from_slice(now);
            room -= now.len();
        }
        is_cut
    }

    /// Adds bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let last = self.others.last_mut().unwrap_or(&mut self.first);
            if last.len() == BLOCK_BYTES {
                self.others.push(Vec::new());
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - last.len()));
            grow_block(last, now.len());
            last.extend_from_slice(now);
            rest = later;
        }
        self.length += bytes.len();
    }

    /// Gives back what was set aside for more.
    pub(super) fn shrink_to_fit(&mut self) {
        self.others.shrink_to_fit();
        self.others.last_mut().unwrap_or(&mut self.first).shrink_to_fit();
    }
}

/// Makes room for so many more bytes, and no more than a block.
fn grow_block(block: &mut Vec<u8>, more: usize) {
    let needed = block.len() + more;
    if needed > block.capacity() {
        let room = (2 * block.capacity()).clamp(needed, BLOCK_BYTES);
        block.reserve_exact(room - block.len());
    }
}

impl From<Vec<u8>> for CapturedBody {
    fn from(bytes: Vec<u8>) -> Self {
        let mut body = Self::default();
        body.push(&bytes);
        body
    }
}

impl<const N: usize> PartialEq<[u8; N]> for CapturedBody {
    fn eq(&self, bytes: &[u8; N]) -> bool {
        *self.bytes() == bytes[..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(body: &CapturedBody) -> impl Iterator<Item = &Vec<u8>> {
        std::iter::once(&body.first).chain(&body.others)
    }

    #[test]
    fn bytes_come_back_as_they_went_in_however_they_were_cut() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();

        for piece in [1, 7, 1_000, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 200_000] {
            let mut body = CapturedBody::default();
            bytes.chunks(piece).for_each(|piece| body.push(piece));

            let mut behind = b"head".to_vec();
            body.append_to(&mut behind);
            assert_eq!((body.len(), &*body.bytes()), (bytes.len(), bytes.as_slice()));
            assert_eq!(behind[4..], bytes);
            for most in [0, 4, 5, BLOCK_BYTES, 150_000, 200_003, 200_004] {
                let mut cut = b"head".to_vec();
                let is_cut = body.append_within(&mut cut, most);
                assert_eq!((&*cut, is_cut), (&behind[..most.max(4)], most < behind.len()));
            }
            assert!(blocks(&body).all(|block| block.capacity() <= BLOCK_BYTES));
        }
    }

    #[test]
    fn a_settled_body_sets_nothing_aside() {
        let mut body = CapturedBody::default();
        body.push(&[b'x'; 100]);
        body.push(&[b'x'; 33_000]);

        body.shrink_to_fit();

        let room: usize = blocks(&body).map(Vec::capacity).sum();
        assert_eq!(room, body.len());
    }
}
