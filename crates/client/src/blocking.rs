//! Calls that wait on the thread of their caller: plain sockets, no runtime, no other thread.
//!
//! A read waits for a tick of 50 ms at most, and then looks at the time and asks whether the caller
//! was interrupted; a signal ends the read at once. So a call of one attempt is one write and one read.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ginnel_http1::Response;

use super::attempts::{Attempts, RetryDecision};
use super::connection::{ApiConnection, RECEIVE_BYTES, ReceiveOutcome};
use super::dial::{AttemptError, DialContext, dial_origin};
use super::pool::{Checkout, ConnectionPool, Lease};
use super::socket::{ClientSocket, POLL_INTERVAL};
use super::time_limit::TimeLimit;
use super::{ApiResponse, CallEvent, Cause, Error, Observer};

/// Takes the body of a success piece by piece; false ends the call.
pub(super) type BodySink<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

thread_local! {
    /// Where answers arrive.
    static RECEIVE_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs a call to its end on this thread. With a sink, an attempt has its timeout anew with each piece
/// that arrives.
pub(super) fn run_call(
    pool: &Arc<ConnectionPool<ClientSocket>>,
    mut attempts: Attempts,
    mut observer: Option<Observer<'_>>,
    is_interrupted: &mut dyn FnMut() -> bool,
    mut sink: Option<BodySink<'_>>,
) -> Result<ApiResponse, Error> {
    let filter = observer.as_ref().map(|observer| observer.filter);
    loop {
        match attempts.reserve_slot() {
            Ok(pause) => {
                sleep_between_attempts(pause.unwrap_or_default(), &attempts, is_interrupted)?
            }
            Err(cause) => return attempts.fail_call(cause),
        }
        let sent = attempts.begin_attempt()?;
        let mut events = Vec::new();
        events.extend(observer.is_some().then_some(sent));
        notify_observer(&mut observer, &mut events)?;
        let outcome = match run_attempt(pool, &mut attempts, is_interrupted, &mut sink) {
            Ok(response) => Ok(response),
            Err(AttemptError::Failed(cause)) => Err(cause),
            Err(AttemptError::Interrupted) => return Err(Error::Interrupted),
            Err(AttemptError::Closed) => return Err(Error::Closed),
        };
        let next = attempts.end_attempt(outcome, filter, &mut events);
        notify_observer(&mut observer, &mut events)?;
        match next {
            RetryDecision::Done(outcome) => return outcome,
            RetryDecision::Retry(pause) => {
                sleep_between_attempts(pause, &attempts, is_interrupted)?
            }
        }
    }
}

/// Tells of events.
///
/// # Errors
/// When that ends the call.
pub(super) fn notify_observer(
    observer: &mut Option<Observer<'_>>,
    events: &mut Vec<CallEvent>,
) -> Result<(), Error> {
    let Some(observer) = observer else { return Ok(()) };
    let is_over = events.drain(..).any(|event| observer.notify(event));
    if is_over { Err(Error::Interrupted) } else { Ok(()) }
}

fn sleep_between_attempts(
    pause: Duration,
    attempts: &Attempts,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<(), Error> {
    if pause.is_zero() {
        return Ok(());
    }
    let end = Instant::now() + pause;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // The next attempt says that the client is closed.
        if left.is_zero() || attempts.is_closed() {
            return Ok(());
        }
        thread::sleep(left.min(POLL_INTERVAL));
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
    }
}

fn run_attempt(
    pool: &Arc<ConnectionPool<ClientSocket>>,
    attempts: &mut Attempts,
    is_interrupted: &mut dyn FnMut() -> bool,
    sink: &mut Option<BodySink<'_>>,
) -> Result<Response, AttemptError> {
    let limit = attempts.time_limit();
    let mut lease = lease_connection(pool, attempts, limit, is_interrupted)?;
    attempts.record_reuse(lease.connection.is_some());
    if lease.connection.is_none() {
        let context = DialContext { limit, is_interrupted: &mut *is_interrupted };
        lease.connection = Some(dial_origin(attempts.settings(), context)?);
    }
    RECEIVE_BUFFER.with(|buffer| match buffer.try_borrow_mut() {
        Ok(mut buffer) => run_exchange(lease, attempts, &mut buffer, is_interrupted, sink),
        // Within another call, as in the handler of a signal.
        Err(_) => run_exchange(lease, attempts, &mut Vec::new(), is_interrupted, sink),
    })
}

/// The right to a connection, waited for in line.
fn lease_connection(
    pool: &Arc<ConnectionPool<ClientSocket>>,
    attempts: &Attempts,
    limit: Option<TimeLimit>,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<Lease<ClientSocket>, AttemptError> {
    let notify = || -> Box<dyn Fn() + Send + Sync> {
        let waiting = thread::current();
        Box::new(move || waiting.unpark())
    };
    let waiter = match pool.checkout(attempts.reuse_requirements(), notify) {
        Checkout::Lease(lease) => return Ok(lease),
        Checkout::Waiter(waiter) => waiter,
    };
    loop {
        if let Some(mut lease) = waiter.take_lease() {
            lease.validate_connection(attempts.reuse_requirements());
            return Ok(lease);
        }
        thread::park_timeout(POLL_INTERVAL);
        let is_late = limit.is_some_and(|limit| limit.remaining().is_zero());
        let stop = match limit {
            _ if is_interrupted() => AttemptError::Interrupted,
            _ if attempts.is_closed() => AttemptError::Closed,
            Some(limit) if is_late => AttemptError::Failed(limit.timeout_cause(false)),
            _ => continue,
        };
        waiter.cancel();
        return Err(stop);
    }
}

fn run_exchange(
    mut lease: Lease<ClientSocket>,
    attempts: &mut Attempts,
    buffer: &mut Vec<u8>,
    is_interrupted: &mut dyn FnMut() -> bool,
    sink: &mut Option<BodySink<'_>>,
) -> Result<Response, AttemptError> {
    let mut limit = attempts.time_limit();
    buffer.resize(RECEIVE_BYTES, 0);
    let connection = lease.connection.as_mut().ok_or(AttemptError::Interrupted)?;
    #[cfg(unix)]
    connection.socket.leave_reactor();
    let request = attempts.request_bytes();
    let begun = connection.begin_exchange(request)?;
    let mut exchange = if sink.is_some() { begun.streaming() } else { begun };
    let (mut is_sent, mut interrupt_checked) = (false, Instant::now());
    let response = loop {
        if !is_sent {
            is_sent = connection.send_request(&mut exchange, request, true)?;
        }
        // Where sending is stuck, the answer may be there already.
        let wait = is_sent && wait_for_last_interval(connection, limit);
        let (outcome, count) = connection.receive_once(&mut exchange, buffer, wait)?;
        if let Some(sink) = sink.as_deref_mut().filter(|_| count > 0) {
            limit = attempts.limit_from(Instant::now());
            deliver_piece(sink, &exchange.take_piece())?;
        }
        match outcome {
            ReceiveOutcome::Complete(response) => break response,
            // A server that sends little by little lets no tick pass.
            ReceiveOutcome::More if interrupt_checked.elapsed() < POLL_INTERVAL => {}
            ReceiveOutcome::More | ReceiveOutcome::Pending => {
                if is_interrupted() {
                    return Err(AttemptError::Interrupted);
                }
                interrupt_checked = Instant::now();
            }
        }
        if let Some(limit) = limit.filter(|limit| limit.remaining().is_zero()) {
            return Err(AttemptError::Failed(limit.timeout_cause(true)));
        }
    };
    deliver_rest(sink, &response)?;
    if connection.may_stay(&exchange, request, &response)
        && attempts.permits_reuse(response.has_surplus)
    {
        lease.retain_connection();
    }
    Ok(response)
}

/// Passes on what is left of the body of a successful response.
fn deliver_rest(sink: &mut Option<BodySink<'_>>, response: &Response) -> Result<(), AttemptError> {
    let Some(sink) = sink.as_deref_mut().filter(|_| response.status / 100 == 2) else {
        return Ok(());
    };
    if response.is_coded {
        return Err(Cause::Body("it has a coding that was not asked for".to_owned()).into());
    }
    deliver_piece(sink, response.body())
}

fn deliver_piece(sink: BodySink<'_>, piece: &[u8]) -> Result<(), AttemptError> {
    if piece.is_empty() || sink(piece) { Ok(()) } else { Err(AttemptError::Interrupted) }
}

/// Whether a whole tick is left. Where less is, this waits for as much, or until something arrives.
fn wait_for_last_interval(
    connection: &ApiConnection<ClientSocket>,
    limit: Option<TimeLimit>,
) -> bool {
    let left = limit.map_or(POLL_INTERVAL, |limit| limit.remaining());
    if left < POLL_INTERVAL {
        connection.socket.wait_readable(left);
    }
    left >= POLL_INTERVAL
}
