//! The words of a `.proto` file, with their lines.

/// A word, a number, a text or a sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProtoToken {
    /// A name, which may have dots in it and before it.
    Word(String),
    /// A number as it is written.
    Number(String),
    /// A text without its quotes; what is escaped in it stays so.
    Text(String),
    Sign(char),
}

impl ProtoToken {
    /// What a message calls it.
    pub fn describe(&self) -> String {
        match self {
            Self::Word(text) | Self::Number(text) => format!("{text:?}"),
            Self::Text(text) => format!("the text {text:?}"),
            Self::Sign(sign) => format!("\"{sign}\""),
        }
    }
}

/// All words of a file with their lines, or the line of the first one that is wrong and why.
pub(super) fn read_tokens(source: &str) -> Result<Vec<(ProtoToken, usize)>, (usize, String)> {
    let mut reader = Reader { rest: source.trim_start_matches('\u{feff}'), line: 1 };
    let mut all = Vec::new();
    loop {
        reader.skip_space()?;
        let line = reader.line;
        let Some(first) = reader.rest.chars().next() else { return Ok(all) };
        let token = match first {
            '"' | '\'' => ProtoToken::Text(reader.take_text(first)?),
            '0'..='9' => ProtoToken::Number(reader.take_while(is_number_char)),
            '.' if reader.rest[1..].starts_with(|next: char| next.is_ascii_digit()) => {
                ProtoToken::Number(reader.take_while(is_number_char))
            }
            _ if is_word_char(first) => ProtoToken::Word(reader.take_while(is_word_char)),
            _ if first.is_ascii_punctuation() => {
                reader.rest = &reader.rest[1..];
                ProtoToken::Sign(first)
            }
            _ => return Err((line, format!("unexpected {first:?}"))),
        };
        all.push((token, line));
    }
}

fn is_word_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.')
}

fn is_number_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_')
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl Reader<'_> {
    fn take_while(&mut self, is_part: fn(char) -> bool) -> String {
        let end = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    /// Goes past spaces and comments.
    fn skip_space(&mut self) -> Result<(), (usize, String)> {
        loop {
            let trimmed = self.rest.trim_start();
            let skipped = self.rest.len() - trimmed.len();
            self.advance_by(skipped);
            let end = if self.rest.starts_with("//") {
                self.rest.find('\n').unwrap_or(self.rest.len())
            } else if self.rest.starts_with("/*") {
                let end = self.rest.find("*/").map(|at| at + 2);
                end.ok_or_else(|| (self.line, "the comment has no end".to_owned()))?
            } else {
                return Ok(());
            };
            self.advance_by(end);
        }
    }

    fn advance_by(&mut self, count: usize) {
        let (passed, rest) = self.rest.split_at(count);
        self.line += passed.matches('\n').count();
        self.rest = rest;
    }

    fn take_text(&mut self, quote: char) -> Result<String, (usize, String)> {
        let inner = &self.rest[1..];
        let mut is_escaped = false;
        for (at, letter) in inner.char_indices() {
            match letter {
                '\n' => break,
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                _ if letter == quote => {
                    self.rest = &inner[at + 1..];
                    return Ok(inner[..at].to_owned());
                }
                _ => {}
            }
        }
        Err((self.line, "the text has no end".to_owned()))
    }
}
