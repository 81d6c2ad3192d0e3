//! How much room the next read of a connection gets.

use bytes::BytesMut;

/// The room for a read of a connection that sends little, in bytes.
const MIN_READ_BYTES: usize = 4 << 10;
/// The room for a read of a connection that sends much, in bytes.
const BULK_READ_BYTES: usize = 64 << 10;

/// The room for the next read: more behind a read that brought much.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadRoom {
    /// How many bytes the last read brought.
    last_read: usize,
}

impl ReadRoom {
    /// Nothing was read yet.
    pub const NEW: Self = Self { last_read: 0 };

    /// Makes room for the next read.
    pub fn reserve(self, buffer: &mut BytesMut) {
        let is_fast = self.last_read >= MIN_READ_BYTES;
        buffer.reserve(if is_fast { BULK_READ_BYTES } else { MIN_READ_BYTES });
    }

    /// Remembers how many bytes a read brought.
    pub fn note_read(&mut self, bytes: usize) {
        self.last_read = bytes;
    }

    /// Drops a buffer that grew, so that a connection that waits holds little.
    pub fn release(buffer: &mut BytesMut) {
        if buffer.capacity() > MIN_READ_BYTES {
            *buffer = BytesMut::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_connection_gets_more_room_until_it_slows_down() {
        let room_behind = |bytes| {
            let (mut room, mut buffer) = (ReadRoom::NEW, BytesMut::new());
            room.note_read(bytes);
            room.reserve(&mut buffer);
            buffer.capacity()
        };

        assert_eq!(room_behind(0), MIN_READ_BYTES);
        assert_eq!(room_behind(MIN_READ_BYTES - 1), MIN_READ_BYTES);
        assert_eq!(room_behind(MIN_READ_BYTES), BULK_READ_BYTES);
    }
}
