//! Python's exceptions, which are Python classes in `ginnel/exceptions.py`.

use http::HeaderMap;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};

use ginnel_api::{ErrorBody, Malformed};
use ginnel_base::letters::is_formatting;
use ginnel_client::{ApiResponse, Cause, ConfigError, Error, StatusError};
use ginnel_service as service;

use super::results::DecodeError;

/// An exception of ours by the name of its class.
pub(super) fn new_exception(py: Python<'_>, class: &str, message: &str) -> PyErr {
    build_exception(py, class, message, |_| Ok(()))
}

/// A problem with arguments.
pub(super) fn validation_error(py: Python<'_>, error: &Malformed) -> PyErr {
    new_exception(py, "ValidationError", &escape_text(&error.to_string()))
}

/// A text in one line, with the characters escaped that command a terminal or change the order of letters: keys in it
/// may be those of a stranger.
fn escape_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if is_formatting(letter) => shown.extend(letter.escape_unicode()),
            letter if letter.is_control() => shown.extend(letter.escape_default()),
            letter => shown.push(letter),
        }
    }
    shown
}

/// A problem with options.
pub(super) fn config_error(py: Python<'_>, error: &ConfigError) -> PyErr {
    new_exception(py, "ConfigError", &error.to_string())
}

/// A service that did not start.
pub(super) fn not_started(py: Python<'_>, error: &service::Error) -> PyErr {
    use service::Error;
    let class = match error {
        Error::AddressInUse(_)
        | Error::Bind { .. }
        | Error::AdminAddress { .. }
        | Error::PeerAddress { .. } => "ServiceAddressError",
        Error::Store(ginnel_store::StoreError::SpecialName(_)) => "ConfigError",
        Error::Store(_) | Error::Authority(_) | Error::TokenFile { .. } => "ServiceStoreError",
        Error::MalformedAdminKey
        | Error::UnknownAdminKey
        | Error::MalformedAuthtoken
        | Error::UnknownAuthtoken
        | Error::SecretFile { .. }
        | Error::ConnectionLimit(_)
        | Error::RateLimit
        | Error::TwoStores
        | Error::NodeNameTaken { .. }
        | Error::Acme(_)
        | Error::Setting { .. } => "ConfigError",
        _ => "ServiceError",
    };
    new_exception(py, class, &error.to_string())
}

/// An answer whose body is not what the operation returns.
pub(super) fn decode_error(py: Python<'_>, answer: &ApiResponse, problem: DecodeError) -> PyErr {
    match problem {
        DecodeError::Python(error) => error,
        DecodeError::Json(problem) => call_error(py, answer.decode_error(problem.to_string())),
    }
}

/// A failed call.
pub(super) fn call_error(py: Python<'_>, error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Malformed(error) => validation_error(py, &error),
        Error::Closed => new_exception(py, "ClientClosedError", &message),
        Error::ForeignPage { .. } => new_exception(py, "PaginationError", &escape_text(&message)),
        Error::Transport { cause, method, url, attempts } => {
            let class = match cause {
                Cause::Timeout(_)
                | Cause::ConnectTimeout(_)
                | Cause::Deadline(_)
                | Cause::RateLimit { .. } => "APITimeoutError",
                Cause::Body(_) => "ResponseDecodeError",
                Cause::NotRunning(_) => "AgentNotRunningError",
                _ => "APIConnectionError",
            };
            build_exception(py, class, &message, |fields| {
                fields.set_item("method", method)?;
                fields.set_item("url", url)?;
                fields.set_item("attempts", attempts)
            })
        }
        Error::Status(error) => status_error(py, &error),
        Error::Decode { method, url, body, .. } => {
            build_exception(py, "ResponseDecodeError", &escape_text(&message), |fields| {
                fields.set_item("method", method)?;
                fields.set_item("url", url)?;
                fields.set_item("body", PyBytes::new(py, &body))
            })
        }
        _ => new_exception(py, "APIError", &message),
    }
}

fn status_error(py: Python<'_>, error: &StatusError) -> PyErr {
    let code = error.body.code_text();
    let class = class_of(error.status.as_u16(), code.as_deref());
    build_exception(py, class, &error.to_string(), |fields| {
        fields.set_item("method", error.method)?;
        fields.set_item("url", &error.url)?;
        fields.set_item("attempts", error.attempts)?;
        fields.set_item("status_code", error.status.as_u16())?;
        fields.set_item("error_code", code)?;
        fields.set_item("message", error.message())?;
        fields.set_item("details", error_details(py, error)?)?;
        fields.set_item("operation_id", error.operation_id())?;
        fields.set_item("headers", headers_dict(py, &error.headers)?)?;
        fields.set_item("body", PyBytes::new(py, &error.content))?;
        fields.set_item("retry_after", error.retry_after().map(|pause| pause.as_secs_f64()))
    })
}

/// The details of an error, with numbers as they were written. Those that are more deeply nested than
/// results may be are taken as they were read.
fn error_details<'py>(py: Python<'py>, error: &StatusError) -> PyResult<Bound<'py, PyAny>> {
    let text = ErrorBody::details_text(&error.content);
    match text.and_then(|text| super::results::decode_any(py, text.as_bytes()).ok()) {
        Some(details) => Ok(details),
        None => Ok(pythonize::pythonize(py, &error.body.details)?),
    }
}

/// Headers as a dict; of those that came more than once the last counts.
pub(super) fn headers_dict<'py>(
    py: Python<'py>,
    headers: &HeaderMap,
) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for (name, value) in headers {
        fields.set_item(name.as_str(), String::from_utf8_lossy(value.as_bytes()))?;
    }
    Ok(fields)
}

/// The class for a status. A 403 that is about the key itself has one of the codes 200 to 208
/// (remote API sheet, section 2).
fn class_of(status: u16, code: Option<&str>) -> &'static str {
    let number = code.and_then(|code| code.rsplit('_').next()?.parse::<u16>().ok());
    match (status, number) {
        (400, _) => "BadRequestError",
        (401, _) | (403, Some(200..=208)) => "AuthenticationError",
        (403, _) => "PermissionDeniedError",
        (404, _) => "NotFoundError",
        (409, _) => "ConflictError",
        (429, _) => "RateLimitError",
        (500.., _) => "ServerError",
        _ => "APIStatusError",
    }
}

fn build_exception(
    py: Python<'_>,
    class: &str,
    message: &str,
    fill: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let made = || {
        let module =
            MODULE.get_or_try_init(py, || py.import("ginnel.exceptions").map(Bound::unbind))?;
        let fields = PyDict::new(py);
        fill(&fields)?;
        module.bind(py).getattr(class)?.call((message,), Some(&fields))
    };
    match made() {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
