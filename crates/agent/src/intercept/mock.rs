//! Responses of the agent in place of the local service.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use ginnel_api::Base64;
use ginnel_content::outgoing::is_made_anew;
use ginnel_http1::{HeadWriter, describes_bytes, has_content};

use super::rules::RuleAction;
use super::template::{self, TemplateValues};
use crate::capture::CapturedMessage;
use crate::edits::is_token;

/// The longest delay.
const MAX_DELAY_MS: u64 = 600_000;
/// The longest body, in bytes.
const MAX_BODY_BYTES: usize = 1 << 20;

/// What goes wrong with a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MockFault {
    /// There is none: the connection is reset.
    Reset,
    /// Half of the body is sent, and then the connection is reset.
    Truncate,
}

/// A response that the agent makes.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub struct MockResponse {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Option<String>,
    json: Option<Value>,
    body_base64: Option<Base64>,
    template: bool,
    delay: u64,
    fault: Option<MockFault>,
    times: Option<i64>,
}

impl Default for MockResponse {
    fn default() -> Self {
        Self {
            status: 200,
            headers: BTreeMap::new(),
            body: None,
            json: None,
            body_base64: None,
            template: true,
            delay: 0,
            fault: None,
            times: None,
        }
    }
}

/// A response that is ready to be sent.
#[derive(Debug)]
pub struct MadeResponse {
    /// Its status.
    pub status: u16,
    /// Its head.
    pub head: Vec<u8>,
    /// Its body.
    pub body: Vec<u8>,
}

impl RuleAction for MockResponse {
    const KIND: &'static str = "mock";
    const ALTERNATIVES: &'static [&'static str] = &["body", "json", "body_base64"];
    const EXACT: &'static [&'static str] = &["json"];

    fn default_fields() -> Value {
        json!({"enabled": true, "status": 200, "template": true, "delay": 0})
    }

    fn from_fields(fields: &Map<String, Value>) -> Result<Self, Vec<String>> {
        let mut problems = out_of_range(fields);
        if let Some(fault) = fields.get("fault").and_then(Value::as_str)
            && !["reset", "truncate"].contains(&fault)
        {
            problems.push(format!("fault: {fault:?} is neither reset nor truncate"));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let response = serde_json::from_value::<Self>(Value::Object(fields.clone()));
        let response = response.map_err(|error| vec![error.to_string()])?;
        let problems = response.find_problems();
        if problems.is_empty() { Ok(response) } else { Err(problems) }
    }
}

/// The numbers that are not from where to where they must be.
fn out_of_range(fields: &Map<String, Value>) -> Vec<String> {
    let limits =
        [("status", 200, 599), ("delay", 0, MAX_DELAY_MS), ("times", 1, i64::MAX.unsigned_abs())];
    let wrong = limits.iter().filter_map(|(name, least, most)| {
        let value = fields.get(*name)?;
        let fits = value.as_u64().is_some_and(|number| (*least..=*most).contains(&number));
        (!fits).then(|| match *most {
            most if most > MAX_DELAY_MS => format!("{name}: {value} is not {least} or more"),
            most => format!("{name}: {value} is not from {least} to {most}"),
        })
    });
    wrong.collect()
}

impl MockResponse {
    /// The fields of a mock that responds as a local service did before. Digests, ranges and entity tags are left out: the
    /// mock has content of its own, which is edited, and which visitors must not take for that of the local service.
    pub fn fields_from_response(response: &CapturedMessage) -> Map<String, Value> {
        let mut headers = BTreeMap::<String, String>::new();
        let status = response.start_line()[1].parse::<u16>().unwrap_or(200);
        let is_kept = |name: &str| match name.to_ascii_lowercase().as_str() {
            "content-encoding" => !response.is_decoded,
            "content-range" => matches!(status, 206 | 416),
            name => !is_made_anew(name) && !describes_bytes(name),
        };
        for (name, value) in response.headers().into_iter().filter(|(name, _)| is_kept(name)) {
            let known = headers.entry(name).or_default();
            if !known.is_empty() {
                known.push('\n');
            }
            known.push_str(&value);
        }
        let body = Base64(response.body.bytes().into_owned().into());
        let shown = json!({"status": status, "headers": headers, "body_base64": body});
        match shown {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    /// Whether it responds once more after so many times.
    pub(super) fn has_uses_left(&self, hits: i64) -> bool {
        self.times.is_none_or(|times| hits < times)
    }

    /// How long it waits first.
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.delay)
    }

