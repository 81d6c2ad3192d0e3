//! What tests ask of a service: answers that fail on purpose, and a record of what was called.
//!
//! A service that was asked for neither pays one look at two flags for each request.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header, request};
use hyper::body::{Body as HttpBody, Frame};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::Notify;

use ginnel_api::{Info, mask};

use super::Refusal;

/// How an operation shall fail.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InjectedFault {
    /// The operation, such as `api_keys.get`; any without a name.
    pub operation: Option<String>,
    /// The status of the answer; without one, and without a cut, the call is only delayed.
    pub status: Option<u16>,
    /// How many calls fail; all from now on without a number.
    pub times: Option<u32>,
    /// The seconds in `Retry-After`.
    pub retry_after: Option<u64>,
    /// How long the answer is kept back.
    pub delay: Duration,
    /// True to break the connection in the middle of the answer.
    pub cut: bool,
}

/// A call of an operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Called {
    /// The operation, such as `api_keys.get`.
    pub operation: String,
    /// The HTTP method.
    pub method: String,
    /// The path, as it was sent.
    pub path: String,
    /// The query string, if there was one.
    pub query: Option<String>,
    /// The arguments, from path, query and body; none when they could not be read.
    pub arguments: Option<Map<String, Value>>,
    /// The status of the answer; none when the connection was cut.
    pub status: Option<u16>,
}

/// The faults and the calls of a service.
pub(super) struct Rehearsal {
    faults: Mutex<Vec<InjectedFault>>,
    failing: AtomicBool,
    calls: Mutex<VecDeque<Called>>,
    /// How many calls are remembered.
    keep: usize,
    /// Ends the delays of faults that are forgotten.
    over: Notify,
}

impl Rehearsal {
    pub(super) fn new(keep: usize) -> Self {
        Self {
            faults: Mutex::default(),
            failing: AtomicBool::new(false),
            calls: Mutex::default(),
            keep,
            over: Notify::new(),
        }
    }

    pub(super) fn inject_fault(&self, fault: InjectedFault) {
        lock_unpoisoned(&self.faults).push(fault);
        self.failing.store(true, Ordering::Release);
    }

    /// Forgets all faults and all calls.
    pub(super) fn reset(&self) {
        lock_unpoisoned(&self.faults).clear();
        self.failing.store(false, Ordering::Release);
        lock_unpoisoned(&self.calls).clear();
        self.over.notify_waiters();
    }

    /// Waits for as long as a fault says, or until it is forgotten.
    pub(super) async fn wait_delay(&self, delay: Duration) {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.over.notified() => {}
        }
    }

    pub(super) fn recorded_calls(&self) -> Vec<Called> {
        lock_unpoisoned(&self.calls).iter().cloned().collect()
    }

    pub(super) fn records_calls(&self) -> bool {
        self.keep > 0
    }

    pub(super) fn record_call(
        &self,
        info: &Info,
        head: &request::Parts,
        arguments: Option<Map<String, Value>>,
        status: Option<u16>,
    ) {
        let arguments = arguments.map(|arguments| mask_arguments(info, arguments));
        let mut calls = lock_unpoisoned(&self.calls);
        if calls.len() >= self.keep {
            calls.pop_front();
        }
        calls.push_back(Called {
            operation: format!("{}.{}", info.resource, info.name),
            method: head.method.to_string(),
            path: mask::target(head.uri.path()).into_owned(),
            query: head.uri.query().map(mask::pairs),
            arguments,
            status,
        });
    }

    /// The fault that a call of this operation meets; the first that was asked for comes first.
    pub(super) fn next(&self, info: &Info) -> Option<InjectedFault> {
        if !self.failing.load(Ordering::Acquire) {
            return None;
        }
        let meant = |fault: &InjectedFault| match fault.operation.as_deref() {
            Some(name) => name.rsplit_once('.') == Some((info.resource, info.name)),
            None => true,
        };
        let mut faults = lock_unpoisoned(&self.faults);
        let at = faults.iter().position(meant)?;
        match &mut faults[at].times {
            Some(1) => Some(faults.remove(at)),
            Some(times) => {
                *times -= 1;
                Some(faults[at].clone())
            }
            None => Some(faults[at].clone()),
        }
    }
}

/// The arguments of a call without their secrets.
fn mask_arguments(info: &Info, arguments: Map<String, Value>) -> Map<String, Value> {
    let mut shown = Value::Object(arguments);
    mask::arguments(info, &mut shown);
    match shown {
        Value::Object(arguments) => arguments,
        _ => Map::new(),
    }
}

impl InjectedFault {
    /// The answer that stands in for the real one; none where there shall be the real one.
    pub(super) fn to_response(&self, prefix: &str) -> Option<Response> {
        if self.cut {
            return Some(broken_response());
        }
        let refusal = Refusal::injected_failure(self.status?);
        let mut response = refusal.into_response(prefix);
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        Some(response)
    }
}

/// An answer that ends before its body does.
fn broken_response() -> Response {
    let mut response = Response::new(Body::new(Broken { begun: false }));
    *response.status_mut() = StatusCode::OK;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(4096));
    response
}

/// A body that breaks the connection after its first byte.
struct Broken {
    begun: bool,
}

impl HttpBody for Broken {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let begun = std::mem::replace(&mut self.begun, true);
        Poll::Ready(Some(if begun {
            Err(std::io::Error::other("the response was to be cut"))
        } else {
            Ok(Frame::data(Bytes::from_static(b"{")))
        }))
    }
}

fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
