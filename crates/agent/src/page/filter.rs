//! Which records are shown: terms that must all hold, but of those about a method, path, status or tunnel one
//! of each.
//!
//! | Term | Holds for |
//! |---|---|
//! | `method:POST` | this method |
//! | `path:/hook*` | targets without query that match; `*` stands for anything |
//! | `status:404`, `status:5xx`, `status:pending` | this status, this class, no answer yet |
//! | `>200ms`, `<2s` | exchanges that took longer, or shorter |
//! | `after:2026-11-23T14:03:00Z`, `before:14:03:20` | arrived at or after, before this time; without a date today |
//! | `grpc:5` | gRPC calls that ended so |
//! | `size:>10kb`, `size:<1mb` | request and answer together |
//! | `header:x-id`, `header:x-id=a*` | a header of request or answer, with this value |
//! | `body:text` | text in a body, in any case |
//! | `tunnel:web` | this tunnel |
//! | `is:failed` | exchanges that broke off, or ended with an error: 5xx, or of a gRPC call |
//! | `is:replay`, `is:truncated`, `is:unanswered`, `is:mocked`, `is:held`, `is:edited`, `is:policy`, `is:pinned`, `is:noted`, `is:imported` | records with this mark |
//! | `text` | text in method, target or a header |
//!
//! Text in quotes is literal: `body:"two words"`, `"status:404"`, `path:"/a*b"`. A closing quote is followed by a blank or by
//! the end of the filter, so that JSON can be pasted: `body:"status":"active"` and `body:'"status":"active"'` find
//! `"status":"active"`. Within quotes, `\\"` and `""` are a quote. `-` before a term means that it does not hold.

use std::time::Duration;

use chrono::{DateTime, Local, NaiveTime};
use regex::bytes::{Regex, RegexBuilder};

use ginnel_content::ReadableBody;

use super::filter_terms::{TermText, split_terms};
use crate::capture::{CaptureRecord, CapturedExchange, CapturedMessage};

/// How long a filter may be, in bytes.
const MAX_FILTER_BYTES: usize = 1000;
/// What stands before the colon of a term; the page has the same, and so has the guide.
const WORDS: [&str; 12] = [
    "method", "path", "status", "grpc", "took", "after", "before", "size", "header", "body",
    "tunnel", "is",
];
/// What `is:` asks for.
const MARKS: [&str; 11] = [
    "replay",
    "failed",
    "truncated",
    "unanswered",
    "mocked",
    "held",
    "edited",
    "policy",
    "pinned",
    "noted",
    "imported",
];
/// How many letters of a word may be wrong for another one to be meant.
const MAX_WRONG_LETTERS: usize = 2;

/// The terms, all of which must hold.
#[derive(Debug, Default)]
pub struct RequestFilter(Vec<FilterTerm>);

#[derive(Debug)]
struct FilterTerm {
    negated: bool,
    test: FilterTest,
}

#[derive(Debug)]
enum FilterTest {
    Method(String),
    Path(Regex),
    Status(u16),
    Class(u16),
    Pending,
    Grpc(u16),
    Longer(Duration),
    Shorter(Duration),
    After(DateTime<Local>),
    Before(DateTime<Local>),
    Larger(u64),
    Smaller(u64),
    Header(String, Option<Regex>),
    Body(Regex),
    Tunnel(String),
    Replay,
    Failed,
    Truncated,
    Unanswered,
    Mocked,
    Held,
    Edited,
    Policy,
    Pinned,
    Noted,
    Imported,
    Text(Regex),
}

