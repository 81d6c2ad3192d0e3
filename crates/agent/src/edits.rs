//! Changes to captured requests before they are sent: again, or after they were held.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use ginnel_api::mask;
use ginnel_base::address::{Authority, RequestHost, Scheme};
use ginnel_content::{OutgoingRequest, RequestConnection};
use ginnel_http1::{describes_bytes, may_trail, remove_digests};

use super::capture::{CaptureSource, CapturedMessage};
use super::outgoing::{host_of_origin, replay_bytes};

/// How long the head of a changed request may be, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Why a request whose body is not all there cannot be sent.
pub(super) const TRUNCATED: &str = "the body of the request is not whole: it is longer than what was captured, or did not come to its end";
/// How many headers it may have.
const MAX_HEADERS: usize = 100;

/// What is to be different; what is absent stays.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RequestEdits {
    pub method: Option<String>,
    pub target: Option<String>,
    /// Pairs of name and value; masked values stay as they were.
    pub headers: Option<Vec<(String, String)>>,
    /// Base64.
    pub body: Option<String>,
    /// The changed text of the body. It is encoded in the charset of the original, and sent without content codings.
    pub body_text: Option<String>,
    /// Pairs of name and value, to come after the body.
    pub trailers: Option<Vec<(String, String)>>,
}

/// Why a request cannot be changed so.
#[derive(Debug, thiserror::Error)]
pub(super) enum EditError {
    /// Not all of the body is there, and no other was given.
    #[error("body: {TRUNCATED}; give the whole of it")]
    Truncated,
    /// What was given is unusable; the text names the field.
    #[error("{0}")]
    Invalid(String),
}

impl RequestEdits {
    /// Whether everything stays.
    pub fn is_empty(&self) -> bool {
        self.method.is_none()
            && self.target.is_none()
            && self.headers.is_none()
            && self.body.is_none()
            && self.body_text.is_none()
            && self.trailers.is_none()
    }

    /// The bytes of the request to send.
    ///
    /// # Errors
    /// When they would not be a request, or not the whole of one.
    pub fn apply_to(
        self,
        original: &CapturedMessage,
        source: &CaptureSource,
    ) -> Result<Vec<u8>, EditError> {
        if self.is_empty() && original.is_whole() {
            return Ok(replay_bytes(original, source));
        }
        let has_headers = self.headers.is_some();
        let mut outgoing = self.edit_request(original)?;
        if let Some(origin) = &source.imported_from
            && !(has_headers && outgoing.names_host())
        {
            outgoing.replace_host(&host_of_origin(origin));
        }
        write_checked(&outgoing, RequestConnection::New)
    }

    /// As [`RequestEdits::apply_to`], for a request that goes on in the connection in which it came: what
    /// concerns that connection stays, such as the change to another protocol.
    pub fn apply_to_held(self, original: &CapturedMessage) -> Result<Vec<u8>, EditError> {
        write_checked(&self.edit_request(original)?, RequestConnection::Same)
    }

    /// The original with these changes.
    fn edit_request(self, original: &CapturedMessage) -> Result<OutgoingRequest, EditError> {
        if self.body.is_none() && self.body_text.is_none() && !original.is_whole() {
            return Err(EditError::Truncated);
        }
        let mut outgoing = original.to_unframed();
        let keeps_headers = self.headers.is_none();
        if let Some(method) = self.method {
            if method.is_empty() || !method.bytes().all(is_token) {
                return Err(EditError::Invalid(format!("method: {method:?} is not a method")));
            }
            outgoing.start_line[0] = method.into_bytes();
        }
        if let Some(target) = self.target {
            let [_, shown, _] = original.start_line().map(Cow::into_owned);
            // A target that was shown and did not change keeps its bytes, which need not be text.
            let target = edited_target(&target, &shown)?;
            if target != shown {
                outgoing.start_line[1] = target.into_bytes();
            }
        }
        if let Some(headers) = self.headers {
            outgoing.headers = edited_headers(headers, &original.exact_headers())?;
        }
        if let Some(text) = self.body {
            outgoing.body = STANDARD
                .decode(text)
                .map_err(|error| EditError::Invalid(format!("body: is not base64: {error}")))?;
        } else if let Some(text) = self.body_text {
            let body = original.read_body();
            outgoing.body = body
                .encode_text(&text)
                .map_err(|error| EditError::Invalid(format!("body_text: {error}")))?;
            if original.is_decoded || !body.removed_codings().is_empty() {
                outgoing.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-encoding"));
            }
        } else if original.is_decoded {
            outgoing.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-encoding"));
        }
        if let Some(trailers) = self.trailers {
            outgoing.trailers = checked_trailers(trailers)?;
        }
        if keeps_headers && *outgoing.body != *original.body.bytes() {
            outgoing.headers.retain(|(name, _)| !describes_bytes(name));
            remove_digests(&mut outgoing.trailers);
        }
        Ok(outgoing)
    }
}

