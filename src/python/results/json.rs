//! A reader of JSON text that is asked for what comes next.
//!
//! It stands between the bytes of an answer and Python objects, where a tree of values in between
//! would cost more than the reading. It takes exactly what RFC 8259 describes.

use std::borrow::Cow;

/// How deep what is skipped may be nested; `serde_json`, which may read it later, allows as much.
const DEEPEST: usize = 127;

/// What is wrong with a text, and where.
pub(super) struct Problem {
    what: &'static str,
    at: usize,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}", self.what, self.at)
    }
}

type Read<T> = Result<T, Problem>;

/// Reads a text from its start to its end.
pub(super) struct Reader<'j> {
    text: &'j str,
    at: usize,
}

impl<'j> Reader<'j> {
    pub(super) fn new(body: &'j [u8]) -> Read<Self> {
        match std::str::from_utf8(body) {
            Ok(text) => Ok(Self { text, at: 0 }),
            Err(error) => {
                Err(Problem { what: "bytes that are not UTF-8", at: error.valid_up_to() })
            }
        }
    }

    /// The first byte of what comes next.
    pub(super) fn peek(&mut self) -> Read<u8> {
        self.space();
        self.text.as_bytes().get(self.at).copied().ok_or_else(|| self.problem("an early end"))
    }

    /// What has not been read yet.
    pub(super) fn rest(&self) -> &'j [u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// The text from an earlier position to this one.
    pub(super) fn since(&self, start: usize) -> &'j [u8] {
        &self.text.as_bytes()[start..self.at]
    }

    /// The position, after white space.
    pub(super) fn position(&mut self) -> usize {
        self.space();
        self.at
    }

    /// Takes these bytes when they come next.
    #[inline]
    pub(super) fn takes(&mut self, bytes: &[u8]) -> bool {
        let next = self.rest().starts_with(bytes);
        if next {
            self.at += bytes.len();
        }
        next
    }

    /// Takes a null when it comes next, after white space.
    pub(super) fn takes_null(&mut self) -> bool {
        self.space();
        self.rest().first() == Some(&b'n') && self.takes(b"null")
    }

    /// Takes the byte that must come next.
    pub(super) fn expect(&mut self, byte: u8, otherwise: &'static str) -> Read<()> {
        self.space();
        if self.takes_byte(byte) { Ok(()) } else { Err(self.problem(otherwise)) }
    }

    /// Begins an array or an object, which `end` closes; true when it holds something.
    pub(super) fn begin(&mut self, start: u8, end: u8, otherwise: &'static str) -> Read<bool> {
        self.expect(start, otherwise)?;
        self.space();
        Ok(!self.takes_byte(end))
    }

    /// After an item: true when another follows, false at the end.
    pub(super) fn more(&mut self, end: u8) -> Read<bool> {
        match self.peek()? {
            b',' => {
                self.at += 1;
                Ok(true)
            }
            byte if byte == end => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.problem("no comma")),
        }
    }

    /// Takes a key and its colon; gives what stands between the quotes, as it was written.
    pub(super) fn key(&mut self) -> Read<&'j str> {
        let (key, _) = self.quoted("no key")?;
        self.expect(b':', "no colon")?;
        Ok(key)
    }

    /// Takes a string.
    pub(super) fn string(&mut self) -> Read<Cow<'j, str>> {
        self.space();
        let start = self.at;
        let (text, escaped) = self.quoted("no string")?;
        if !escaped {
            return Ok(Cow::Borrowed(text));
        }
        serde_json::from_slice(self.since(start))
            .map(Cow::Owned)
            .map_err(|_| Problem { what: "a wrong escape", at: start })
    }

    /// Takes a value of any kind.
    pub(super) fn skip(&mut self) -> Read<()> {
        self.skip_within(0)
    }

    /// Makes sure that nothing follows.
    pub(super) fn finish(&mut self) -> Read<()> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.problem("more than one value")) }
    }

    pub(super) fn problem(&self, what: &'static str) -> Problem {
        Problem { what, at: self.at }
    }

    fn takes_byte(&mut self, byte: u8) -> bool {
        let next = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(next);
        next
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.as_bytes().get(self.at) {
            self.at += 1;
        }
    }

    /// Takes a string; gives what stands between the quotes, and whether a backslash is in it.
    fn quoted(&mut self, otherwise: &'static str) -> Read<(&'j str, bool)> {
        self.expect(b'"', otherwise)?;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain(self.rest());
            match self.rest() {
                [b'"', ..] => break,
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u', ..] => {
                    escaped = true;
                    self.at += 2;
                }
                [] => return Err(self.problem("an early end")),
                _ => return Err(self.problem("a character that no string may hold")),
            }
        }
        let text = &self.text[start..self.at];
        self.at += 1;
        Ok((text, escaped))
    }

    fn skip_within(&mut self, depth: usize) -> Read<()> {
        if depth > DEEPEST {
            return Err(self.problem("too much nesting"));
        }
        match self.peek()? {
            // Its escapes are looked at too, so that whoever reads it later can.
            b'"' => self.string().map(drop),
            b'{' => {
                let mut more = self.begin(b'{', b'}', "no object")?;
                while more {
                    self.string()?;
                    self.expect(b':', "no colon")?;
                    self.skip_within(depth + 1)?;
                    more = self.more(b'}')?;
                }
                Ok(())
            }
            b'[' => {
                let mut more = self.begin(b'[', b']', "no array")?;
                while more {
                    self.skip_within(depth + 1)?;
                    more = self.more(b']')?;
                }
                Ok(())
            }
            b'-' | b'0'..=b'9' => self.number().map(drop),
            _ if self.takes(b"true") || self.takes(b"false") || self.takes(b"null") => Ok(()),
            _ => Err(self.problem("no value")),
        }
    }

    /// Takes a number; gives it as it was written.
    pub(super) fn number(&mut self) -> Read<&'j str> {
        let start = self.position();
        self.takes_byte(b'-');
        if !self.takes_byte(b'0') {
            self.digits()?;
        }
        if self.takes_byte(b'.') {
            self.digits()?;
        }
        if self.takes_byte(b'e') || self.takes_byte(b'E') {
            let _ = self.takes_byte(b'+') || self.takes_byte(b'-');
            self.digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> Read<()> {
        match self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count() {
            0 => Err(self.problem("no number")),
            digits => {
                self.at += digits;
                Ok(())
            }
        }
    }
}

/// How many bytes a string goes on without a quote, a backslash or a control character.
fn plain(bytes: &[u8]) -> usize {
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
