//! What an API answers when it refuses.

use std::collections::HashMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The body of a response that reports an error (remote API sheet, section 2).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ErrorBody {
    /// A code such as `ERR_NGROK_218`; the agent API uses a number, and plain 404s have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<Value>,
    /// The status of the response.
    pub status_code: u16,
    /// Recent errors, for a person.
    pub msg: String,
    /// More, for a program: `operation_id`, `path`.
    pub details: Map<String, Value>,
}

impl ErrorBody {
    /// Reads the body of a response field by field: what one of them lacks, or has of another type
    /// than it should, leaves the others as they are. A body that is not an object has no fields.
    pub fn from_body(body: &[u8]) -> Self {
        // Bytes that are no text may stand in one field only.
        let body = String::from_utf8_lossy(body);
        let fields: HashMap<String, &RawValue> = serde_json::from_str(&body).unwrap_or_default();
        Self {
            error_code: read_field(&fields, "error_code"),
            status_code: read_field(&fields, "status_code")
                .map_or(0, |status| status_code(&status)),
            msg: read_field(&fields, "msg").unwrap_or_default(),
            details: read_field(&fields, "details").unwrap_or_default(),
        }
    }

    /// The JSON text of the details, as the body has it, where it is an object.
    pub fn details_text(body: &[u8]) -> Option<String> {
        let body = String::from_utf8_lossy(body);
        let fields: HashMap<String, &RawValue> = serde_json::from_str(&body).ok()?;
        let text = fields.get("details")?.get();
        text.starts_with('{').then(|| text.to_owned())
    }

    /// The code as text, whichever way it was written.
    pub fn code_text(&self) -> Option<String> {
        match self.error_code.as_ref()? {
            Value::String(code) => Some(code.clone()),
            Value::Number(code) => Some(code.to_string()),
            _ => None,
        }
    }
}

/// A field that is there and of that type.
fn read_field<T: DeserializeOwned>(fields: &HashMap<String, &RawValue>, name: &str) -> Option<T> {
    // What is of another type is as good as absent: the error is told by the status anyway.
    serde_json::from_str(fields.get(name)?.get()).ok()
}

/// A status as a number, or as the text of one.
fn status_code(status: &Value) -> u16 {
    let number = match status {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|status| u16::try_from(status).ok()),
    };
    number.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> (Option<String>, u16, String, usize) {
        let body = ErrorBody::from_body(body.as_bytes());
        (body.code_text(), body.status_code, body.msg, body.details.len())
    }

    #[test]
    fn each_field_is_read_by_itself() {
        for (body, code, status, details) in [
            (
                r#"{"error_code":"E","status_code":400,"msg":"m","details":{"a":1}}"#,
                Some("E"),
                400,
                1,
            ),
            (r#"{"msg":"m","details":null}"#, None, 0, 0),
            (r#"{"msg":"m","details":[1],"status_code":"400"}"#, None, 400, 0),
            (r#"{"msg":"m","status_code":-1,"error_code":null}"#, None, 0, 0),
            (r#"{"msg":"m","status_code":99999,"error_code":[]}"#, None, 0, 0),
            (r#"{"msg":"m","error_code":218}"#, Some("218"), 0, 0),
            (r#"{"msg":"m","details":{"a":1e400}}"#, None, 0, 0),
            (r#"{"msg":"m","details":{"a":"\ud800"},"more":1}"#, None, 0, 0),
            (r#"{"msg":5,"msg":"m","m\u0073g":"m"}"#, None, 0, 0),
        ] {
            let expected = (code.map(str::to_owned), status, "m".to_owned(), details);
            assert_eq!(read(body), expected, "{body}");
        }
    }

    #[test]
    fn a_message_of_another_type_leaves_the_rest() {
        assert_eq!(read(r#"{"msg":{},"error_code":"E"}"#), (Some("E".into()), 0, String::new(), 0));
    }

    #[test]
    fn what_is_no_object_has_no_fields() {
        for body in ["", "null", "[]", "<html>", r#"{"msg":"m""#] {
            assert_eq!(read(body), (None, 0, String::new(), 0), "{body}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_leave_the_message() {
        let body = ErrorBody::from_body(b"{\"msg\":\"m\",\"details\":{\"a\":\"\xff\"}}");

        assert_eq!((body.msg.as_str(), body.details.len()), ("m", 1));
    }
}
