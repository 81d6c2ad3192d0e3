//! Why the local API refuses a request (agent sheet, section 1).

use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::routes::{WebBody, whole};

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::agent) struct WebRejection {
    pub status: u16,
    code: Option<u16>,
    message: &'static str,
    details: Value,
    allow: Option<&'static str>,
}

impl WebRejection {
    /// A refusal with a code of its own.
    pub fn new(status: u16, code: u16, message: &'static str, problem: impl Into<String>) -> Self {
        let details = json!({"err": problem.into()});
        Self { status, code: Some(code), message, details, allow: None }
    }

    pub fn invalid_body(problem: impl Into<String>) -> Self {
        Self::new(400, 100, "invalid request body", problem)
    }

    pub fn invalid_parameter(problem: impl Into<String>) -> Self {
        Self::new(400, 106, "invalid parameter", problem)
    }

    pub fn not_found(path: &str) -> Self {
        let details = json!({"path": path});
        Self { status: 404, code: None, message: "Resource not found", details, allow: None }
    }

    /// Something that the request names is not there.
    pub fn gone(problem: impl Into<String>) -> Self {
        let details = json!({"err": problem.into()});
        Self { status: 404, code: None, message: "Resource not found", details, allow: None }
    }

    pub fn wrong_method(path: &str, allow: &'static str) -> Self {
        let details = json!({"path": path});
        Self { status: 405, code: None, message: "Method not allowed", details, allow: Some(allow) }
    }

    pub fn wrong_host(host: &str) -> Self {
        let message = "the agent does not serve this host name; web_allow_hosts can allow it";
        Self { status: 403, code: None, message, details: json!({"host": host}), allow: None }
    }

    pub fn cross_site() -> Self {
        let message = "pages of other sites may not do this";
        Self { status: 403, code: None, message, details: json!({}), allow: None }
    }

    pub fn too_large(limit: usize) -> Self {
        Self::new(413, 100, "invalid request body", format!("is longer than {limit} bytes"))
    }

    /// The agent itself failed.
    pub fn failed(problem: impl Into<String>) -> Self {
        let details = json!({"err": problem.into()});
        Self { status: 500, code: None, message: "the agent failed", details, allow: None }
    }

    /// The answer that says so.
    pub(super) fn answer(self) -> http::Response<WebBody> {
        let mut body = json!({
            "status_code": self.status,
            "msg": self.message,
            "details": self.details,
        });
        if let Some(code) = self.code {
            body["error_code"] = code.into();
        }
        let mut response = http::Response::new(whole(body.to_string()));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}
