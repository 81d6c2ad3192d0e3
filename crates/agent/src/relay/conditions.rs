//! What a request asks of a file: all of it, a part, or nothing where it has that already (RFC 9110,
//! sections 13 and 14).

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::{HttpDate, parse_http_date};

use ginnel_http1::{HeadWriter, after_first_line, fields_in};

/// The end of the year 9999, the last one that headers can name, in seconds since 1970.
const END_OF_DATES: u64 = 253_402_300_800;

/// A file at one moment.
#[derive(Debug, Clone)]
pub(super) struct FileVersion {
    pub length: u64,
    /// How long after 1970 it was changed.
    modified: Option<Duration>,
}

/// What is sent of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileSelection {
    Whole,
    Part(Range<u64>),
    /// There is no such part.
    NoPart,
    /// The visitor has this version.
    NotModified,
    /// The visitor wants another version.
    OtherVersion,
}

impl FileVersion {
    pub fn new(length: u64, modified: Option<SystemTime>) -> Self {
        // Before 1970 there are no files, and no dates of them.
        let modified = modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
        let modified = modified.filter(|modified| modified.as_secs() < END_OF_DATES);
        Self { length, modified }
    }

    /// Writes the headers that name this version.
    pub fn write_headers<'w, 'o>(&self, head: &'w mut HeadWriter<'o>) -> &'w mut HeadWriter<'o> {
        head.field("ETag", self.entity_tag());
        match self.date() {
            Some(date) => head.display_field("Last-Modified", date),
            None => head,
        }
    }

    fn date(&self) -> Option<HttpDate> {
        self.modified.map(|modified| HttpDate::from(UNIX_EPOCH + modified))
    }

    fn entity_tag(&self) -> String {
        let modified = self.modified.map_or(0, |modified| modified.as_micros());
        format!("\"{modified:x}-{:x}\"", self.length)
    }

    /// What a request with this head asks for.
    pub fn evaluate_conditions(&self, head: &[u8], is_get: bool) -> FileSelection {
        if self.is_known(head, "if-match", "if-unmodified-since") == Some(false) {
            return FileSelection::OtherVersion;
        }
        if self.is_known(head, "if-none-match", "if-modified-since") == Some(true) {
            return FileSelection::NotModified;
        }
        let is_same = header_values(head, "if-range")
            .next()
            .is_none_or(|version| version == self.entity_tag() || self.is_from(version));
        let mut ranges = header_values(head, "range").filter(|_| is_get && is_same);
        match (ranges.next(), ranges.next()) {
            (Some(range), None) => self.parse_range(range).unwrap_or(FileSelection::Whole),
            _ => FileSelection::Whole,
        }
    }

    /// Whether a request names this version, by tags or else by a date; none where it names none.
    fn is_known(&self, head: &[u8], tags_name: &str, date_name: &str) -> Option<bool> {
        let mut tags = header_values(head, tags_name).peekable();
        match tags.peek() {
            Some(_) => Some(tags.any(|tags| tags == "*" || self.is_one_of(tags, tags_name))),
            None => header_values(head, date_name).next().and_then(|date| self.is_as_old_as(date)),
        }
    }

    /// Whether a list of tags has that of this version; only what is not sent may be weakly the same.
    fn is_one_of(&self, tags: &str, name: &str) -> bool {
        let own = self.entity_tag();
        tags.split(',').map(str::trim).any(|tag| {
            let weak = tag.strip_prefix("W/").filter(|_| name == "if-none-match");
            weak.unwrap_or(tag) == own
        })
    }

    /// Whether it has not changed since a date; none for what is no date.
    fn is_as_old_as(&self, date: &str) -> Option<bool> {
        let date = parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(self.modified?.as_secs() <= date.as_secs())
    }

    fn is_from(&self, date: &str) -> bool {
        self.date().is_some_and(|modified| modified.to_string() == date)
    }

    /// The part that a range names; none for what is no range, or more than one.
    fn parse_range(&self, range: &str) -> Option<FileSelection> {
        let (first, last) = range.strip_prefix("bytes=")?.trim().split_once('-')?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // What is larger than any file is beyond the end of all of them.
            is_number.then(|| text.parse().unwrap_or(u64::MAX))
        };
        let (start, end) = match (first, last) {
            ("", suffix) => (self.length.saturating_sub(number(suffix)?), self.length),
            (first, "") => (number(first)?, self.length),
            (first, last) if number(first)? <= number(last)? => {
                (number(first)?, number(last)?.saturating_add(1).min(self.length))
            }
            _ => return None,
        };
        Some(match start < end {
            true => FileSelection::Part(start..end),
            false => FileSelection::NoPart,
        })
    }
}

