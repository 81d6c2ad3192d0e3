//! Lines of a log file, of a terminal, or of whoever collects logs.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value};

use super::record::{LogRecord, LogValue, is_unsafe};

/// How a line is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `ts=… lvl=… msg=…`, for people and programs.
    Logfmt,
    /// An object, for programs.
    Json,
    /// For people at a terminal.
    #[default]
    Term,
}

impl LogFormat {
    /// The words for them.
    pub const NAMES: [&str; 3] = ["logfmt", "json", "term"];

    /// The format that a word stands for.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Logfmt, Self::Json, Self::Term].into_iter().find(|format| format.name() == name)
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Logfmt => "logfmt",
            Self::Json => "json",
            Self::Term => "term",
        }
    }

    /// Adds a record as one line.
    pub fn write_record(self, record: &LogRecord, lines: &mut String) {
        let ts = DateTime::<Utc>::from(record.time).to_rfc3339_opts(SecondsFormat::Millis, true);
        if self == Self::Term {
            let (level, target) = (record.level.name(), record.target);
            lines.push_str(&format!("{ts} {level} ginnel.{target} {}\n", record.to_line()));
            return;
        }
        let text = |text: &str| LogValue::Text(text.to_owned());
        let head = [
            ("ts", LogValue::Text(ts)),
            ("lvl", text(record.level.as_str())),
            ("msg", text(&record.message)),
            ("target", LogValue::Text(format!("ginnel.{}", record.target))),
        ];
        let fields = record.fields.iter().map(|(name, value)| (name, value.clone()));
        self.write_fields(head.into_iter().chain(fields), lines);
    }

    /// Adds fields as one line.
    pub fn write_fields(
        self,
        fields: impl Iterator<Item = (&'static str, LogValue)>,
        lines: &mut String,
    ) {
        match self {
            Self::Json => write_json(fields, lines),
            Self::Logfmt | Self::Term => write_logfmt(fields, lines),
        }
        lines.push('\n');
    }
}

fn write_logfmt(fields: impl Iterator<Item = (&'static str, LogValue)>, lines: &mut String) {
    for (place, (name, value)) in fields.enumerate() {
        lines.push_str(if place > 0 { " " } else { "" });
        lines.push_str(name);
        lines.push('=');
        value.write(lines);
    }
}

fn write_json(fields: impl Iterator<Item = (&'static str, LogValue)>, lines: &mut String) {
    let members = fields.map(|(name, value)| (name.to_owned(), json_value(value)));
    let object = Value::Object(members.collect::<Map<_, _>>()).to_string();
    for c in object.chars() {
        match c {
            // They stand in strings alone, which may hold them in this form.
            c if is_unsafe(c) => lines.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => lines.push(c),
        }
    }
}

fn json_value(value: LogValue) -> Value {
    match value {
        LogValue::Text(text) => text.into(),
        LogValue::Integer(number) => number.into(),
        LogValue::Float(number) => ((number * 1000.0).round() / 1000.0).into(),
        LogValue::Flag(flag) => flag.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::level::LogLevel;
    use super::super::record::LogFields;
    use super::*;

    const HOSTILE: &str = "x\nlvl=error\r\u{1b}[2J\u{9b}\u{2028}\"y";

    fn line(format: LogFormat) -> String {
        let mut fields = LogFields::default();
        fields.set("status", LogValue::Integer(502));
        fields.set("dur_ms", LogValue::Float(1.23456));
        fields.set("err", LogValue::Text(HOSTILE.to_owned()));
        let record = LogRecord {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(7),
            level: LogLevel::Warn,
            target: "agent",
            message: "it went wrong".to_owned(),
            fields,
        };
        let mut lines = String::new();
        format.write_record(&record, &mut lines);
        lines
    }

    #[test]
    fn a_record_is_one_line_of_the_stable_keys() {
        assert_eq!(
            line(LogFormat::Logfmt),
            "ts=1970-01-01T00:00:00.007Z lvl=warn msg=\"it went wrong\" target=ginnel.agent \
             status=502 dur_ms=1.235 \
             err=\"x\\nlvl=error\\r\\u{1b}[2J\\u{9b}\\u{2028}\\\"y\"\n"
        );
        assert_eq!(
            line(LogFormat::Json),
            "{\"ts\":\"1970-01-01T00:00:00.007Z\",\"lvl\":\"warn\",\"msg\":\"it went wrong\",\
             \"target\":\"ginnel.agent\",\"status\":502,\"dur_ms\":1.235,\
             \"err\":\"x\\nlvl=error\\r\\u001b[2J\\u009b\\u2028\\\"y\"}\n"
        );
        assert!(
            line(LogFormat::Term).starts_with("1970-01-01T00:00:00.007Z WARNING ginnel.agent it")
        );
    }

    #[test]
    fn what_is_escaped_is_read_again() {
        let read: Value = serde_json::from_str(&line(LogFormat::Json)).unwrap();
        assert_eq!(read["err"], HOSTILE);
    }

    #[test]
    fn each_name_is_a_format() {
        let formats = LogFormat::NAMES.map(LogFormat::from_name);
        assert_eq!(formats, [LogFormat::Logfmt, LogFormat::Json, LogFormat::Term].map(Some));
        assert_eq!(LogFormat::from_name("xml"), None);
    }
}