/// Writes a request whose head must not be too long.
fn write_checked(
    outgoing: &OutgoingRequest,
    connection: RequestConnection,
) -> Result<Vec<u8>, EditError> {
    if outgoing.write_head(connection).len() > MAX_HEAD_BYTES {
        return Err(EditError::Invalid(format!("headers: are longer than {MAX_HEAD_BYTES} bytes")));
    }
    Ok(outgoing.to_bytes(connection))
}

/// Trailers as they are sent.
fn checked_trailers(trailers: Vec<(String, String)>) -> Result<HeaderMap, EditError> {
    let mut checked = HeaderMap::new();
    for (name, value) in trailers {
        let field = (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.trim()));
        let (Ok(header), Ok(value)) = field else {
            return Err(EditError::Invalid(format!("trailers: {name:?} is not a header")));
        };
        if !may_trail(&header) {
            return Err(EditError::Invalid(format!("trailers: {name} must not come after a body")));
        }
        checked.append(header, value);
    }
    if checked.len() > MAX_HEADERS {
        return Err(EditError::Invalid(format!("trailers: are more than {MAX_HEADERS}")));
    }
    Ok(checked)
}

/// A target that was edited; its masked parameters stay as they were.
fn edited_target(edited: &str, original: &str) -> Result<String, EditError> {
    if edited == mask::target(original) {
        return Ok(original.to_owned());
    }
    if edited.contains(mask::MASK) {
        let problem = "target: has a masked secret; show secrets before changing it";
        return Err(EditError::Invalid(problem.to_owned()));
    }
    let problem = match edited {
        "*" => return Ok(edited.to_owned()),
        _ if !edited.starts_with('/') => {
            "is not a path with an optional query; write it from its first slash on"
        }
        _ if edited.contains('#') => {
            "has a fragment, which requests do not contain; leave it out, or write # as %23"
        }
        _ if !edited.bytes().all(|byte| byte.is_ascii_graphic()) => {
            "has a character that must be percent-encoded"
        }
        _ => return Ok(edited.to_owned()),
    };
    let shown = mask::target(edited);
    Err(EditError::Invalid(format!("target: {shown:?} {problem}")))
}

/// Reads a host that was edited. Letters outside ASCII become their `xn--` form.
fn edited_host(value: &str) -> Result<Vec<u8>, EditError> {
    let value = value.trim();
    let problem =
        |problem| EditError::Invalid(format!("headers: Host: {:?} {problem}", mask::url(value)));
    if value.is_ascii() {
        RequestHost::parse(value).map_err(problem)?;
        return Ok(value.as_bytes().to_vec());
    }
    let authority = Authority::with_scheme(Scheme::Http, value).map_err(problem)?;
    Ok(authority.host_header().into_bytes())
}

fn edited_headers(
    edited: Vec<(String, String)>,
    original: &[(String, Vec<u8>)],
) -> Result<Vec<(String, Vec<u8>)>, EditError> {
    if edited.len() > MAX_HEADERS {
        let problem = format!("headers: are {}, the limit is {MAX_HEADERS}", edited.len());
        return Err(EditError::Invalid(problem));
    }
    if edited.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")).count() > 1 {
        let problem = "headers: Host is given more than once; give one host";
        return Err(EditError::Invalid(problem.to_owned()));
    }
    let mut originals = original.iter().collect::<Vec<_>>();
    let restored = edited.into_iter().map(|(name, value)| {
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(EditError::Invalid(format!("headers: {name:?} is not a name")));
        }
        if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
            let problem = format!("headers: the value of {name} has a control character");
            return Err(EditError::Invalid(problem));
        }
        // What was shown differs from what came where it is masked, or was no text.
        let unchanged = originals.iter().position(|(original_name, bytes)| {
            let text = String::from_utf8_lossy(bytes);
            original_name.eq_ignore_ascii_case(&name)
                && (text == value || mask::header(original_name, &text) == value)
        });
        match unchanged {
            Some(at) => Ok((name, originals.remove(at).1.clone())),
            None if value.contains(mask::MASK) => {
                let problem = format!("headers: the value of {name} is masked");
                Err(EditError::Invalid(problem))
            }
            None if name.eq_ignore_ascii_case("host") => Ok((name, edited_host(&value)?)),
            None => Ok((name, value.trim().as_bytes().to_vec())),
        }
    });
    restored.collect()
}