    /// What goes wrong.
    pub fn fault(&self) -> Option<MockFault> {
        self.fault
    }

    /// The response to a request.
    pub fn build_response(&self, values: &TemplateValues<'_>, is_head: bool) -> MadeResponse {
        let text = |text: &str| match self.template {
            true => values.render_text(text),
            false => text.to_owned(),
        };
        let (media_type, mut body) = match (&self.body, &self.json, &self.body_base64) {
            (Some(body), ..) => ("text/plain; charset=utf-8", text(body).into_bytes()),
            (_, Some(json), _) if self.template => {
                ("application/json", values.render_json(json).to_string().into_bytes())
            }
            (_, Some(json), _) => ("application/json", json.to_string().into_bytes()),
            (.., Some(bytes)) => ("", bytes.0.to_vec()),
            _ => ("", Vec::new()),
        };
        // The status was checked when the mock was made.
        let is_bodiless = !StatusCode::from_u16(self.status).is_ok_and(has_content);
        let mut head = Vec::new();
        let mut writer = HeadWriter::begin_response(self.status, &mut head);
        let has_type = self.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type"));
        if !has_type && !media_type.is_empty() && !is_bodiless {
            writer.field("Content-Type", media_type);
        }
        for (name, values) in &self.headers {
            for value in values.split('\n') {
                writer.field(name, one_line(&text(value)));
            }
        }
        match self.status {
            // Its length must be zero, so that the visitor does not wait for content (RFC 9110, section 15.3.6).
            205 => {
                writer.field("Content-Length", "0");
            }
            _ if is_bodiless => {}
            _ => {
                writer.display_field("Content-Length", body.len());
            }
        }
        writer.end();
        if is_bodiless || is_head {
            body.clear();
        }
        MadeResponse { status: self.status, head, body }
    }

    fn find_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let bodies = [self.body.is_some(), self.json.is_some(), self.body_base64.is_some()];
        if bodies.iter().filter(|is_there| **is_there).count() > 1 {
            problems.push("body: only one of body, json and body_base64 may be given".to_owned());
        }
        let length = self.body.as_ref().map_or(0, String::len)
            + self.json.as_ref().map_or(0, |json| json.to_string().len())
            + self.body_base64.as_ref().map_or(0, |body| body.0.len());
        if length > MAX_BODY_BYTES {
            problems.push(format!("body: is longer than {MAX_BODY_BYTES} bytes: it has {length}"));
        }
        for (name, value) in &self.headers {
            if name.is_empty() || !name.bytes().all(is_token) {
                problems.push(format!("headers: {name:?} is not a name"));
            } else if is_made_anew(name) {
                problems.push(format!("headers: {name} is made by the agent"));
            } else if value.bytes().any(|byte| is_control(byte) && byte != b'\n') {
                problems.push(format!("headers: the value of {name} has a control character"));
            }
        }
        if self.template {
            let headers = self.headers.iter().map(|(name, value)| {
                template::check_text(value).map_err(|problem| format!("headers: {name}: {problem}"))
            });
            let body = self.body.as_deref().map_or(Ok(()), template::check_text);
            let json = self.json.as_ref().map_or(Ok(()), template::check_json);
            let named = |name: &str, checked: Result<(), String>| {
                checked.map_err(|problem| format!("{name}: {problem}"))
            };
            let checked = headers.chain([named("body", body), named("json", json)]);
            problems.extend(checked.filter_map(Result::err));
        }
        problems
    }
}

fn is_control(byte: u8) -> bool {
    byte < b' ' && byte != b'\t' || byte == 0x7f
}

