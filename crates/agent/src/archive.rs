//! Reading archives in the HTTP Archive format, version 1.2, of any program.
//!
//! A stranger has written the archive: each entry is read separately, within limits, and leniently. An entry that is not an
//! exchange of HTTP is left out with the reason. Unreadable parts of the others are reported.

mod fields;
mod post_data;
mod sockets;

use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use chrono::{DateTime, NaiveDateTime, Utc};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Map, Value};

use ginnel_api::mask;
use ginnel_base::address::with_ascii_host;
use ginnel_content::{BodyHead, ReadableBody};
use ginnel_http1::HeadWriter;

use super::capture::{
    CaptureSource, CapturedExchange, CapturedMessage, ExchangeMarks, ImportedCapture,
};
use fields::UnreadFields;
use post_data::{PostedBody, cookie_header};
pub(super) use sockets::encode_message;

/// How many entries an archive may have.
const MAX_ENTRIES: usize = 10_000;
/// How many problems are said.
const MAX_PROBLEMS: usize = 20;
/// How long a head may be, and how many headers it may have.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
/// How long a method, the name of a tunnel, an address, a note and an error may be.
const MAX_METHOD_BYTES: usize = 64;
const MAX_NAME_BYTES: usize = 200;
const MAX_TEXT_BYTES: usize = 2000;
/// How long an exchange may have taken.
const MAX_MILLISECONDS: f64 = 1e10;
/// The field with the bytes of a target, in base64, if the URL does not show them.
pub(super) const RAW_TARGET: &str = "_rawTarget";
/// What cannot stand in the target of a request as it is.
const NOT_IN_TARGETS: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>');

/// The content of an archive.
#[derive(Debug, Default)]
pub(super) struct ReadArchive {
    pub captures: Vec<ImportedCapture>,
    /// The number of entries that were left out.
    pub skipped: usize,
    /// The reasons, and the unreadable parts of other entries. The last one counts those that are not listed.
    pub problems: Vec<String>,
    /// The fields that were not read, such as `entries[].serverIPAddress`.
    pub ignored: Vec<String>,
}

/// Reads the `log` of an archive; of each body so many bytes are kept.
///
/// # Errors
/// When it is none, or has too many entries.
pub(super) fn read_archive(
    log: &Map<String, Value>,
    max_body: usize,
) -> Result<ReadArchive, String> {
    let entries = log.get("entries").and_then(Value::as_array);
    let entries = entries.ok_or("log.entries: is missing, or no list")?;
    if entries.len() > MAX_ENTRIES {
        return Err(format!("log.entries: {} entries, at most {MAX_ENTRIES}", entries.len()));
    }
    let (mut archive, mut unread, mut problems) =
        (ReadArchive::default(), UnreadFields::default(), Vec::new());
    unread.add_log(log);
    for (index, entry) in entries.iter().enumerate() {
        let mut reader = EntryReader { max_body, remarks: Vec::new() };
        match reader.read_entry(entry) {
            Ok(capture) => {
                archive.captures.push(capture);
                unread.add_entry(entry);
            }
            Err(problem) => {
                archive.skipped += 1;
                reader.remarks = vec![problem];
            }
        }
        let place = |problem| format!("log.entries[{index}].{problem}");
        problems.extend(reader.remarks.into_iter().map(place));
    }
    let unlisted = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    problems.extend((unlisted > 0).then(|| format!("{unlisted} more are not listed")));
    (archive.problems, archive.ignored) = (problems, unread.into_names());
    Ok(archive)
}

/// Reads an entry, and notes its unreadable parts.
struct EntryReader {
    /// The number of bytes that are kept of a body.
    max_body: usize,
    remarks: Vec<String>,
}

