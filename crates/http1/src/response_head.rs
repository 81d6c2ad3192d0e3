//! The head of the response to one request, behind its interim responses; free of I/O.
//!
//! The gateway, the agent and the client all read the responses of HTTP/1.1 here.
//! [`ResponseGrammar`] is the one choice of how strictly.

use http::header::UPGRADE;

use super::lists::{is_proper_upgrade, list_elements};
use super::message_head::{
    BAD_FIELD_NAME, HeadError, HeadLimits, ResponseHead, find_head_end, may_end_head,
    read_response_within,
};

/// The longest interim responses to one request together, in bytes.
const MAX_INTERIM_BYTES: usize = 256 << 10;

/// The facts about a request that decide how its response is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpectedResponse {
    /// The request was a HEAD: the response has no body.
    pub to_head: bool,
    /// The request asked for another protocol.
    pub may_switch: bool,
}

/// How strictly a response is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseGrammar {
    /// By the grammar of RFC 9112: for responses of ginnel's own agents, nodes and services.
    Strict,
    /// With the faults that servers make and that can be repaired before the response goes on: blanks
    /// before the colon of a field (RFC 9112, section 5.1) and behind a chunk size. The connection
    /// carries no other response then.
    Tolerant,
}

/// Reads the head of the response to one request.
#[derive(Debug)]
pub struct ResponseHeadReader {
    grammar: ResponseGrammar,
    expected: ExpectedResponse,
    limits: HeadLimits,
    /// How many bytes at the beginning of the buffer do not contain the end of the head.
    searched: usize,
    /// The length of the interim responses so far.
    interim_bytes: usize,
    /// True after a fault that was repaired.
    is_repaired: bool,
}

/// A step on the way to the final head of a response.
#[derive(Debug, PartialEq, Eq)]
pub enum HeadProgress<T> {
    /// A part of the next head is missing.
    Incomplete,
    /// The buffer begins with an interim response, which the caller takes out of it.
    Interim {
        /// Its status; never 101.
        status: u16,
        /// Its length in bytes.
        length: usize,
    },
    /// The head of the final response, or of a switch of protocols that the request asked for. The bytes
    /// behind it are a sound beginning of its body.
    Final(T),
}

impl ResponseHeadReader {
    /// A reader of a response that goes on to others, with nothing read yet.
    pub fn new(grammar: ResponseGrammar, expected: ExpectedResponse) -> Self {
        let limits = HeadLimits::RESPONSE;
        Self { grammar, expected, limits, searched: 0, interim_bytes: 0, is_repaired: false }
    }

    /// A strict reader of a response that goes nowhere, with other limits.
    pub(super) fn for_client(limits: HeadLimits) -> Self {
        Self { limits, ..Self::new(ResponseGrammar::Strict, ExpectedResponse::default()) }
    }

    /// Returns true if no byte of the response was read, neither before nor into this buffer.
    pub fn is_unbegun(&self, buffer: &[u8]) -> bool {
        buffer.is_empty() && self.interim_bytes == 0
    }

    /// Reads the next head from the beginning of a buffer. `read` sees only the final one. The tolerant
    /// reader repairs the head in the buffer. The head keeps its length.
    ///
    /// # Errors
    /// If the response is malformed, too long, ambiguous, or switches protocols unasked.
    pub fn read_next<T>(
        &mut self,
        buffer: &mut [u8],
        read: impl FnOnce(&ResponseHead<'_, '_>) -> T,
    ) -> Result<HeadProgress<T>, HeadError> {
        let can_be_read = !buffer.is_empty() && may_end_head(buffer, self.searched);
        if !can_be_read && buffer.len() < self.limits.bytes {
            self.searched = buffer.len();
            return Ok(HeadProgress::Incomplete);
        }
        let mut read = Some(read);
        let mut progress = self.read_head(buffer, &mut read);
        if matches!(progress, Err(HeadError::Malformed(BAD_FIELD_NAME)))
            && self.grammar == ResponseGrammar::Tolerant
        {
            let end = find_head_end(buffer);
            let head = buffer.get_mut(..end.unwrap_or_default()).unwrap_or_default();
            if close_gaps_before_colons(head) {
                self.is_repaired = true;
                progress = self.read_head(buffer, &mut read);
            } else if end.is_none() && buffer.len() < self.limits.bytes {
                // The colon behind the name may be missing yet.
                progress = Ok(HeadProgress::Incomplete);
            }
        }
        let progress = progress?;
        self.searched = 0;
        match &progress {
            HeadProgress::Incomplete => self.searched = buffer.len(),
            HeadProgress::Interim { length, .. } => self.interim_bytes += length,
            HeadProgress::Final(_) => {}
        }
        match self.interim_bytes <= MAX_INTERIM_BYTES {
            true => Ok(progress),
            false => Err(HeadError::LongInterim),
        }
    }

