//! Why a request is refused; it becomes HTTP at the very last step.

use axum::response::Response;
use http::{HeaderValue, header};
use serde_json::{Map, Value};

use ginnel_api::{ErrorBody, HandlerError, error_response};
use ginnel_gateway::modules::edge_module::InvalidModule;

use super::code::{self, ErrorCode};
use super::store::{self, StorageFault};

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
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let ErrorCode { number, status } = code;
        let message = message.into();
        Self { status, number: Some(number), message, details: Vec::new(), header: None }
    }

    /// No such path.
    pub fn no_such_path(path: &str) -> Self {
        Self::without_code(404, "Not Found").with_detail("path", path)
    }

    /// The path is known, the method is not; `allowed` names those that are.
    pub fn no_such_method(path: &str, allowed: &str) -> Self {
        let mut refusal = Self::without_code(405, "Method Not Allowed").with_detail("path", path);
        refusal.header = Some((header::ALLOW, allowed.to_owned()));
        refusal
    }

    /// The head of the request is too large.
    pub fn head_too_large(message: &str) -> Self {
        Self::without_code(431, message)
    }

    /// No resource has the identifier in the path.
    pub fn not_found() -> Self {
        Self::without_code(404, "Resource not found")
    }

    /// Too many requests; the next is welcome after so many seconds.
    pub fn rate_limited(message: String, seconds: u64) -> Self {
        let mut refusal = Self::new(code::RATE_LIMITED, message);
        refusal.header = Some((header::RETRY_AFTER, seconds.to_string()));
        refusal
    }

    /// A page of another origin has sent the request.
    pub fn cross_site() -> Self {
        Self::without_code(403, "pages of other sites may not do this")
    }

    /// There is no session of the console, or it is over.
    pub fn not_logged_in() -> Self {
        Self::without_code(401, "log in with an API key")
    }

    /// The console has as many sessions, or as many streams, as it may have.
    pub fn console_is_full() -> Self {
        Self::without_code(503, "too many people use the console now")
    }

    /// The caller is no admin.
    pub fn only_for_admins(message: &str) -> Self {
        Self::without_code(403, message)
    }

    /// The storage fails; the request may be sent again where that can help.
    fn of_storage(fault: StorageFault, error: &store::StoreError) -> Self {
        let (code, retry_after) = code::of_storage(fault);
        let mut refusal = Self::new(code, format!("{}: {error}", fault.description()));
        refusal.header = retry_after.map(|seconds| (header::RETRY_AFTER, seconds.to_string()));
        refusal
    }

    /// The same for somebody who has not shown a key: failures are logged, and shown without details.
    pub fn without_details(mut self) -> Self {
        if self.status >= 500 {
            tracing::warn!(err = self.message, "a key could not be checked");
            "the key could not be checked".clone_into(&mut self.message);
        }
        self
    }

    /// A failure that a test has asked for.
    pub fn injected_failure(status: u16) -> Self {
        Self::without_code(status, "this failure was injected")
    }

    /// The status of the answer.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The code in the answer; `prefix` stands before its number.
    pub fn error_code(&self, prefix: &str) -> Option<String> {
        self.number.map(|number| format!("{prefix}{number}"))
    }

    /// Adds a detail for programs.
    pub fn with_detail(mut self, name: &'static str, value: &str) -> Self {
        self.details.push((name, value.to_owned()));
        self
    }

    /// The answer; `prefix` stands before the code.
    pub fn into_response(self, prefix: &str) -> Response {
        let error_code = self.error_code(prefix);
        let details: Map<String, Value> =
            self.details.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        let body = ErrorBody {
            error_code: error_code.map(Into::into),
            status_code: self.status,
            msg: self.message,
            details,
        };
        let mut response = error_response(&body);
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::try_from(value)
        {
            response.headers_mut().insert(name, value);
        }
        response
    }

    fn without_code(status: u16, message: &str) -> Self {
        let message = message.to_owned();
        Self { status, number: None, message, details: Vec::new(), header: None }
    }
}

impl From<store::StoreError> for Refusal {
    fn from(error: store::StoreError) -> Self {
        match error.fault() {
            Some(fault) => Self::of_storage(fault, &error),
            None => Self::new(code::UNEXPECTED, format!("unexpected failure: {error}")),
        }
    }
}

impl HandlerError for Refusal {
    fn invalid_arguments(error: &serde_json::Error) -> Self {
        Self::new(code::INVALID_VALUE, error.to_string())
    }

    fn unexpected(error: &serde_json::Error) -> Self {
        Self::new(code::UNEXPECTED, format!("unexpected failure: {error}"))
    }
}

impl From<InvalidModule> for Refusal {
    fn from(InvalidModule { number, message, .. }: InvalidModule) -> Self {
        Self::new(ErrorCode::bad_request(number), message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_learn_that_something_failed_and_not_what() {
        let failed =
            Refusal::new(code::STORE_UNREACHABLE, "no entry for host 10.0.0.5").without_details();
        let refused = Refusal::new(code::RATE_LIMITED, "too many").without_details();

        assert_eq!((failed.status, failed.message.contains("10.0.0.5")), (503, false));
        assert_eq!(refused.message, "too many");
    }
}