impl EntryReader {
    fn read_entry(&mut self, entry: &Value) -> Result<ImportedCapture, String> {
        let request = &entry["request"];
        let headers = self.read_headers(request, "request")?;
        let (origin, target) = split_url(&full_url(request, &headers))?;
        let target = with_query(target, &request["queryString"]);
        let target = raw_target(request, &target).unwrap_or_else(|| target.into_bytes());
        let start = self.read_start(entry);
        let (marks, took) = read_timings(entry);
        let mut exchange = CapturedExchange::ended(marks, took);
        exchange.request = self.read_request(request, &target, headers)?;
        if let Some(response) = self.read_response(&entry["response"])? {
            exchange.set_response(response);
        }
        (exchange.error, exchange.note) = read_comments(entry);
        if let Some(messages) = entry["_webSocketMessages"].as_array() {
            let (log, unread) = sockets::read_socket(messages, start, self.max_body);
            exchange.socket = Some(log);
            if unread > 0 {
                self.remarks.push(format!("_webSocketMessages: {unread} cannot be read"));
            }
        }
        let replay_of = truncate_text(text_member(entry, "_replayOf"), MAX_NAME_BYTES);
        let source = CaptureSource {
            remote_addr: truncate_text(text_member(entry, "_clientAddress"), MAX_NAME_BYTES),
            replay_of: Some(replay_of).filter(|id| !id.is_empty()),
            imported_from: Some(origin),
            ..CaptureSource::default()
        };
        let tunnel_name = truncate_text(text_member(entry, "_tunnel"), MAX_NAME_BYTES);
        Ok(ImportedCapture { tunnel_name, source, start, exchange })
    }

    /// Reads the time at which the request began. Without one, the exchange is as old as its import.
    fn read_start(&mut self, entry: &Value) -> DateTime<Utc> {
        let written = &entry["startedDateTime"];
        let start = match written {
            Value::String(text) => parse_time(text),
            written => written.as_f64().and_then(|milliseconds| {
                DateTime::from_timestamp_millis(
                    milliseconds.clamp(0.0, MAX_MILLISECONDS * 1e3) as i64
                )
            }),
        };
        start.unwrap_or_else(|| {
            let problem = match written {
                Value::Null => {
                    "startedDateTime: is missing; the time of the import is used".to_owned()
                }
                written => format!(
                    "startedDateTime: {} is not a time; the time of the import is used",
                    truncate_text(&written.to_string(), MAX_NAME_BYTES)
                ),
            };
            self.remarks.push(problem);
            Utc::now()
        })
    }

    fn read_request(
        &mut self,
        request: &Value,
        target: &[u8],
        mut headers: Vec<(String, String)>,
    ) -> Result<CapturedMessage, String> {
        let method = text_member(request, "method");
        if !is_token(method) || method.len() > MAX_METHOD_BYTES {
            return Err("request.method: is no method".to_owned());
        }
        let body = PostedBody::read(&request["postData"], &headers)?;
        if let Some(content_type) = body.content_type.filter(|_| !body.bytes.is_empty()) {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
            headers.push(("Content-Type".to_owned(), content_type));
        }
        if find_value(&headers, "cookie").is_none() {
            let cookie = cookie_header(&request["cookies"]);
            headers.extend(cookie.map(|cookie| ("Cookie".to_owned(), cookie)));
        }
        let line = [method.as_bytes(), target, http_version(request).as_bytes()].join(&b' ');
        let head = encode_head(&line, &headers, "request")?;
        let sent = request["bodySize"].as_u64().filter(|_| !body.is_rebuilt);
        let mut request = captured_message(&head, &body.bytes, sent, self.max_body);
        if body.is_base64 && is_still_coded(&request, sent) {
            (request.is_decoded, request.cut_off) = (false, request.body.len() < body.bytes.len());
            request.body_length = body.bytes.len() as u64;
        }
        Ok(request)
    }

    fn read_response(&mut self, response: &Value) -> Result<Option<CapturedMessage>, String> {
        let status = match &response["status"] {
            Value::String(text) => text.trim().parse().unwrap_or_default(),
            status => status.as_u64().unwrap_or_default(),
        };
        if status == 0 {
            return Ok(None);
        }
        if !(100..=999).contains(&status) {
            return Err(format!("response.status: {status} is no status"));
        }
        let version = http_version(response);
        let reason =
            replace_controls(&truncate_text(text_member(response, "statusText"), MAX_TEXT_BYTES));
        let line = format!("{version} {status} {reason}");
        let headers = self.read_headers(response, "response")?;
        let head = encode_head(line.trim_end().as_bytes(), &headers, "response")?;
        let content = &response["content"];
        let text = text_member(content, "text");
        let body = match text_member(content, "encoding").eq_ignore_ascii_case("base64") {
            true => decode_base64(text).ok_or("response.content.text: is no base64")?,
            false => decode_text(text, find_value(&headers, "content-type").unwrap_or_default()),
        };
        let sent = response["bodySize"].as_u64();
        let mut message = captured_message(&head, &body, sent, self.max_body);
        message.cut_off |= text_member(content, "comment").starts_with("the first ");
        Ok(Some(message))
    }