/// The values of a header in a head that was read already.
fn header_values<'h>(head: &'h [u8], name: &'h str) -> impl Iterator<Item = &'h str> {
    let fields = fields_in(after_first_line(head));
    let known = fields.filter(move |(own, _)| own.eq_ignore_ascii_case(name.as_bytes()));
    known.filter_map(|(_, value)| std::str::from_utf8(value).ok())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn file() -> FileVersion {
        FileVersion::new(10, Some(UNIX_EPOCH + Duration::from_millis(1_700_000_000_500)))
    }

    fn select(headers: &str) -> FileSelection {
        file().evaluate_conditions(format!("GET / HTTP/1.1\r\n{headers}\r\n\r\n").as_bytes(), true)
    }

    #[test]
    fn a_version_has_names() {
        let headers = |version: FileVersion| {
            let mut out = Vec::new();
            version.write_headers(&mut HeadWriter::resume(&mut out));
            String::from_utf8_lossy(&out).into_owned()
        };
        assert_eq!(
            headers(file()),
            "ETag: \"60a241825e120-a\"\r\nLast-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n"
        );
        assert_eq!(headers(FileVersion::new(0, None)), "ETag: \"0-0\"\r\n");
        let year_10000 = UNIX_EPOCH + Duration::from_secs(END_OF_DATES);
        assert_eq!(headers(FileVersion::new(0, Some(year_10000))), "ETag: \"0-0\"\r\n");
    }

    #[test]
    fn one_range_is_a_part() {
        for (range, part) in [
            ("0-0", 0..1),
            ("2-4", 2..5),
            ("9-", 9..10),
            ("5-99999999999999999999", 5..10),
            ("-3", 7..10),
            ("-99", 0..10),
        ] {
            assert_eq!(select(&format!("range: bytes={range}")), FileSelection::Part(part));
        }
        for range in ["10-", "10-20", "-0", "99999999999999999999-"] {
            assert_eq!(select(&format!("Range: bytes={range}")), FileSelection::NoPart, "{range}");
        }
        for range in ["bytes=", "bytes=-", "bytes=5-2", "bytes=0-1,3-4", "bytes=a-b", "lines=0-1"] {
            assert_eq!(select(&format!("Range: {range}")), FileSelection::Whole, "{range}");
        }
        assert_eq!(select("Range: bytes=0-1\r\nRange: bytes=2-3"), FileSelection::Whole);
        assert_eq!(
            file().evaluate_conditions(b"HEAD / HTTP/1.1\r\nRange: bytes=0-1", false),
            FileSelection::Whole
        );
        assert_eq!(
            FileVersion::new(0, None).evaluate_conditions(b"\r\nRange: bytes=0-", true),
            FileSelection::NoPart
        );
    }

    #[test]
    fn conditions_are_about_the_version() {
        let (tag, date) = (file().entity_tag(), "Tue, 14 Nov 2023 22:13:20 GMT");
        let (before, after) = ("Tue, 14 Nov 2023 22:13:19 GMT", "Wed, 15 Nov 2023 00:00:00 GMT");
        for (headers, selected) in [
            (format!("If-None-Match: {tag}"), FileSelection::NotModified),
            (format!("If-None-Match: \"a\", W/{tag}"), FileSelection::NotModified),
            (format!("If-None-Match: \"a\"\r\nIf-None-Match: {tag}"), FileSelection::NotModified),
            ("If-None-Match: *".to_owned(), FileSelection::NotModified),
            (format!("If-None-Match: \"a\"\r\nIf-Modified-Since: {after}"), FileSelection::Whole),
            (format!("If-Modified-Since: {date}"), FileSelection::NotModified),
            (format!("If-Modified-Since: {before}"), FileSelection::Whole),
            // The two obsolete forms of dates (RFC 9110, section 5.6.7).
            (
                "If-Modified-Since: Tuesday, 14-Nov-23 22:13:20 GMT".to_owned(),
                FileSelection::NotModified,
            ),
            ("If-Modified-Since: Tue Nov 14 22:13:19 2023".to_owned(), FileSelection::Whole),
            ("If-Modified-Since: yesterday".to_owned(), FileSelection::Whole),
            (format!("If-Match: {tag}"), FileSelection::Whole),
            (format!("If-Match: W/{tag}"), FileSelection::OtherVersion),
            ("If-Match: \"a\"".to_owned(), FileSelection::OtherVersion),
            (format!("If-Unmodified-Since: {before}"), FileSelection::OtherVersion),
            (format!("If-Unmodified-Since: {after}"), FileSelection::Whole),
            ("If-Unmodified-Since: yesterday".to_owned(), FileSelection::Whole),
            (format!("If-Range: {tag}\r\nRange: bytes=1-1"), FileSelection::Part(1..2)),
            (format!("If-Range: {date}\r\nRange: bytes=1-1"), FileSelection::Part(1..2)),
            (format!("If-Range: W/{tag}\r\nRange: bytes=1-1"), FileSelection::Whole),
            (format!("If-Range: {after}\r\nRange: bytes=1-1"), FileSelection::Whole),
            (format!("If-None-Match: {tag}\r\nRange: bytes=1-1"), FileSelection::NotModified),
        ] {
            assert_eq!(select(&headers), selected, "{headers}");
        }
    }
}