/// A value that stays in its line, wherever its parts come from.
fn one_line(value: &str) -> Vec<u8> {
    value.trim().bytes().map(|byte| if is_control(byte) { b' ' } else { byte }).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::matcher::RequestView;
    use super::*;

    fn make(fields: Value, target: &str, is_head: bool) -> String {
        let mock = MockResponse::from_fields(fields.as_object().unwrap()).unwrap();
        let request =
            RequestView { tunnel_name: "", host: "", target, head: b"GET / HTTP/1.1\r\n" };
        let made = mock.build_response(&TemplateValues { request, body: b"", id: "" }, is_head);
        String::from_utf8([made.head, made.body].concat()).unwrap()
    }

    #[test]
    fn a_response_has_its_length_and_type() {
        for (fields, expected) in [
            (json!({}), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
            (json!({"status": 204, "body": "x"}), "HTTP/1.1 204 No Content\r\n\r\n"),
            (
                json!({"status": 205, "body": "x"}),
                "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
            ),
            (
                json!({"body": "é"}),
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\n\r\né",
            ),
            (
                json!({"json": {"a": "{{ query.q }}"}, "headers": {"content-type": "a/b"}}),
                "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\nContent-Length: 11\r\n\r\n{\"a\":\"1\\\"\"}",
            ),
            (
                json!({"headers": {"set-cookie": "a=1\nb=2"}, "body_base64": "AAE="}),
                "HTTP/1.1 200 OK\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nContent-Length: 2\r\n\r\n\0\u{1}",
            ),
            (
                json!({"body": "{{ body", "template": false}),
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 7\r\n\r\n{{ body",
            ),
        ] {
            assert_eq!(make(fields.clone(), "/?q=1%22", false), expected, "{fields}");
        }
        let head = make(json!({"body": "abc"}), "/", true);
        assert!(head.ends_with("Content-Length: 3\r\n\r\n"), "{head}");
    }

    #[test]
    fn a_mock_of_a_captured_response_has_content_of_its_own() {
        let head = b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\nRepr-Digest: sha-256=:a:\r\nAccept-Ranges: bytes\r\n\
            Content-Encoding: gzip\r\nVary: Accept\r\nContent-Length: 1\r\n\r\n";
        let mut response = CapturedMessage::new(head, false);
        let names = |response: &CapturedMessage| {
            let fields = MockResponse::fields_from_response(response);
            let names = fields["headers"].as_object().unwrap().keys().cloned();
            names.map(|name| name.to_lowercase()).collect::<Vec<_>>()
        };

        assert_eq!(names(&response), ["content-encoding", "vary"]);
        response.is_decoded = true;
        assert_eq!(names(&response), ["vary"]);
    }

    #[test]
    fn a_value_of_the_request_adds_no_header() {
        let made = make(json!({"headers": {"x": "{{ query.q }}"}}), "/?q=a%0d%0aY:%20b", false);

        assert!(made.contains("x: a  Y: b\r\n"), "{made}");
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        for (fields, problem) in [
            (json!({"status": 101}), "status: 101 is not from 200 to 599"),
            (json!({"delay": -1}), "delay: -1 is not from 0 to 600000"),
            (json!({"times": 0}), "times: 0 is not 1 or more"),
            (json!({"fault": "fire"}), "fault: \"fire\" is neither"),
            (json!({"body": "a", "json": 1}), "body: only one of"),
            (json!({"headers": {"a b": "c"}}), "headers: \"a b\" is not a name"),
            (json!({"headers": {"content-length": "1"}}), "headers: content-length is made"),
            (json!({"headers": {"a": "b\rc"}}), "headers: the value of a has a control"),
            (json!({"json": {"a": ["{{ bdoy }}"]}}), "json: {{ bdoy }} is none of"),
            (
                json!({"body": "x".repeat(MAX_BODY_BYTES + 1)}),
                "body: is longer than 1048576 bytes: it has 1048577",
            ),
            (json!({"json": "x".repeat(MAX_BODY_BYTES)}), "body: is longer than 1048576"),
        ] {
            let problems =
                MockResponse::from_fields(fields.as_object().unwrap()).unwrap_err().join("\n");
            assert!(problems.starts_with(problem), "{problems}");
        }
    }
}