    /// Reads headers: a list of objects, a list of pairs, or an object. HTTP/2 has fields whose names begin with a colon; method and
    /// URL have their values.
    fn read_headers(
        &mut self,
        message: &Value,
        whose: &str,
    ) -> Result<Vec<(String, String)>, String> {
        let pairs: Vec<(&str, Vec<&Value>)> = match &message["headers"] {
            Value::Array(list) => list
                .iter()
                .map(|header| match header.as_array().map(Vec::as_slice) {
                    Some([name, value]) => (name.as_str().unwrap_or_default(), vec![value]),
                    _ => (text_member(header, "name"), vec![&header["value"]]),
                })
                .collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| {
                    (
                        name.as_str(),
                        value.as_array().map_or(vec![value], |all| all.iter().collect()),
                    )
                })
                .collect(),
            _ => Vec::new(),
        };
        let mut headers = Vec::new();
        for (name, values) in pairs {
            if is_token(name) {
                headers.extend(values.iter().map(|value| (name.to_owned(), header_text(value))));
            } else if !name.starts_with(':') {
                let shown = truncate_text(name, MAX_NAME_BYTES);
                self.remarks.push(format!("{whose}.headers: {shown:?} is not a name; left out"));
            }
        }
        if headers.len() > MAX_HEADERS {
            return Err(format!("{whose}.headers: are too many, or too long"));
        }
        Ok(headers)
    }
}

/// Returns the value of a header as text without line ends.
fn header_text(value: &Value) -> String {
    match value {
        Value::String(text) => replace_controls(text),
        Value::Null => String::new(),
        value => replace_controls(&value.to_string()),
    }
}

/// Returns the URL of a request. Some programs write only its path.
fn full_url(request: &Value, headers: &[(String, String)]) -> String {
    let url = text_member(request, "url");
    match find_value(headers, "host") {
        Some(host) if url.starts_with('/') && !url.starts_with("//") => {
            format!("http://{host}{url}")
        }
        _ => url.to_owned(),
    }
}

/// Adds the query of an archive that has it only in a list of its own.
fn with_query(target: String, query: &Value) -> String {
    let pairs = query.as_array().map_or(&[][..], Vec::as_slice);
    if target.contains('?') || pairs.is_empty() {
        return target;
    }
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    for pair in pairs {
        form.append_pair(text_member(pair, "name"), text_member(pair, "value"));
    }
    format!("{target}?{}", form.finish())
}

/// Returns the reason of a failure, and the note. In archives of earlier versions of this agent, the comment is the reason.
fn read_comments(entry: &Value) -> (Option<String>, String) {
    let text = |text: &str| truncate_text(text, MAX_TEXT_BYTES);
    let (comment, note) = (text_member(entry, "comment"), text_member(entry, "_note"));
    let failure = text_member(&entry["response"], "_error");
    let is_failure = failure.is_empty()
        && !comment.is_empty()
        && text_member(&entry["response"], "comment") == comment;
    let (error, note) = match is_failure {
        true => (comment, note),
        false => (failure, if note.is_empty() { comment } else { note }),
    };
    (Some(text(error)).filter(|error| !error.is_empty()), text(note))
}

/// Parses a time. Without a zone it is in UTC.
fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    let text = text.trim();
    let with_zone =
        DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc2822(text));
    let local = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f%z"];
    let without = || {
        local.iter().find_map(|form| {
            let zoned = DateTime::parse_from_str(text, form).map(|time| time.with_timezone(&Utc));
            zoned.or_else(|_| NaiveDateTime::parse_from_str(text, form).map(|it| it.and_utc())).ok()
        })
    };
    with_zone.map(|time| time.with_timezone(&Utc)).ok().or_else(without)
}

/// Returns true if the bytes of a body have the coding that the head names: they begin as such bytes do, or
/// their number is that of the body as it was sent.
fn is_still_coded(message: &CapturedMessage, sent: Option<u64>) -> bool {
    let headers = message.headers();
    let mut codings =
        headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
    let Some((_, coding)) = codings.next() else { return false };
    let bytes = message.body.bytes();
    match coding.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => bytes.starts_with(b"\x1f\x8b"),
        "zstd" => bytes.starts_with(b"\x28\xb5\x2f\xfd"),
        "identity" => false,
        _ => sent == Some(bytes.len() as u64),
    }
}