impl RequestFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// With the term that cannot be understood, and why.
    pub fn parse_terms(text: &str) -> Result<Self, String> {
        if text.len() > MAX_FILTER_BYTES {
            return Err(format!("filter: is longer than {MAX_FILTER_BYTES} bytes"));
        }
        split_terms(text).iter().map(FilterTerm::from_text).collect::<Result<_, _>>().map(Self)
    }

    /// What was probably meant where a term has a word that is none; such a term is looked for as text.
    pub fn suggest_word(text: &str) -> Option<String> {
        split_terms(text).iter().find_map(|term| {
            let (word, value) = term.word_and_value()?;
            let value = value.as_str();
            let is_word = word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
            if word.is_empty() || !is_word || WORDS.contains(&word) || value.starts_with("//") {
                return None;
            }
            let nearest = WORDS.iter().map(|known| (edit_distance(word, known), known)).min()?;
            let meant = match nearest {
                (wrong, known) if wrong <= MAX_WRONG_LETTERS && wrong < word.len() => {
                    format!("did you mean {known}:?")
                }
                _ => format!("words are {}", WORDS.map(|word| format!("{word}:")).join(" ")),
            };
            Some(format!("{word}: is no word of filters, {:?} is looked for; {meant}", term.text()))
        })
    }

    /// Whether a record is shown.
    pub fn matches_record(&self, record: &CaptureRecord) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let exchange = record.lock_exchange();
        let holds =
            |term: &FilterTerm| term.test.matches_exchange(record, &exchange) != term.negated;
        self.0.iter().all(|term| match term.alternative_key() {
            None => holds(term),
            key => self.0.iter().any(|other| other.alternative_key() == key && holds(other)),
        })
    }
}

/// How many letters differ.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut before: Vec<_> = (0..=b.len()).collect();
    for (row, letter) in a.bytes().enumerate() {
        let mut last = row + 1;
        let mut diagonal = std::mem::replace(&mut before[0], last);
        for (column, other) in b.bytes().enumerate() {
            let same = diagonal + usize::from(!letter.eq_ignore_ascii_case(&other));
            diagonal = before[column + 1];
            last = (last + 1).min(diagonal + 1).min(same);
            before[column + 1] = last;
        }
    }
    before.last().copied().unwrap_or_default()
}

impl FilterTerm {
    fn from_text(term: &TermText) -> Result<Self, String> {
        let test = FilterTest::from_term(term);
        let test = test.map_err(|problem| format!("filter: {}: {problem}", term.text()))?;
        Ok(Self { negated: term.is_negated, test })
    }

    /// What the term is about, where a record has only one such value: of several terms about it, one must
    /// hold.
    fn alternative_key(&self) -> Option<&'static str> {
        match self.test {
            _ if self.negated => None,
            FilterTest::Method(_) => Some("method"),
            FilterTest::Path(_) => Some("path"),
            FilterTest::Status(_) | FilterTest::Class(_) | FilterTest::Pending => Some("status"),
            FilterTest::Grpc(_) => Some("grpc"),
            FilterTest::Tunnel(_) => Some("tunnel"),
            _ => None,
        }
    }
}

impl FilterTest {
    fn from_term(term: &TermText) -> Result<Self, String> {
        let text = term.text();
        match term.word_and_value() {
            _ if term.is_literal() => substring_pattern(&text).map(Self::Text),
            Some(("path", value)) => wildcard_pattern(&value, term.is_quoted).map(Self::Path),
            Some(("header", value)) => match &term.header_value {
                Some(text) => {
                    let pattern = wildcard_pattern(text, term.is_quoted)?;
                    Ok(Self::Header(value, Some(pattern)))
                }
                None => Ok(Self::Header(value, None)),
            },
            Some(("body", value)) => substring_pattern(&value).map(Self::Body),
            _ => Self::from_text(&text),
        }
    }

