//! What an answer means.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use ginnel_api::ErrorBody;
use ginnel_http1::{Response, retry_after};

use super::{ClientSettings, Error};

/// A complete answer.
#[derive(Debug)]
pub struct ApiResponse {
    pub(super) response: Response,
    /// How many attempts the call took.
    pub attempts: u32,
    /// How long the call took, with its attempts and pauses.
    pub elapsed: Duration,
    /// The HTTP method of the request.
    pub method: &'static str,
    pub(super) target: String,
    pub(super) settings: Arc<ClientSettings>,
}

/// An answer that may be stored, and come again: without what the client sent in confidence.
#[derive(Debug, Clone)]
pub struct RecordedResponse {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, its coding undone.
    pub body: Vec<u8>,
}

/// An answer that reports an error. It shows nothing that the client sent in confidence.
#[derive(Debug)]
pub struct StatusError {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, its coding undone.
    pub content: Bytes,
    /// What the body says; empty when it is not the error object of the API.
    pub body: ErrorBody,
    /// How many attempts the call took.
    pub attempts: u32,
    /// The HTTP method of the request.
    pub method: &'static str,
    /// The address of the request.
    pub url: String,
    retry_after: Option<Duration>,
}

impl ApiResponse {
    /// The status.
    pub fn status(&self) -> StatusCode {
        // The reader takes three digits; what is below 100 is no status.
        StatusCode::from_u16(self.response.status).unwrap_or(StatusCode::BAD_GATEWAY)
    }

    /// The headers.
    pub fn headers(&self) -> HeaderMap {
        self.response.to_header_map()
    }

    /// The body, its coding undone.
    pub fn body(&self) -> &[u8] {
        self.response.body()
    }

    /// The body, to be kept; nothing is copied, and the headers are gone.
    pub fn share_body(&mut self) -> Bytes {
        self.response.share_body()
    }

    /// The answer as it may be stored.
    pub fn to_recorded_response(&self) -> RecordedResponse {
        let mut headers = self.headers();
        self.settings.credentials.mask_headers(&mut headers);
        RecordedResponse { status: self.response.status, headers, body: self.masked_body().into() }
    }

    /// The address of the request.
    pub fn url(&self) -> String {
        self.settings.redact_text(&self.settings.origin.url_of(&self.target))
    }

    /// The answer, or the error that it reports. Redirects are errors: they are not followed.
    ///
    /// # Errors
    /// When the status is not one of success.
    pub fn error_for_status(self) -> Result<Self, Error> {
        if (200..300).contains(&self.response.status) {
            return Ok(self);
        }
        Err(Error::Status(Box::new(self.into_error())))
    }

    /// The body as what an operation returns.
    ///
    /// # Errors
    /// When it is something else.
    pub fn decode<T: DeserializeOwned>(self) -> Result<T, Error> {
        let text = if self.response.status == 204 { b"null" } else { self.body() };
        serde_json::from_slice(text).map_err(|error| self.decode_error(error.to_string()))
    }

    /// The error for a body that is not what the operation returns.
    pub fn decode_error(&self, problem: String) -> Error {
        let problem = self.settings.redact_text(&problem);
        Error::Decode { problem, method: self.method, url: self.url(), body: self.masked_body() }
    }

    fn masked_body(&self) -> Bytes {
        self.settings.credentials.mask_bytes(&Bytes::copy_from_slice(self.body()))
    }

    fn into_error(self) -> StatusError {
        let mut headers = self.headers();
        self.settings.credentials.mask_headers(&mut headers);
        let content = self.masked_body();
        StatusError {
            status: self.status(),
            headers,
            body: ErrorBody::from_body(&content),
            content,
            attempts: self.attempts,
            method: self.method,
            url: self.url(),
            retry_after: retry_after(self.response.field_values("retry-after").next()),
        }
    }
}

impl StatusError {
    /// The API's own words, or the reason phrase of the status.
    pub fn message(&self) -> &str {
        match self.body.msg.as_str() {
            "" => self.status.canonical_reason().unwrap_or("unknown status"),
            message => message,
        }
    }

    /// What an agent gives as its reason.
    pub fn reason(&self) -> Option<&str> {
        self.body.details.get("err")?.as_str()
    }

    /// The identifier under which the server knows the failed operation.
    pub fn operation_id(&self) -> Option<&str> {
        self.body.details.get("operation_id")?.as_str()
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Where a redirect leads.
    fn redirect_location(&self) -> Option<Cow<'_, str>> {
        let is_redirect = self.status.is_redirection();
        let location = self.headers.get(http::header::LOCATION).filter(|_| is_redirect)?;
        Some(String::from_utf8_lossy(location.as_bytes()))
    }
}

impl std::error::Error for StatusError {}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever the server wrote.
        let message = self.message().split_whitespace().collect::<Vec<_>>().join(" ");
        f.write_str(&message)?;
        if let Some(location) = self.redirect_location() {
            write!(f, " to {location}, which is not followed")?;
        }
        write!(f, " ({}", self.status.as_u16())?;
        if let Some(code) = self.body.code_text() {
            write!(f, " {code}")?;
        }
        write!(f, ", {} {}", self.method, self.url)?;
        if let Some(id) = self.operation_id() {
            write!(f, ", operation {id}")?;
        }
        f.write_str(")")
    }
}
