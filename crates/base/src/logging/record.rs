//! One line of a log, before anybody has given it a form.

use std::borrow::Cow;
use std::fmt::{self, Debug, Write};
use std::time::SystemTime;

use tracing::field::{Field, Visit};

use super::level::LogLevel;
use super::outcome::ignore;

/// How long a text in a record may be; what is longer is cut.
const MAX_TEXT_BYTES: usize = 2048;
/// The name of the field that `tracing` puts the text of an event into.
const MESSAGE: &str = "message";

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRecord {
    /// When it happened.
    pub time: SystemTime,
    /// How much it matters.
    pub level: LogLevel,
    /// Which part of the code tells it; one of [`TARGETS`](super::TARGETS).
    pub target: &'static str,
    /// What happened, in words.
    pub message: String,
    /// What is known of it; a name occurs once.
    pub fields: LogFields,
}

/// Names and values, in the order in which they were told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogFields(Vec<(&'static str, LogValue)>);

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum LogValue {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
}

impl LogRecord {
    /// The record with its texts as `mask` leaves them.
    pub fn mask_texts(mut self, mask: impl Fn(&str) -> Cow<'_, str>) -> Self {
        let texts = self.fields.0.iter_mut().filter_map(|(_, value)| match value {
            LogValue::Text(text) => Some(text),
            _ => None,
        });
        for text in texts.chain([&mut self.message]) {
            if let Cow::Owned(masked) = mask(text) {
                *text = masked;
            }
        }
        self
    }

    /// The record in one line: what happened, and the fields as `name=value`.
    pub fn to_line(&self) -> String {
        let mut line = String::with_capacity(self.message.len() + 64);
        push_escaped(&self.message, &mut line);
        for (name, value) in self.fields.iter() {
            line.push(' ');
            line.push_str(name);
            line.push('=');
            value.write(&mut line);
        }
        line
    }
}

impl LogFields {
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &LogValue)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    /// Sets a field; the last value of a name counts.
    pub(super) fn set(&mut self, name: &'static str, value: LogValue) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes what an event says in words out of its fields.
    pub(super) fn take_message(&mut self) -> String {
        let place = self.0.iter().position(|(name, _)| *name == MESSAGE);
        match place.map(|place| self.0.remove(place)) {
            Some((_, LogValue::Text(text))) => text,
            _ => String::new(),
        }
    }
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = CutText::default();
        // It ends with an error where the text is cut.
        ignore(write!(text, "{value:?}"), "a cut text is shown as far as it goes");
        self.set(field.name(), LogValue::Text(text.0));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let mut text = CutText::default();
        ignore(text.write_str(value), "a cut text is shown as far as it goes");
        self.set(field.name(), LogValue::Text(text.0));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), LogValue::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), LogValue::Integer(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), LogValue::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), LogValue::Flag(value));
    }
}

impl LogValue {
    pub(super) fn write(&self, line: &mut String) {
        match self {
            Self::Text(text) if is_bare(text) => line.push_str(text),
            Self::Text(text) => {
                line.push('"');
                push_escaped(text, line);
                line.push('"');
            }
            Self::Integer(number) => line.push_str(&number.to_string()),
            Self::Float(number) => line.push_str(&format!("{number:.3}")),
            Self::Flag(flag) => line.push_str(if *flag { "true" } else { "false" }),
        }
    }
}

/// Whether a text needs no quotes as a value.
fn is_bare(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '=' | '\\'))
}

/// Adds a text without control characters: who can choose a part of it must not begin a line, or move
/// the cursor of a terminal.
fn push_escaped(text: &str, line: &mut String) {
    for c in text.chars() {
        match c {
            '"' | '\\' => line.extend(['\\', c]),
            c if is_unsafe(c) => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
}

/// Whether a character may begin a line, or move the cursor of a terminal.
pub(super) fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A text that takes no more than fits.
#[derive(Default)]
struct CutText(String);

impl Write for CutText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = MAX_TEXT_BYTES - self.0.len();
        if text.len() <= free {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=free).rev().find(|end| text.is_char_boundary(*end));
        self.0.push_str(&text[..end.unwrap_or_default()]);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(message: &str, fields: &[(&'static str, LogValue)]) -> LogRecord {
        let mut known = LogFields::default();
        for (name, value) in fields {
            known.set(name, value.clone());
        }
        LogRecord {
            time: SystemTime::UNIX_EPOCH,
            level: LogLevel::Debug,
            target: "agent",
            message: message.to_owned(),
            fields: known,
        }
    }

    #[test]
    fn a_record_is_one_line_with_its_fields() {
        let text = |text: &str| LogValue::Text(text.to_owned());
        let fields = [
            ("session", text("ts_1")),
            ("status", LogValue::Integer(502)),
            ("dur_ms", LogValue::Float(1.25)),
            ("err", text("a \"quoted\" word")),
            ("empty", text("")),
        ];
        let line = record("it went wrong", &fields).to_line();
        let expected = r#"it went wrong session=ts_1 status=502 dur_ms=1.250 err="a \"quoted\" word" empty="""#;
        assert_eq!(line, expected);
    }

    #[test]
    fn nobody_begins_a_line_or_moves_the_cursor() {
        let hostile = "x\nginnel WARNING\r\u{1b}[2J\u{9b}\u{2028}y";
        let line = record(hostile, &[("err", LogValue::Text(hostile.to_owned()))]).to_line();
        assert!(!line.contains(|c: char| c.is_control() || c == '\u{2028}'), "{line:?}");
        assert!(line.starts_with(r"x\nginnel WARNING\r\u{1b}[2J\u{9b}\u{2028}y err="), "{line}");
    }

    #[test]
    fn the_last_value_of_a_name_counts() {
        let number = LogValue::Integer;
        let line = record("m", &[("status", number(1)), ("a", number(2)), ("status", number(3))]);
        assert_eq!(line.to_line(), "m status=3 a=2");
    }

    #[test]
    fn a_long_text_is_cut_where_a_character_ends() {
        let mut text = CutText::default();
        assert!(text.write_str(&"ü".repeat(MAX_TEXT_BYTES)).is_err());
        assert!(text.write_str("more").is_err());
        assert_eq!(text.0, "ü".repeat(MAX_TEXT_BYTES / 2));
    }
}
