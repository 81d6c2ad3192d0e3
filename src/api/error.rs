//! What an API answers when it refuses.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The body of an answer that reports an error (remote API sheet, section 2).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// A code such as `ERR_NGROK_218`; the agent API uses a number, and plain 404s have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<Value>,
    /// The status of the answer.
    #[serde(default)]
    pub status_code: u16,
    /// What went wrong, for a person.
    #[serde(default)]
    pub msg: String,
    /// More, for a program: `operation_id`, `path`.
    #[serde(default)]
    pub details: Map<String, Value>,
}

impl ErrorBody {
    /// The code as text, whichever way it was written.
    pub fn code(&self) -> Option<String> {
        match self.error_code.as_ref()? {
            Value::String(code) => Some(code.clone()),
            Value::Number(code) => Some(code.to_string()),
            _ => None,
        }
    }
}