    fn from_text(text: &str) -> Result<Self, String> {
        if let Some(time) = text.strip_prefix('>') {
            return parse_duration(time).map(Self::Longer);
        }
        if let Some(time) = text.strip_prefix('<') {
            return parse_duration(time).map(Self::Shorter);
        }
        let Some((name, value)) = text.split_once(':') else {
            return substring_pattern(text).map(Self::Text);
        };
        match name {
            "method" => Ok(Self::Method(value.to_owned())),
            "status" => parse_status(value),
            "grpc" => value.parse().map(Self::Grpc).map_err(|_| "must be a number".to_owned()),
            "took" => Self::from_text(value).and_then(|test| match test {
                Self::Longer(_) | Self::Shorter(_) => Ok(test),
                _ => Err("must be written like took:>200ms".to_owned()),
            }),
            "after" => parse_time(value).map(Self::After),
            "before" => parse_time(value).map(Self::Before),
            "size" => parse_size(value),
            "tunnel" => Ok(Self::Tunnel(value.to_owned())),
            "is" => match value {
                "replay" => Ok(Self::Replay),
                "failed" => Ok(Self::Failed),
                "truncated" => Ok(Self::Truncated),
                "unanswered" => Ok(Self::Unanswered),
                "mocked" => Ok(Self::Mocked),
                "held" => Ok(Self::Held),
                "edited" => Ok(Self::Edited),
                "policy" => Ok(Self::Policy),
                "pinned" => Ok(Self::Pinned),
                "noted" => Ok(Self::Noted),
                "imported" => Ok(Self::Imported),
                _ => Err(format!("must be one of {}", MARKS.join(", "))),
            },
            // A colon is nothing special in what somebody looks for.
            _ => substring_pattern(text).map(Self::Text),
        }
    }

    fn matches_exchange(&self, record: &CaptureRecord, exchange: &CapturedExchange) -> bool {
        let (request, response) = (&exchange.request, exchange.response.as_ref());
        match self {
            Self::Method(method) => request.start_line()[0].eq_ignore_ascii_case(method),
            Self::Path(path) => {
                let [_, target, _] = request.start_line();
                let target = target.split('?').next().unwrap_or_default();
                path.is_match(target.as_bytes())
            }
            Self::Status(status) => status_code(response) == Some(*status),
            Self::Class(class) => status_code(response).is_some_and(|code| code / 100 == *class),
            Self::Pending => response.is_none(),
            Self::Grpc(status) => exchange.grpc_status() == Some(*status),
            Self::Longer(limit) => exchange.took.is_some_and(|took| took > *limit),
            Self::Shorter(limit) => exchange.took.is_some_and(|took| took < *limit),
            Self::After(time) => record.local_start() >= *time,
            Self::Before(time) => record.local_start() < *time,
            Self::Larger(limit) => exchange_bytes(exchange) > *limit,
            Self::Smaller(limit) => exchange_bytes(exchange) < *limit,
            Self::Header(name, value) => exchange_messages(exchange).any(|message| {
                message.headers().iter().any(|(header_name, text)| {
                    header_name.eq_ignore_ascii_case(name)
                        && value.as_ref().is_none_or(|value| value.is_match(text.as_bytes()))
                })
            }),
            Self::Body(expected) => {
                exchange_messages(exchange).any(|message| matches_body(message, expected))
            }
            Self::Tunnel(name) => record.tunnel_name == *name,
            Self::Replay => record.source.replay_of.is_some(),
            Self::Failed => exchange.is_failed(),
            Self::Truncated => exchange_messages(exchange).any(CapturedMessage::is_truncated),
            Self::Unanswered => exchange.unanswered,
            Self::Mocked => exchange.mock_id.is_some(),
            Self::Held => exchange.hold_id.is_some(),
            Self::Edited => exchange.is_edited,
            Self::Policy => !exchange.rules.is_empty(),
            Self::Pinned => exchange.is_pinned,
            Self::Noted => !exchange.note.is_empty(),
            Self::Imported => record.source.imported_from.is_some(),
            Self::Text(expected) => {
                exchange_messages(exchange).any(|message| expected.is_match(&message.head))
            }
        }
    }
}

/// Returns true if a pattern is in the readable form of a body, or in its bytes.
fn matches_body(message: &CapturedMessage, expected: &Regex) -> bool {
    if expected.is_match(&message.body.bytes()) {
        return true;
    }
    let body = message.read_body();
    if let Some(split) = body.parts() {
        return split.parts.iter().any(|part| {
            let part = ReadableBody::read_part(part);
            expected.is_match(part.text().as_bytes())
        });
    }
    let pairs = body.form().unwrap_or_default();
    expected.is_match(body.bytes())
        || expected.is_match(body.text().as_bytes())
        || pairs.iter().any(|(name, value)| expected.is_match(format!("{name}={value}").as_bytes()))
}

fn exchange_messages(exchange: &CapturedExchange) -> impl Iterator<Item = &CapturedMessage> {
    std::iter::once(&exchange.request).chain(exchange.response.as_ref())
}