    /// Reads a head, and has `read` see it if it is the final one.
    fn read_head<T, R: FnOnce(&ResponseHead<'_, '_>) -> T>(
        &self,
        buffer: &[u8],
        read: &mut Option<R>,
    ) -> Result<HeadProgress<T>, HeadError> {
        let Self { expected, limits, is_repaired, .. } = *self;
        let seen = read_response_within(limits, buffer, expected.to_head, |head| {
            if matches!(head.status, 100..200) && head.status != 101 {
                let (status, length) = (head.status, head.bytes.len());
                return Ok(HeadProgress::Interim { status, length });
            }
            check_switch(head, expected)?;
            let body = match self.grammar {
                ResponseGrammar::Strict => head.body.clone(),
                ResponseGrammar::Tolerant => head.body.clone().with_padding(),
            };
            // The bytes behind the head must be sound as long as there can be another response.
            let beginning = buffer.get(head.bytes.len()..).unwrap_or_default();
            body.check_bytes(beginning).map_err(|_| HeadError::BodyBeginning)?;
            let keeps_alive = head.keeps_alive && !is_repaired;
            let read = read.take().map(|read| read(&ResponseHead { body, keeps_alive, ..*head }));
            Ok(read.map_or(HeadProgress::Incomplete, HeadProgress::Final))
        })?;
        seen.unwrap_or(Ok(HeadProgress::Incomplete))
    }
}

/// Moves the colons of fields to their names: `Name : value` becomes `Name:  value`. Returns false if there
/// is nothing to move.
fn close_gaps_before_colons(head: &mut [u8]) -> bool {
    let mut is_changed = false;
    for line in head.split_mut(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let before = line.get(..colon).unwrap_or_default();
        let name = before.iter().rposition(|byte| !matches!(byte, b' ' | b'\t'));
        if let Some(end) = name.map(|last| last + 1).filter(|end| *end < colon) {
            line.swap(end, colon);
            is_changed = true;
        }
    }
    is_changed
}

