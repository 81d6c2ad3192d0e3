//! Why a request is refused; it becomes HTTP at the very last step.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value};

use super::code::{self, Code};
use super::store::{self, StorageFault};
use crate::api::ErrorBody;

/// Why a request is refused, for the one who sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    status: u16,
    number: Option<u16>,
    message: String,
    details: Vec<(&'static str, String)>,
    header: Option<(header::HeaderName, String)>,
}

impl Refusal {
    /// A refusal with a code; the message names the field and the limit.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let Code { number, status } = code;
        let message = message.into();
        Self { status, number: Some(number), message, details: Vec::new(), header: None }
    }

    /// No such path.
    pub fn no_such_path(path: &str) -> Self {
        Self::plain(404, "Not Found").with("path", path)
    }

    /// The path is known, the method is not; `allowed` names those that are.
    pub fn no_such_method(path: &str, allowed: &str) -> Self {
        let mut refusal = Self::plain(405, "Method Not Allowed").with("path", path);
        refusal.header = Some((header::ALLOW, allowed.to_owned()));
        refusal
    }

    /// No resource has the identifier in the path.
    pub fn not_found() -> Self {
        Self::plain(404, "Resource not found")
    }

    /// Too many requests; the next is welcome after so many seconds.
    pub fn rate_limited(message: String, seconds: u64) -> Self {
        let mut refusal = Self::new(code::RATE_LIMITED, message);
        refusal.header = Some((header::RETRY_AFTER, seconds.to_string()));
        refusal
    }

    /// The storage fails; the request may be sent again where that can help.
    fn of_storage(fault: StorageFault, error: &store::Error) -> Self {
        let (code, retry_after) = code::of_storage(fault);
        let mut refusal = Self::new(code, format!("{}: {error}", fault.description()));
        refusal.header = retry_after.map(|seconds| (header::RETRY_AFTER, seconds.to_string()));
        refusal
    }

    /// A failure that a test has asked for.
    pub(super) fn asked_for(status: u16) -> Self {
        Self::plain(status, "this failure was injected")
    }

    /// The status of the answer.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// Adds a detail for programs.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.details.push((name, value.to_owned()));
        self
    }

    /// The answer; `prefix` stands before the code.
    pub(super) fn into_response(self, prefix: &str) -> Response {
        let details: Map<String, Value> =
            self.details.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        let body = ErrorBody {
            error_code: self.number.map(|number| format!("{prefix}{number}").into()),
            status_code: self.status,
            msg: self.message,
            details,
        };
        // An error body holds nothing that JSON could not.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = json(self.status, body);
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::try_from(value)
        {
            response.headers_mut().insert(name, value);
        }
        response
    }

    fn plain(status: u16, message: &str) -> Self {
        let message = message.to_owned();
        Self { status, number: None, message, details: Vec::new(), header: None }
    }
}

impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Self {
        match error.fault() {
            Some(fault) => Self::of_storage(fault, &error),
            None => Self::new(code::UNEXPECTED, format!("unexpected failure: {error}")),
        }
    }
}

/// An answer with a JSON body.
pub(super) fn json(status: u16, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
