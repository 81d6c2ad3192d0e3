//! A request as text that is pasted elsewhere: into a shell, a script or a socket.
//!
//! A visitor has written the request, so each form quotes it for its language. No form contains control characters besides
//! the line ends between its own lines: a terminal acts on them before a shell reads them. If a program cannot send
//! the request as it is, the copy has a remark.

mod curl;
mod httpie;
mod python;
mod shell;

use std::borrow::Cow;

use http::HeaderName;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::outgoing::{FramedField, OutgoingRequest, RequestConnection, is_framing};

pub use curl::curl_command;
pub use httpie::httpie_command;
pub use python::{python_script, python_string};

/// Bytes that no URL has.
const NOT_IN_URLS: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'#');

/// A request that is written in another form.
#[derive(Debug, Clone)]
pub struct SnippetRequest {
    /// Scheme and authority of the address that it is sent to, such as `https://a.test:8443`.
    pub origin: String,
    /// The request.
    pub request: OutgoingRequest,
    /// How the copy differs from the captured request, as sentences.
    pub remarks: Vec<String>,
}

impl SnippetRequest {
    /// Returns the URL. Bytes that no URL has are percent-encoded.
    pub fn url(&self) -> String {
        let target = percent_encode(self.target(), NOT_IN_URLS);
        match self.target().first() {
            Some(b'/') => format!("{}{target}", self.origin),
            _ => format!("{}/", self.origin),
        }
    }

    /// Returns the URL for programs that speak HTTP: WebSockets are opened with it.
    fn http_url(&self) -> String {
        let url = self.url();
        url.strip_prefix("ws").map_or_else(|| url.clone(), |rest| format!("http{rest}"))
    }

    fn method(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.request.start_line[0])
    }

    fn target(&self) -> &[u8] {
        &self.request.start_line[1]
    }

    /// Returns the fields that a copy lists. Programs write the others by themselves.
    fn fields(&self) -> Vec<FramedField<'_>> {
        let mut fields = self.request.framed_fields(RequestConnection::New);
        fields.retain(|(name, _)| !is_framing(name) && !name.eq_ignore_ascii_case("host"));
        fields
    }

    /// Returns true if the request has a field that is sent.
    fn has_field(&self, name: &str) -> bool {
        let mut fields = self.request.framed_fields(RequestConnection::New).into_iter();
        fields.any(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    /// Returns the names of the fields behind the body.
    fn trailer_names(&self) -> Option<String> {
        let names: Vec<_> = self.request.trailers.keys().map(HeaderName::as_str).collect();
        (!names.is_empty()).then(|| shown_names(&names))
    }

    /// Returns the remarks as comments of a shell or of Python.
    fn comments(&self, own: &[String]) -> String {
        self.remarks.iter().chain(own).map(|remark| format!("# {remark}\n")).collect()
    }
}

/// Returns names for a comment. Some shells read quotes in comments, and names may contain them.
fn shown_names(names: &[&str]) -> String {
    let is_harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let shown = names.iter().map(|name| match name.bytes().all(is_harmless) {
        true => name,
        false => "one with signs in its name",
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Returns true if every program sends this target as it is written: it has only characters of RFC 3986 and no
/// fragment, and a query that is not empty.
fn is_plain_target(target: &[u8]) -> bool {
    let is_allowed =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%/?".contains(byte);
    target.starts_with(b"/") && !target.ends_with(b"?") && target.iter().all(is_allowed)
}

/// Returns true if the libraries `requests` and `urllib3` send this target as it is written. They remove dot segments and
/// the first of two slashes, and rewrite percent-encodings into their normal form.
fn is_normal_target(target: &[u8]) -> bool {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let mut segments = path.split(|byte| *byte == b'/');
    let mut encodings = target.split(|byte| *byte == b'%').skip(1);
    is_plain_target(target)
        && !target.starts_with(b"//")
        && !segments.any(|segment| matches!(segment, b"." | b".."))
        && encodings.all(is_normal_encoding)
}

/// Returns true if two upper-case digits follow, and the character must be percent-encoded.
fn is_normal_encoding(rest: &[u8]) -> bool {
    let Some(&[first, second]) = rest.first_chunk::<2>() else { return false };
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    let is_written = is_digit(first) && is_digit(second);
    let digits = [first, second];
    let code = std::str::from_utf8(&digits).ok().and_then(|it| u8::from_str_radix(it, 16).ok());
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    is_written && code.is_some_and(|code| !is_unreserved(code))
}