/// A message with as much of its body as is kept. Archives have bodies as people read them, with headers
/// that say how they were sent.
fn captured_message(
    head: &[u8],
    body: &[u8],
    sent: Option<u64>,
    max_body: usize,
) -> CapturedMessage {
    let mut message = CapturedMessage::new(head, false);
    let headers = message.headers();
    let header = |name: &str| {
        let named = headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.to_ascii_lowercase())
    };
    let length = header("content-length").and_then(|length| length.trim().parse::<u64>().ok());
    let is_coded = header("content-encoding").is_some_and(|coding| coding.trim() != "identity");
    message.chunked = message.names_chunks();
    message.is_decoded =
        !body.is_empty() && (is_coded || length.is_some_and(|length| length != body.len() as u64));
    let kept = body.get(..max_body).unwrap_or(body);
    let sent = sent.unwrap_or(body.len() as u64);
    message.cut_off = kept.len() < body.len() || !is_coded && sent > body.len() as u64;
    message.body_length = sent;
    message.body = kept.to_vec().into();
    message
}

/// Scheme, host and port of a URL, and the target of a request for it.
fn split_url(url: &str) -> Result<(String, String), String> {
    const NO_URL: &str = "request.url: is no URL of HTTP";
    let url = url.split('#').next().unwrap_or_default();
    let url = with_ascii_host(url)
        .map_err(|problem| format!("request.url: {:?} {problem}", mask::url(url)))?;
    let (scheme, rest) = url.split_once("://").ok_or(NO_URL)?;
    let scheme = scheme.to_ascii_lowercase();
    if !["http", "https", "ws", "wss"].contains(&scheme.as_str()) {
        return Err(NO_URL.to_owned());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let is_host =
        !host.is_empty() && host.len() <= 300 && host.bytes().all(|it| it.is_ascii_graphic());
    let target = utf8_percent_encode(target, NOT_IN_TARGETS).to_string();
    let target = if target.starts_with('/') { target } else { format!("/{target}") };
    match is_host && target.len() <= MAX_HEAD_BYTES / 2 {
        true => Ok((format!("{scheme}://{host}"), target)),
        false => Err(NO_URL.to_owned()),
    }
}

/// Returns the bytes of a target as exports of this agent contain them, if the URL shows the same target.
fn raw_target(request: &Value, target: &str) -> Option<Vec<u8>> {
    let raw = STANDARD.decode(request[RAW_TARGET].as_str()?).ok()?;
    let shown = String::from_utf8_lossy(&raw);
    let is_same =
        utf8_percent_encode(shown.split('#').next()?, NOT_IN_TARGETS).to_string() == target;
    let is_plain = raw.starts_with(b"/") && !raw.iter().any(|it| *it <= b' ' || *it == 0x7f);
    (is_same && is_plain && raw.len() <= MAX_HEAD_BYTES / 2).then_some(raw)
}

/// Returns true if an import of the URL that contains a target returns the same target.
pub(super) fn is_kept_by_url(target: &[u8]) -> bool {
    target.iter().all(|byte| byte.is_ascii() && !b"\"<>#".contains(byte))
}

/// Returns a head with this line and these headers.
fn encode_head(line: &[u8], headers: &[(String, String)], whose: &str) -> Result<Vec<u8>, String> {
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers.len() > MAX_HEADERS || line.len() + bytes > MAX_HEAD_BYTES {
        return Err(format!("{whose}.headers: are too many, or too long"));
    }
    let mut head = Vec::new();
    let mut writer = HeadWriter::begin_line(line, &mut head);
    for (name, value) in headers {
        writer.field(name, value);
    }
    writer.end();
    Ok(head)
}

/// Returns the parts of the time, which are -1 or missing if they are not known.
fn read_timings(entry: &Value) -> (ExchangeMarks, Duration) {
    let read = |value: &Value| {
        let milliseconds = value.as_f64().unwrap_or_default();
        Duration::from_secs_f64(milliseconds.clamp(0.0, MAX_MILLISECONDS) / 1000.0)
    };
    let timings = &entry["timings"];
    if timings.as_object().is_none_or(Map::is_empty) {
        return (ExchangeMarks::default(), read(&entry["time"]));
    }
    let part = |name: &str| read(&timings[name]);
    let connecting = part("blocked") + part("dns");
    let connected = connecting + part("connect");
    let first_byte = connected + part("send") + part("wait");
    let marks = ExchangeMarks {
        connecting: Some(connecting),
        connected: Some(connected),
        first_byte: Some(first_byte),
    };
    (marks, first_byte + part("receive"))
}

fn http_version(message: &Value) -> &'static str {
    if text_member(message, "httpVersion").eq_ignore_ascii_case("http/1.0") {
        "HTTP/1.0"
    } else {
        "HTTP/1.1"
    }
}

