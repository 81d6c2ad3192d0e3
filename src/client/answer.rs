//! What an answer means.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

use super::redaction::Credentials;
use super::{Error, retry};
use crate::api::ErrorBody;

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, decompressed.
    pub body: Bytes,
    /// How many attempts the call took.
    pub attempts: u32,
    /// The HTTP method of the request.
    pub method: &'static str,
    /// The address of the request.
    pub url: String,
    /// What no error shows.
    pub(super) credentials: Credentials,
}

/// An answer that reports an error.
#[derive(Debug)]
pub struct StatusError {
    /// The answer itself.
    pub answer: Answer,
    /// What its body says; empty when the body is not the error object of the API.
    pub body: ErrorBody,
}

impl Answer {
    /// The answer, or the error that it reports. Redirects are errors: they are not followed.
    /// The error shows nothing that the client sent in confidence.
    pub fn accept(self) -> Result<Self, Error> {
        if self.status.is_success() {
            return Ok(self);
        }
        let answer = self.redacted();
        let body = serde_json::from_slice(&answer.body).unwrap_or_default();
        Err(Error::Status(Box::new(StatusError { answer, body })))
    }

    /// The body as what an operation returns.
    pub fn decode<T: DeserializeOwned>(self) -> Result<T, Error> {
        let text: &[u8] = if self.status == StatusCode::NO_CONTENT { b"null" } else { &self.body };
        serde_json::from_slice(text).map_err(|error| self.undecodable(error.to_string()))
    }

    /// The error for a body that is not what the operation returns.
    pub fn undecodable(self, problem: String) -> Error {
        let problem = self.credentials.mask_text(&problem);
        let Self { method, url, body, .. } = self.redacted();
        Error::Decode { problem, method, url, body }
    }

    /// The answer without the credentials of its request.
    fn redacted(mut self) -> Self {
        self.body = self.credentials.mask(&self.body);
        self.url = self.credentials.mask_text(&self.url);
        self.credentials.mask_headers(&mut self.headers);
        self
    }
}

impl StatusError {
    /// The API's own words, or the reason phrase of the status.
    pub fn message(&self) -> &str {
        match self.body.msg.as_str() {
            "" => self.answer.status.canonical_reason().unwrap_or("unknown status"),
            message => message,
        }
    }

    /// The identifier under which the server knows the failed operation.
    pub fn operation_id(&self) -> Option<&str> {
        self.body.details.get("operation_id")?.as_str()
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        retry::retry_after(&self.answer.headers)
    }
}

impl std::error::Error for StatusError {}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever the server wrote.
        let message = self.message().split_whitespace().collect::<Vec<_>>().join(" ");
        let Answer { status, method, url, .. } = &self.answer;
        write!(f, "{message} ({}", status.as_u16())?;
        if let Some(code) = self.body.code() {
            write!(f, " {code}")?;
        }
        write!(f, ", {method} {url}")?;
        if let Some(id) = self.operation_id() {
            write!(f, ", operation {id}")?;
        }
        f.write_str(")")
    }
}
