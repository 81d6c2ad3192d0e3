//! Sending a captured request again, as it was or changed.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::web::WebRejection;
use crate::agent::capture::CapturedMessage;
use crate::agent::inner::AgentInner;
use crate::agent::replay::ReplayError;
use crate::api::mask;
use crate::http1::{HeadWriter, is_hop_by_hop};

/// How long the head of a changed request may be, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// How many headers it may have.
const MAX_HEADERS: usize = 100;

/// What is to be different; what is absent stays.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReplayEdits {
    tunnel: Option<String>,
    method: Option<String>,
    target: Option<String>,
    /// Pairs of name and value; masked values stay as they were.
    headers: Option<Vec<(String, String)>>,
    /// Base64.
    body: Option<String>,
}

/// Sends a request again; answers with the identifier of the new record.
pub(super) async fn replay(
    shared: &Arc<AgentInner>,
    id: &str,
    edited: &Bytes,
) -> Result<Value, WebRejection> {
    let changes: ReplayEdits = serde_json::from_slice(edited)
        .map_err(|error| WebRejection::invalid_body(error.to_string()))?;
    let record = shared
        .captures
        .find(id)
        .ok_or_else(|| WebRejection::gone(ReplayError::NoRecord(id.to_owned()).to_string()))?;
    let original = record.exchange().request.clone();
    let tunnel = changes.tunnel.clone().unwrap_or_else(|| record.tunnel_name.clone());
    let raw = changes.apply(&original)?;
    let sent = shared.send(&tunnel, raw, Some(record.id.clone())).await;
    let new = sent.map_err(|error| WebRejection::gone(error.to_string()))?;
    Ok(json!({"id": new}))
}

impl ReplayEdits {
    fn is_empty(&self) -> bool {
        self.method.is_none()
            && self.target.is_none()
            && self.headers.is_none()
            && self.body.is_none()
    }

    /// The bytes of the request to send.
    fn apply(self, original: &CapturedMessage) -> Result<Vec<u8>, WebRejection> {
        if self.body.is_none() && original.is_truncated() {
            let problem = format!("body: {}; give the whole of it", ReplayError::Truncated);
            return Err(WebRejection::new(400, 105, "request cannot be replayed", problem));
        }
        if self.is_empty() {
            return Ok(original.raw());
        }
        let [method, target, version] = original.start_line().map(Cow::into_owned);
        let method = self.method.unwrap_or(method);
        if method.is_empty() || !method.bytes().all(is_token) {
            return Err(WebRejection::invalid_body(format!("method: {method:?} is not a method")));
        }
        let target = self
            .target
            .map_or_else(|| Ok(target.clone()), |edited| edited_target(&edited, &target))?;
        let original_headers = original.exact_headers();
        let headers = match self.headers {
            Some(headers) => edited_headers(headers, &original_headers)?,
            None => original_headers,
        };
        let body = match self.body {
            Some(text) => STANDARD.decode(text).map_err(|error| {
                WebRejection::invalid_body(format!("body: is not base64: {error}"))
            })?,
            None => original.body.bytes().into_owned(),
        };
        let mut head = Vec::new();
        let line = format!("{method} {target} {version}");
        let mut writer = HeadWriter::begin(line.as_bytes(), &mut head);
        for (name, value) in headers {
            if !is_made_anew(&name) {
                writer.field(name, value);
            }
        }
        if !body.is_empty() || !matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "DELETE") {
            writer.display("Content-Length", body.len());
        }
        writer.end();
        if head.len() > MAX_HEAD_BYTES {
            return Err(WebRejection::invalid_body(format!(
                "headers: are longer than {MAX_HEAD_BYTES} bytes"
            )));
        }
        Ok([head, body].concat())
    }
}

/// A target that was edited; its masked parameters stay as they were.
fn edited_target(edited: &str, original: &str) -> Result<String, WebRejection> {
    if edited == mask::target(original) {
        return Ok(original.to_owned());
    }
    if edited.contains(mask::MASK) {
        let problem = "target: has a masked secret; show secrets before changing it";
        return Err(WebRejection::invalid_body(problem));
    }
    let usable = edited == "*" || edited.starts_with('/');
    if !usable || !edited.bytes().all(|byte| matches!(byte, b'!'..=b'~')) {
        let problem = format!("target: {edited:?} is not a path with an optional query");
        return Err(WebRejection::invalid_body(problem));
    }
    Ok(edited.to_owned())
}

fn edited_headers(
    edited: Vec<(String, String)>,
    original: &[(String, Vec<u8>)],
) -> Result<Vec<(String, Vec<u8>)>, WebRejection> {
    if edited.len() > MAX_HEADERS {
        let problem = format!("headers: are {}, the limit is {MAX_HEADERS}", edited.len());
        return Err(WebRejection::invalid_body(problem));
    }
    let mut originals = original.iter().collect::<Vec<_>>();
    let restored = edited.into_iter().map(|(name, value)| {
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(WebRejection::invalid_body(format!("headers: {name:?} is not a name")));
        }
        if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
            let problem = format!("headers: the value of {name} has a control character");
            return Err(WebRejection::invalid_body(problem));
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
                Err(WebRejection::invalid_body(problem))
            }
            None => Ok((name, value.trim().as_bytes().to_vec())),
        }
    });
    restored.collect()
}

/// Whether a header describes the framing of the body or concerns one connection. `TE` stays: gRPC
/// needs it.
pub(super) fn is_made_anew(name: &str) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    is("content-length") || is("trailer") || is_hop_by_hop(name) && !is("te")
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn original() -> CapturedMessage {
        let head = "POST /a?token=abc HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer abc\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        let mut message = CapturedMessage::new(head.as_bytes(), true);
        message.body = b"hello".to_vec().into();
        message.body_length = 5;
        message
    }

    fn apply(changes: Value) -> Result<String, WebRejection> {
        let changes: ReplayEdits = serde_json::from_value(changes).unwrap();
        changes.apply(&original()).map(|raw| String::from_utf8(raw).unwrap())
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
            let raw =
                ReplayEdits { target, headers, ..ReplayEdits::default() }.apply(&original).unwrap();
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
            json!({"headers": [["X", "y".repeat(70_000)]]}),
            json!({"body": "no base64"}),
        ] {
            assert!(apply(changes.clone()).is_err(), "{changes}");
        }
        let raw = apply(json!({"headers": [["Content-Length", "99"]]})).unwrap();
        assert!(!raw.contains("99"), "{raw}");
    }

    #[test]
    fn a_cut_off_body_must_be_given_anew() {
        let mut message = original();
        message.body_length = 6;

        assert!(ReplayEdits::default().apply(&message).is_err());
        let changes =
            ReplayEdits { body: Some(STANDARD.encode("whole!")), ..ReplayEdits::default() };
        assert!(changes.apply(&message).unwrap().ends_with(b"\r\n\r\nwhole!"));
    }
}