/// Decodes base64 with line ends, without padding, and in the alphabet of URLs, as programs write it.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &ALPHABET,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let letters = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        byte => byte,
    });
    LENIENT.decode(letters.collect::<Vec<_>>()).ok()
}

/// Returns a text in the charset that its type or the text itself names.
fn decode_text(text: &str, content_type: &str) -> Vec<u8> {
    let head = BodyHead { content_type, ..BodyHead::default() };
    let read = ReadableBody::read(&head, text.as_bytes(), 0);
    // The text itself is Unicode: zeros in it do not make it UTF-16.
    if !read.is_charset_stated() {
        return text.as_bytes().to_vec();
    }
    // The charset has the byte order mark.
    let unmarked = text.strip_prefix('\u{feff}').unwrap_or(text);
    read.encode_text(unmarked).unwrap_or_else(|_| text.as_bytes().to_vec())
}

fn find_value<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    let found = headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

fn text_member<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// As much of a text as is kept.
fn truncate_text(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// A text in which nothing ends a line.
fn replace_controls(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() && letter != '\t' { ' ' } else { letter })
        .collect()
}

/// Whether a text can be the name of a header or a method (RFC 9110, section 5.6.2).
fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::outgoing::replay_bytes;

    fn entry(changes: Value) -> Value {
        let mut entry = json!({
            "startedDateTime": "2026-11-23T10:00:00.123+01:00",
            "request": {"method": "POST", "url": "https://a.test/x?y=1", "httpVersion": "h2",
                "headers": [{"name": ":path", "value": "/x"}, {"name": "Host", "value": "a.test"}],
                "postData": {"mimeType": "text/plain", "text": "hello"}, "bodySize": 5},
            "response": {"status": 200, "statusText": "OK", "headers": [],
                "content": {"text": "aGk=", "encoding": "base64"}},
            "timings": {"blocked": -1, "send": 1, "wait": 10.5, "receive": 2},
        });
        for (path, value) in changes.as_object().unwrap() {
            *entry.pointer_mut(path).unwrap() = value.clone();
        }
        entry
    }

    fn read_one(entry: Value) -> Result<ImportedCapture, String> {
        let log = json!({"entries": [entry]});
        let mut archive = read_archive(log.as_object().unwrap(), 1000).unwrap();
        archive.captures.pop().ok_or_else(|| archive.problems.remove(0))
    }

    #[test]
    fn an_entry_becomes_a_request_that_can_be_sent() {
        let capture = read_one(entry(json!({}))).unwrap();

        let exchange = &capture.exchange;
        let raw = String::from_utf8(replay_bytes(&exchange.request, &capture.source)).unwrap();
        let expected = "POST /x?y=1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(raw, expected);
        assert_eq!(capture.source.imported_from.as_deref(), Some("https://a.test"));
        assert_eq!(exchange.response.as_ref().unwrap().body, *b"hi");
        assert_eq!(exchange.took, Some(Duration::from_micros(13_500)));
        assert_eq!(capture.start.to_rfc3339(), "2026-11-23T09:00:00.123+00:00");
    }

    #[test]
    fn text_is_encoded_in_the_charset_that_it_had() {
        for (content_type, text, expected) in [
            ("text/plain; charset=shift_jis", "月", &b"\x8c\x8e"[..]),
            ("text/plain; charset=utf-16be", "a", b"\0a"),
            ("text/plain", "h\0éo", "h\0éo".as_bytes()),
            ("text/plain; charset=windows-1252", "茶", "茶".as_bytes()),
            ("text/plain", "\u{feff}ë", "\u{feff}ë".as_bytes()),
            ("text/xml", "<?xml version='1.0' encoding='latin1'?><a>ë</a>", {
                b"<?xml version='1.0' encoding='latin1'?><a>\xeb</a>"
            }),
        ] {
            let headers = json!([{"name": "Content-Type", "value": content_type}]);
            let changes = json!({"/request/headers": headers, "/request/postData/text": text});
            let capture = read_one(entry(changes)).unwrap();
            assert_eq!(capture.exchange.request.body.bytes().as_ref(), expected, "{content_type}");
        }
    }

    #[test]
    fn what_is_no_exchange_is_left_out_with_the_reason() {
        for (path, value, problem) in [
            ("/request/url", json!("ftp://a.test/"), "request.url"),
            ("/request/url", json!("//a.test/"), "request.url"),
            ("/request/url", json!("http://"), "request.url"),
            ("/request/url", json!(7), "request.url"),
            ("/request/method", json!("GET / HTTP/1.1\r\nX:"), "request.method"),
            ("/request/method", json!("X".repeat(100)), "request.method"),
            ("/response/status", json!(7), "response.status"),
            ("/response/content/text", json!("???"), "response.content.text"),
            ("/request/postData", json!({"text": "?", "encoding": "base64"}), "request.postData"),
            (
                "/request/headers",
                json!(vec![json!({"name": "a", "value": "b"}); 101]),
                "request.headers",
            ),
            (
                "/request/headers",
                json!([{"name": "a", "value": "b".repeat(70_000)}]),
                "request.headers",
            ),
            ("/request", json!(null), "request.url"),
        ] {
            let refused = read_one(entry(json!({path: value}))).unwrap_err();
            assert!(refused.starts_with(&format!("log.entries[0].{problem}")), "{path}: {refused}");
        }
        let log = json!({"entries": vec![json!(1); 30]});
        let archive = read_archive(log.as_object().unwrap(), 1).unwrap();
        assert_eq!((archive.skipped, archive.problems.len()), (30, MAX_PROBLEMS + 1));
        assert_eq!(archive.problems.last().unwrap(), "10 more are not listed");
        let entries = json!({"entries": vec![json!(1); MAX_ENTRIES + 1]});
        for log in [json!({}), json!({"entries": 1}), entries] {
            assert!(read_archive(log.as_object().unwrap(), 1).is_err());
        }
    }

    #[test]
    fn nothing_in_an_archive_breaks_out_of_its_place() {
        let hostile = "a\r\nInjected: 1\r\n\r\nbody";
        let changes = json!({
            "/request/url": format!("http://a.test/ é?{hostile}"),
            "/request/headers": [{"name": hostile, "value": "x"}, {"name": "x", "value": hostile}],
            "/response/statusText": hostile,
        });

        let exchange = read_one(entry(changes)).unwrap().exchange;

        for message in [&exchange.request, exchange.response.as_ref().unwrap()] {
            let head = String::from_utf8(message.head.clone()).unwrap();
            assert_eq!(head.matches("\r\n\r\n").count(), 1, "{head}");
            assert!(!head.contains("\nInjected"), "{head}");
        }
        assert_eq!(exchange.request.headers().len(), 1);
    }

    #[test]
    fn what_is_too_long_is_cut_and_never_sent() {
        let text = "x".repeat(1_500);
        let changes = json!({"/request/postData/text": text, "/response/content": {"text": text}});

        let exchange = read_one(entry(changes)).unwrap().exchange;

        for message in [&exchange.request, exchange.response.as_ref().unwrap()] {
            assert_eq!((message.body.len(), message.is_truncated()), (1_000, true));
        }
        let longer = read_one(entry(json!({"/request/bodySize": 100}))).unwrap().exchange;
        assert!(longer.request.is_truncated());
    }

    #[test]
    fn a_body_without_its_coding_is_sent_without_it() {
        let headers = json!([{"name": "Content-Encoding", "value": "gzip"},
            {"name": "Content-Length", "value": "25"}, {"name": "X", "value": "1"}]);
        let changes = json!({"/request/headers": headers, "/request/bodySize": 25});

        let capture = read_one(entry(changes)).unwrap();

        let request = capture.exchange.request;
        assert!(request.is_whole());
        let raw = String::from_utf8(replay_bytes(&request, &capture.source)).unwrap();
        let expected =
            "POST /x?y=1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nX: 1\r\n\r\nhello";
        assert_eq!(raw, expected);
    }

    #[test]
    fn a_body_that_still_has_its_coding_keeps_it() {
        let packed = b"\x1f\x8b\x08\0\xff";
        let changes = json!({
            "/request/headers": [{"name": "Content-Encoding", "value": "gzip"}],
            "/request/postData": {"text": STANDARD.encode(packed), "encoding": "base64"},
            "/request/bodySize": -1,
        });

        let capture = read_one(entry(changes)).unwrap();

        let request = capture.exchange.request;
        assert!(request.is_whole());
        let raw = replay_bytes(&request, &capture.source);
        let head = b"POST /x?y=1 HTTP/1.1\r\nHost: a.test\r\nContent-Encoding: gzip\r\n\
            Content-Length: 5\r\n\r\n";
        assert_eq!(raw, [&head[..], packed].concat());
    }
}