/// Whether a byte may stand in a name of a header.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn original() -> CapturedMessage {
        let head = "POST /a?token=abc HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer abc\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        let mut message = CapturedMessage::new(head.as_bytes(), true);
        message.body = b"hello".to_vec().into();
        message.body_length = 5;
        message
    }

    fn apply(changes: Value) -> Result<String, EditError> {
        let changes: RequestEdits = serde_json::from_value(changes).unwrap();
        changes
            .apply_to(&original(), &CaptureSource::default())
            .map(|raw| String::from_utf8(raw).unwrap())
    }

    #[test]
    fn what_is_not_changed_stays_secrets_included() {
        let raw = apply(json!({
            "method": "PUT",
            "target": "/a?token=••••••",
            "headers": [["Host", "y"], ["Authorization", "Bearer ••••••"], ["X-New", "1"]],
        }));

        assert_eq!(
            raw.unwrap(),
            "PUT /a?token=abc HTTP/1.1\r\nHost: y\r\nAuthorization: Bearer abc\r\nX-New: 1\r\n\
             Content-Length: 5\r\n\r\nhello"
        );
    }

    #[test]
    fn headers_that_are_no_text_keep_their_bytes() {
        let mut original = original();
        original.body = Vec::new().into();
        original.body_length = 0;
        original.head = b"GET / HTTP/1.1\r\nX-Name: J\xfcrgen\r\n\r\n".to_vec();
        let shown = Some(vec![("X-Name".to_owned(), "J\u{fffd}rgen".to_owned())]);

        for headers in [None, shown] {
            let target = Some("/other".to_owned());
            let raw = RequestEdits { target, headers, ..RequestEdits::default() }
                .apply_to(&original, &CaptureSource::default())
                .unwrap();
            assert_eq!(raw, b"GET /other HTTP/1.1\r\nX-Name: J\xfcrgen\r\n\r\n");
        }
    }

    #[test]
    fn the_length_is_that_of_the_new_body() {
        let raw = apply(json!({"body": STANDARD.encode("longer than before")})).unwrap();

        assert!(raw.contains("Content-Length: 18\r\n"), "{raw}");
        assert!(!raw.contains("chunked"), "{raw}");
    }

    #[test]
    fn nothing_can_be_smuggled_in() {
        for changes in [
            json!({"method": "GET / HTTP/1.1\r\nX: y"}),
            json!({"method": ""}),
            json!({"target": "/a b"}),
            json!({"target": "http://elsewhere.test/"}),
            json!({"target": "/a\r\nX: y"}),
            json!({"target": "/b?token=••••••"}),
            json!({"headers": [["X", "a\r\nY: b"]]}),
            json!({"headers": [["X: y\r\nZ", "a"]]}),
            json!({"headers": [["Cookie", "••••••"]]}),
            json!({"headers": vec![["X", "y"]; 101]}),
            json!({"headers": [["Host", "a"], ["host", "b"]]}),
            json!({"headers": [["Host", "a b"]]}),
            json!({"headers": [["Host", "http://a.test"]]}),
            json!({"headers": [["Host", "127.1"]]}),
            json!({"target": "/a#b"}),
            json!({"target": "/\u{fc}"}),
            json!({"headers": [["X", "y".repeat(70_000)]]}),
            json!({"body": "no base64"}),
        ] {
            assert!(apply(changes.clone()).is_err(), "{changes}");
        }
        let raw = apply(json!({"headers": [["Host", "b\u{fc}cher.test:8080"]]})).unwrap();
        assert!(raw.contains("Host: xn--bcher-kva.test:8080\r\n"), "{raw}");
        let raw = apply(json!({"headers": [["Content-Length", "99"]]})).unwrap();
        assert!(!raw.contains("99"), "{raw}");
    }

    #[test]
    fn trailers_come_after_a_body_in_chunks() {
        let raw = apply(json!({"trailers": [["X-Sum", "7"], ["X-Sum", "8"]]})).unwrap();

        let end = "Trailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\
            x-sum: 7\r\nx-sum: 8\r\n\r\n";
        assert!(raw.ends_with(end), "{raw}");
        assert!(!raw.contains("Content-Length"), "{raw}");
        for trailer in [["Content-Length", "1"], ["a b", "1"], ["a", "b\nc"]] {
            assert!(apply(json!({"trailers": [trailer]})).is_err(), "{trailer:?}");
        }
    }

    #[test]
    fn trailers_stay_unless_others_are_given() {
        let mut original = original();
        original.trailer = b"X-Sum: 7\r\nContent-Length: 9\r\n\r\n".to_vec();
        let apply = |changes: Value| {
            let changes: RequestEdits = serde_json::from_value(changes).unwrap();
            String::from_utf8(changes.apply_to(&original, &CaptureSource::default()).unwrap())
                .unwrap()
        };

        let kept = apply(json!({"target": "/b"}));
        assert!(kept.ends_with("\r\n5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n"), "{kept}");
        let removed = apply(json!({"trailers": []}));
        assert!(removed.ends_with("Content-Length: 5\r\n\r\nhello"), "{removed}");
    }

    #[test]
    fn a_held_request_may_still_change_its_protocol() {
        let head = "GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let original = CapturedMessage::new(head.as_bytes(), false);
        let edits = || RequestEdits { target: Some("/b".to_owned()), ..RequestEdits::default() };

        let held = String::from_utf8(edits().apply_to_held(&original).unwrap()).unwrap();
        let replayed =
            String::from_utf8(edits().apply_to(&original, &CaptureSource::default()).unwrap())
                .unwrap();

        assert_eq!(held, head.replace("/a", "/b"));
        assert_eq!(replayed, "GET /b HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn a_cut_off_body_must_be_given_anew() {
        let (mut message, source) = (original(), CaptureSource::default());
        message.body_length = 6;

        assert!(RequestEdits::default().apply_to(&message, &source).is_err());
        let changes =
            RequestEdits { body: Some(STANDARD.encode("whole!")), ..RequestEdits::default() };
        assert!(changes.apply_to(&message, &source).unwrap().ends_with(b"\r\n\r\nwhole!"));
    }
}
