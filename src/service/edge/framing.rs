//! Where one request ends and the next begins, followed more strictly than HTTP asks for.
//!
//! Whoever forwards requests must see the same borders as those who read them later; a request that
//! two readers could understand differently is refused before anything of it goes on. Knows nothing
//! of sockets: it is fed what arrives.

/// The longest line of a head or of trailers, in bytes; the parser behind gives up before.
const LONGEST_LINE: usize = 256 << 10;
/// The longest line that holds the size of a chunk, in bytes.
const LONGEST_SIZE: usize = 256;

/// What a visitor has to send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expects {
    /// Nothing, or another request.
    Nothing,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
}

/// The request cannot be understood in one way only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ambiguous {
    /// How many of the bytes fed belong to what is fine.
    pub fine: usize,
}

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Framing {
    state: State,
    head: Head,
    /// The beginning of a line that has not ended.
    line: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Between requests.
    #[default]
    Start,
    /// In the first line of a request.
    First,
    Head,
    /// So many bytes are missing.
    Body(u64),
    Size,
    Chunk(u64),
    /// The line break behind a chunk.
    Break,
    Trailers,
}

/// What a head says about its body.
#[derive(Debug, Default)]
struct Head {
    is_old: bool,
    length: Option<u64>,
    chunked: bool,
}

/// The line is not as it should be.
struct Bad;

impl Framing {
    /// What is missing.
    pub(super) fn expects(&self) -> Expects {
        match self.state {
            State::Start => Expects::Nothing,
            State::First | State::Head => Expects::Head,
            _ => Expects::Body,
        }
    }

    /// Takes note of what has arrived.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), Ambiguous> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.state {
                State::Body(missing) | State::Chunk(missing) => {
                    at += self.skip(missing, rest.len())
                }
                _ => at += self.take_line(rest).map_err(|Bad| Ambiguous { fine: at })?,
            }
        }
        Ok(())
    }

    /// Skips bytes of a body; gives how many.
    fn skip(&mut self, missing: u64, here: usize) -> usize {
        let skipped = usize::try_from(missing).unwrap_or(usize::MAX).min(here);
        let missing = missing - skipped as u64;
        self.state = match self.state {
            State::Chunk(_) if missing == 0 => State::Break,
            State::Chunk(_) => State::Chunk(missing),
            _ if missing == 0 => State::Start,
            _ => State::Body(missing),
        };
        skipped
    }

    /// Takes a line, or what there is of it; gives how many bytes that was.
    fn take_line(&mut self, rest: &[u8]) -> Result<usize, Bad> {
        let longest = if self.state == State::Size { LONGEST_SIZE } else { LONGEST_LINE };
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            self.line.extend_from_slice(rest);
            if self.state == State::Start {
                self.state = State::First;
            }
            return if self.line.len() > longest { Err(Bad) } else { Ok(rest.len()) };
        };
        if self.line.is_empty() {
            self.whole_line(&rest[..end])?;
        } else {
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(&rest[..end]);
            self.whole_line(&line)?;
        }
        Ok(end + 1)
    }

    /// A line without its line feed.
    fn whole_line(&mut self, line: &[u8]) -> Result<(), Bad> {
        let Some((b'\r', line)) = line.split_last() else { return Err(Bad) };
        if line.contains(&b'\r') {
            return Err(Bad);
        }
        self.state = match self.state {
            // An empty line before a request is no part of it.
            State::Start | State::First if line.is_empty() => State::Start,
            State::Start | State::First => {
                self.head = Head { is_old: !line.ends_with(b" HTTP/1.1"), ..Head::default() };
                State::Head
            }
            State::Head if line.is_empty() => self.body()?,
            State::Head => {
                self.head.field(line)?;
                State::Head
            }
            State::Size => match chunk_size(line)? {
                0 => State::Trailers,
                size => State::Chunk(size),
            },
            State::Break if line.is_empty() => State::Size,
            State::Trailers if line.is_empty() => State::Start,
            State::Trailers => {
                field(line)?;
                State::Trailers
            }
            _ => return Err(Bad),
        };
        Ok(())
    }

    fn body(&self) -> Result<State, Bad> {
        match self.head {
            Head { chunked: true, length: Some(_), .. } => Err(Bad),
            Head { chunked: true, is_old: true, .. } => Err(Bad),
            Head { chunked: true, .. } => Ok(State::Size),
            Head { length: None | Some(0), .. } => Ok(State::Start),
            Head { length: Some(length), .. } => Ok(State::Body(length)),
        }
    }
}

impl Head {
    fn field(&mut self, line: &[u8]) -> Result<(), Bad> {
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            if self.length.is_some() || self.chunked {
                return Err(Bad);
            }
            self.length = Some(number(value)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || self.length.is_some() || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Bad);
            }
            self.chunked = true;
        }
        Ok(())
    }
}

/// A name and a value; no line may go on in the next, and nothing stands before the colon.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Bad> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Bad)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        return Err(Bad);
    }
    Ok((name, value.trim_ascii()))
}

/// Digits alone.
fn number(digits: &[u8]) -> Result<u64, Bad> {
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Bad);
    }
    Ok(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Hexadecimal digits, and extensions behind a semicolon, which nobody reads.
fn chunk_size(line: &[u8]) -> Result<u64, Bad> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, rest) = line.split_at(end);
    let extended = rest.is_empty() || rest.trim_ascii_start().first() == Some(&b';');
    if !extended || digits.len() > 15 || rest.iter().any(|byte| byte.is_ascii_control()) {
        return Err(Bad);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| Bad)?;
    u64::from_str_radix(digits, 16).map_err(|_| Bad)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Feeds the bytes whole, then byte by byte; both must come to the same.
    fn fed(bytes: &[u8]) -> Result<Expects, Ambiguous> {
        let mut whole = Framing::default();
        let outcome = whole.feed(bytes).map(|()| whole.expects());
        let mut pieces = Framing::default();
        let in_pieces = bytes.iter().try_for_each(|byte| pieces.feed(&[*byte]).map_err(|_| ()));
        assert_eq!(outcome.map_err(|_| ()), in_pieces.map(|()| pieces.expects()));
        outcome
    }

    #[test]
    fn a_body_ends_where_its_head_says() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\n";
        for (rest, expected) in [
            ("", Expects::Head),
            ("\r\n", Expects::Nothing),
            ("Content-Length: 3\r\n\r\nab", Expects::Body),
            ("Content-Length: 3\r\n\r\nabc", Expects::Nothing),
            ("content-length:0\r\n\r\n\r\nG", Expects::Head),
            ("Transfer-Encoding: Chunked\r\n\r\n", Expects::Body),
            ("Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n0\r\n", Expects::Body),
            ("Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\na: b\r\n\r\n", Expects::Nothing),
        ] {
            assert_eq!(fed(format!("{head}{rest}").as_bytes()), Ok(expected), "{rest}");
        }
    }

    #[test]
    fn what_came_before_stays_fine() {
        let first = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let bytes = format!("{first}GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n");

        let fine = fed(bytes.as_bytes()).unwrap_err().fine;

        assert_eq!(fine, first.len() + "GET / HTTP/1.1\r\n".len());
    }
}