/// Makes sure that a response switches protocols only as the request asked.
fn check_switch(head: &ResponseHead<'_, '_>, expected: ExpectedResponse) -> Result<(), HeadError> {
    if head.status != 101 {
        return Ok(());
    }
    if !expected.may_switch {
        return Err(HeadError::Switched);
    }
    let mut upgrades = head.fields.iter().filter(|field| UPGRADE == field.name);
    match upgrades.all(|field| list_elements(field.value).all(is_proper_upgrade)) {
        true => Ok(()),
        false => Err(HeadError::ImproperSwitch),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Body;

    const ASKED: ExpectedResponse = ExpectedResponse { to_head: false, may_switch: true };

    fn strict() -> ResponseHeadReader {
        ResponseHeadReader::new(ResponseGrammar::Strict, ExpectedResponse::default())
    }

    /// Reads the final head of bytes that arrive in pieces, and the statuses before it.
    fn read_final(
        mut reader: ResponseHeadReader,
        bytes: &[u8],
        piece: usize,
    ) -> Result<(Vec<u16>, Option<u16>), HeadError> {
        let (mut buffer, mut interim) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            loop {
                match reader.read_next(&mut buffer, |head| head.status)? {
                    HeadProgress::Incomplete => break,
                    HeadProgress::Interim { status, length } => {
                        interim.push(status);
                        buffer.drain(..length);
                    }
                    HeadProgress::Final(status) => return Ok((interim, Some(status))),
                }
            }
        }
        Ok((interim, None))
    }

    #[test]
    fn the_final_head_is_found_behind_interim_ones_in_pieces_of_any_size() {
        let bytes = b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nA: b\r\n\r\nHTTP/1.1 204 N\r\n\r\n";
        for piece in 1..=bytes.len() {
            let read = read_final(strict(), bytes, piece);
            assert_eq!(read, Ok((vec![100, 103], Some(204))), "{piece}");
        }
        assert_eq!(read_final(strict(), &bytes[..50], 7), Ok((vec![100, 103], None)));
    }

    #[test]
    fn interim_responses_are_limited_by_their_length_and_not_by_their_number() {
        let bytes = |count| "HTTP/1.1 102 P\r\n\r\n".repeat(count) + "HTTP/1.1 204 N\r\n\r\n";
        let most = MAX_INTERIM_BYTES / "HTTP/1.1 102 P\r\n\r\n".len();

        let (interim, last) = read_final(strict(), bytes(most).as_bytes(), 1 << 20).unwrap();

        assert_eq!((interim.len(), last), (most, Some(204)));
        let many = read_final(strict(), bytes(most + 1).as_bytes(), 1 << 20);
        assert_eq!(many, Err(HeadError::LongInterim));
    }

    #[test]
    fn a_response_switches_protocols_only_as_asked() {
        let read = |reader, upgrade: &str| {
            let text = format!("HTTP/1.1 101 S\r\n{upgrade}\r\n");
            read_final(reader, text.as_bytes(), text.len())
        };
        let websocket = "Upgrade: websocket\r\n";

        assert_eq!(read(strict(), websocket), Err(HeadError::Switched));
        let asked = || ResponseHeadReader::new(ResponseGrammar::Strict, ASKED);
        assert_eq!(read(asked(), websocket), Ok((Vec::new(), Some(101))));
        for upgrade in ["Upgrade: h2c\r\n", "upgrade: websocket\r\nUPGRADE: foo, h2c\r\n"] {
            assert_eq!(read(asked(), upgrade), Err(HeadError::ImproperSwitch), "{upgrade}");
        }
    }

    #[test]
    fn a_broken_beginning_of_the_body_is_refused_with_its_head() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (body, expected) in [("5\r\nhe", Ok(())), ("x", Err(HeadError::BodyBeginning))] {
            let text = format!("{head}{body}");
            let read = read_final(strict(), text.as_bytes(), text.len()).map(|_| ());
            assert_eq!(read, expected, "{body}");
        }
    }

    #[test]
    fn a_connection_persists_as_its_response_says() {
        for (head, expected) in [
            ("1.1 200 OK\r\nContent-Length: 0", true),
            ("1.1 200 OK\r\nContent-Length: 0\r\nConnection: x, Close", false),
            ("1.0 200 OK\r\nContent-Length: 0", false),
            ("1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive", true),
            ("1.1 200 OK", false),
            ("1.1 204 N", true),
        ] {
            let mut text = format!("HTTP/{head}\r\n\r\n").into_bytes();
            let read = strict().read_next(&mut text, |head| head.keeps_alive);
            assert_eq!(read, Ok(HeadProgress::Final(expected)), "{head}");
        }
    }

    #[test]
    fn a_response_to_head_has_no_body() {
        let expected = ExpectedResponse { to_head: true, may_switch: false };
        let mut text = *b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let mut reader = ResponseHeadReader::new(ResponseGrammar::Strict, expected);

        let read = reader.read_next(&mut text, |head| head.body.clone());

        assert_eq!(read, Ok(HeadProgress::Final(Body::NONE)));
    }

    #[test]
    fn the_tolerant_reader_repairs_blanks_before_colons_and_closes_the_connection() {
        let tolerant =
            || ResponseHeadReader::new(ResponseGrammar::Tolerant, ExpectedResponse::default());
        for (fields, repaired) in [
            ("X-A : b", Some("X-A:  b")),
            ("X-A\t \t:b: c", Some("X-A: \t\tb: c")),
            ("Content-Length : 3", Some("Content-Length:  3")),
            ("Content-Length : 3\r\nTransfer-Encoding: chunked", None),
            ("Content-Length: 3\r\nContent-Length : 3", None),
            ("Transfer-Encoding : gzip", None),
            ("X A: b", None),
            (" X-A : b", None),
            ("X-A: b\r\n folded : c", None),
            (": b", None),
            (" : b", None),
            ("X-A b", None),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\nX : y");
            for piece in 1..=text.len() {
                let (mut reader, mut buffer) = (tolerant(), Vec::new());
                let mut read = Ok(HeadProgress::Incomplete);
                for piece in text.as_bytes().chunks(piece) {
                    buffer.extend_from_slice(piece);
                    read = reader.read_next(&mut buffer, |head| head.keeps_alive);
                    if read != Ok(HeadProgress::Incomplete) {
                        break;
                    }
                }
                let Some(repaired) = repaired else {
                    assert!(read.is_err(), "{fields:?}, {piece}");
                    continue;
                };
                assert_eq!(read, Ok(HeadProgress::Final(false)), "{fields:?}, {piece}");
                let head = format!("HTTP/1.1 200 OK\r\n{repaired}\r\n\r\n");
                assert!(buffer.starts_with(head.as_bytes()), "{fields:?}, {piece}");
                assert!(!buffer.ends_with(b"X: "), "the body stays as it is");
            }
            let strict = read_final(strict(), text.as_bytes(), text.len());
            assert!(strict.is_err(), "{fields:?}");
        }
        let mut sound = *b"HTTP/1.1 204 N\r\n\r\n";
        let kept = tolerant().read_next(&mut sound, |head| head.keeps_alive);
        assert_eq!(kept, Ok(HeadProgress::Final(true)));
    }

    #[test]
    fn a_response_may_have_many_fields() {
        let text = |count| format!("HTTP/1.1 204 N\r\n{}\r\n", "A: b\r\n".repeat(count));
        for (count, expected) in
            [(1000, Ok((Vec::new(), Some(204)))), (1001, Err(HeadError::TooMany))]
        {
            assert_eq!(read_final(strict(), text(count).as_bytes(), 1000), expected, "{count}");
        }
    }
}
