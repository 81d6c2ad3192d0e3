//! Cassettes, as far as calls know of them; see `ginnel/_testing/cassette.py`.
//!
//! While one is in use, every call asks it for an answer, below the decoder and above the transport.
//! With none, which is the rule, a call looks at one flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use ginnel_api::Call;
use ginnel_client::{ApiResponse, Client, RecordedResponse};

use super::error;

static IS_IN_USE: AtomicBool = AtomicBool::new(false);
static CASSETTE: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Has all calls of this process ask a cassette for their answers, or none; gives the one before.
#[pyfunction]
pub(super) fn use_cassette(cassette: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
    let mut current = CASSETTE.lock().unwrap_or_else(PoisonError::into_inner);
    IS_IN_USE.store(cassette.is_some(), Ordering::Release);
    std::mem::replace(&mut *current, cassette)
}

/// What a cassette says to a call.
pub(super) enum Playback {
    /// There is no cassette.
    Off,
    /// This is the answer.
    Replay(RecordedResponse),
    /// The call is to be made, and its answer recorded.
    Record(CassetteRecording),
}

/// A call whose answer is awaited by a cassette.
pub(super) struct CassetteRecording {
    cassette: Py<PyAny>,
    /// What the cassette knows the call by.
    place: Py<PyAny>,
}

type RecordedParts = (u16, Vec<(String, String)>, Vec<u8>);

impl Playback {
    /// Asks the cassette, if there is one.
    ///
    /// # Errors
    /// When the cassette neither knows the call nor records it.
    pub(super) fn for_call(py: Python<'_>, client: &Client, call: &Call) -> PyResult<Self> {
        if !IS_IN_USE.load(Ordering::Acquire) {
            return Ok(Self::Off);
        }
        let current = CASSETTE.lock().unwrap_or_else(PoisonError::into_inner);
        let cassette = current.as_ref().map(|cassette| cassette.clone_ref(py));
        drop(current);
        let Some(cassette) = cassette.filter(|_| !client.is_closed()) else { return Ok(Self::Off) };
        let body = call.body.as_deref().map(|body| PyBytes::new(py, body));
        let origin = client.settings().origin.to_string();
        let request = (call.method.as_str(), &call.target, body, origin);
        let (place, response): (Py<PyAny>, Option<RecordedParts>) =
            cassette.bind(py).call_method1(intern!(py, "_play"), request)?.extract()?;
        match response {
            Some(parts) => parse_recorded(parts).map(Self::Replay),
            None => Ok(Self::Record(CassetteRecording { cassette, place })),
        }
    }
}

impl CassetteRecording {
    /// Hands an answer over.
    pub(super) fn record_response(&self, py: Python<'_>, answer: &ApiResponse) -> PyResult<()> {
        let RecordedResponse { status, headers, body } = answer.to_recorded_response();
        let headers = error::headers_dict(py, &headers)?;
        let arguments = (&self.place, status, headers, PyBytes::new(py, &body));
        self.cassette.call_method1(py, intern!(py, "_record"), arguments).map(drop)
    }
}

fn parse_recorded((status, fields, body): RecordedParts) -> PyResult<RecordedResponse> {
    let wrong = |name: &str| PyValueError::new_err(format!("{name:?} is not a header"));
    let mut headers = HeaderMap::new();
    for (name, value) in &fields {
        let header = HeaderName::try_from(name.as_str()).map_err(|_| wrong(name))?;
        headers.insert(header, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong(name))?);
    }
    Ok(RecordedResponse { status, headers, body })
}