fn exchange_bytes(exchange: &CapturedExchange) -> u64 {
    exchange_messages(exchange).map(|message| message.body_length).sum()
}

/// The status code of a response.
pub(super) fn status_code(response: Option<&CapturedMessage>) -> Option<u16> {
    response.and_then(|response| response.start_line()[1].parse().ok())
}

fn substring_pattern(text: &str) -> Result<Regex, String> {
    build_pattern(regex::escape(text))
}

/// The whole text, with `*` for anything unless the text is quoted.
fn wildcard_pattern(text: &str, is_quoted: bool) -> Result<Regex, String> {
    if is_quoted {
        return build_pattern(format!("^{}$", regex::escape(text)));
    }
    let parts = text.split('*').map(regex::escape).collect::<Vec<_>>();
    build_pattern(format!("^{}$", parts.join(".*")))
}

fn build_pattern(pattern: String) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(&pattern);
    builder.case_insensitive(true).dot_matches_new_line(true);
    builder.build().map_err(|_| "is too long".to_owned())
}

fn parse_status(text: &str) -> Result<FilterTest, String> {
    let problem = || "must be a number, a class such as 5xx, or pending".to_owned();
    match text.as_bytes() {
        b"pending" => Ok(FilterTest::Pending),
        [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => {
            Ok(FilterTest::Class(u16::from(class - b'0')))
        }
        _ => text.parse().map(FilterTest::Status).map_err(|_| problem()),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let problem = || "must be a time such as 200ms or 2s".to_owned();
    let at = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(at.unwrap_or(text.len()));
    let number: f64 = number.parse().map_err(|_| problem())?;
    let seconds = match unit {
        "" | "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        _ => return Err(problem()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| problem())
}

/// A time with its date and zone, or one of today in local time.
fn parse_time(text: &str) -> Result<DateTime<Local>, String> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(time.into());
    }
    let of_day = NaiveTime::parse_from_str(text, "%H:%M:%S%.f")
        .or_else(|_| NaiveTime::parse_from_str(text, "%H:%M"));
    let today = of_day.ok().and_then(|time| Local::now().with_time(time).earliest());
    today.ok_or_else(|| "must be a time such as 14:03 or 2026-11-23T14:03:00Z".to_owned())
}

fn parse_size(text: &str) -> Result<FilterTest, String> {
    let problem = || "must be written like size:>10kb".to_owned();
    let (test, rest): (fn(u64) -> FilterTest, _) = match text.split_at_checked(1) {
        Some((">", rest)) => (FilterTest::Larger, rest),
        Some(("<", rest)) => (FilterTest::Smaller, rest),
        _ => return Err(problem()),
    };
    let at = rest.find(|letter: char| !letter.is_ascii_digit());
    let (number, unit) = rest.split_at(at.unwrap_or(rest.len()));
    let number: u64 = number.parse().map_err(|_| problem())?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        _ => return Err(problem()),
    };
    Ok(test(number.saturating_mul(factor)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::capture::{CaptureLimit, CaptureSource, CaptureStore, NewCapture};
    use ginnel_http1::Body;

    fn holds(filter: &str) -> bool {
        let captures = CaptureStore::new(CaptureLimit::default());
        let recording = captures.start_recording(NewCapture {
            tunnel_name: "web",
            source: CaptureSource { replay_of: Some("00".to_owned()), ..CaptureSource::default() }
                .into(),
            head: b"POST /hook/a?x=1 HTTP/1.1\r\nX-Id: abc def\r\nContent-Length: 9\r\n\r\n",
            body: &Body::Length(10),
        });
        recording.set_mock("always");
        recording.request_body(b"{\"A\": \"b\"}");
        recording.request_complete(b"");
        recording.response_head(b"HTTP/1.1 502 Bad Gateway\r\n\r\n", &Body::NONE);
        recording.mark_complete();
        let record = recording.record().clone();
        drop(recording);
        RequestFilter::parse_terms(filter).unwrap().matches_record(&record)
    }

    #[test]
    fn terms_hold_or_not() {
        for (yes, no) in [
            ("method:post", "method:GET"),
            ("path:/hook*", "path:/hook"),
            ("status:5xx", "status:4xx"),
            ("status:502", "status:pending"),
            ("status:4xx status:5xx", "status:4xx status:pending"),
            ("method:GET status:4xx method:POST status:5xx", "method:GET status:5xx"),
            ("-status:4xx -status:3xx", "-status:4xx -status:5xx"),
            ("is:failed", "-is:failed"),
            ("-grpc:5", "grpc:5"),
            ("<1m", ">1m"),
            ("took:<1m", "took:>1m"),
            ("after:2020-01-01T00:00:00Z", "after:2999-01-01T00:00:00+01:00"),
            ("before:2999-01-01T00:00:00Z", "before:00:00"),
            ("size:>9", "size:>10kb"),
            ("size:<1gb", "size:>1gb"),
            ("header:x-id", "header:x-other"),
            ("header:x-id=abc*", "header:x-id=abc"),
            ("body:B", "body:c"),
            ("body:\"\\\"A\\\": \\\"b\\\"\"", "body:\"\\\"A\\\" \\\"b\\\"\""),
            ("body:'\"A\": \"b\"'", "body:'\"A\":\"b\"'"),
            ("body:\"\"\"A\"\": \"\"b\"\"\"", "body:\"\"\"A\"\";\""),
            ("path:\"/hook/a\" -path:\"/hook/*\"", "path:\"/hook/*\""),
            ("\"POST /hook\"", "\"method:POST\""),
            ("tunnel:web", "tunnel:other"),
            ("is:replay", "is:truncated"),
            ("-is:unanswered", "-method:post"),
            ("is:mocked", "is:held"),
            ("-is:edited", "-is:mocked"),
            ("\"abc def\"", "nothing"),
            ("status:5xx method:POST", "status:5xx method:GET"),
            ("", "status:200"),
        ] {
            assert!(holds(yes), "{yes}");
            assert!(!holds(no), "{no}");
        }
    }

    #[test]
    fn the_page_and_the_guide_know_every_word() {
        let page = include_str!("assets/filters.js");
        let guide = include_str!("../../../../docs/guides/inspect.md");
        let quoted = |words: &[&str]| format!("[\"{}\"]", words.join("\", \""));
        assert!(page.contains(&quoted(&WORDS)) && page.contains(&quoted(&MARKS)));
        for mark in MARKS {
            assert!(guide.contains(&format!("`is:{mark}`")), "{mark}");
            assert!(RequestFilter::parse_terms(&format!("is:{mark}")).is_ok(), "{mark}");
        }
        for word in WORDS.iter().filter(|word| **word != "took") {
            assert!(guide.contains(&format!("`{word}:")), "{word}");
        }
    }

    #[test]
    fn a_word_that_is_none_gets_a_hint() {
        for (filter, meant) in [
            (
                "statsu:5xx",
                "statsu: is no word of filters, \"statsu:5xx\" is looked for; did you mean status:?",
            ),
            ("-mehtod:GET", "did you mean method:?"),
            ("a colour:red", "words are method: path: status:"),
        ] {
            let hint = RequestFilter::suggest_word(filter).unwrap();
            assert!(hint.contains(meant), "{hint}");
        }
        for filter in ["status:5xx", "http://shop.test", "12:30", "plain", "-is:held", ":x", ""] {
            assert_eq!(RequestFilter::suggest_word(filter), None, "{filter}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (filter, message) in [
            ("status:5x", "filter: status:5x: must be a number"),
            (">soon", "filter: >soon: must be a time"),
            ("grpc:x", "filter: grpc:x: must be a number"),
            ("size:10", "filter: size:10: must be written like"),
            ("after:noon", "filter: after:noon: must be a time such as 14:03"),
            ("is:good", "filter: is:good: must be one of"),
        ] {
            let problem = RequestFilter::parse_terms(filter).unwrap_err();
            assert!(problem.starts_with(message), "{problem}");
        }
        assert!(RequestFilter::parse_terms(&"x".repeat(MAX_FILTER_BYTES + 1)).is_err());
    }
}
