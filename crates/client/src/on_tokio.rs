//! Calls that are awaited on a runtime of tokio: those of Rust callers, and those of event loops that
//! cannot watch a descriptor.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Duration, Instant, sleep_until, timeout_at};

use ginnel_http1::Response;
use ginnel_http1::reuse::IdleState;

use super::attempts::{Attempts, RetryDecision};
use super::blocking::notify_observer;
use super::connection::{ApiConnection, MAX_TURN_BYTES, RECEIVE_BYTES, ReceiveOutcome};
use super::dial::{AttemptError, DialContext, dial_origin};
use super::pool::{Checkout, ConnectionPool, Lease};
use super::socket::{ClientSocket, POLL_INTERVAL, SocketIo, classify_peek};
use super::time_limit::TimeLimit;
use super::{ApiResponse, Cause, Error, Observer};

impl SocketIo for TcpStream {
    fn send(&mut self, bytes: &[u8], _wait: bool) -> io::Result<usize> {
        self.try_write(bytes)
    }

    fn receive(&mut self, buffer: &mut [u8], _wait: bool) -> io::Result<usize> {
        self.try_read(buffer)
    }

    fn idle_state(&mut self) -> IdleState {
        // The runtime tells what it knows of, and may have slept since.
        classify_peek(SockRef::from(&*self).peek(&mut [std::mem::MaybeUninit::uninit()]))
    }
}

/// Runs a call to its end.
pub(super) async fn run_call(
    pool: &Arc<ConnectionPool<TcpStream>>,
    mut attempts: Attempts,
    mut observer: Option<Observer<'_>>,
) -> Result<ApiResponse, Error> {
    let filter = observer.as_ref().map(|observer| observer.filter);
    loop {
        match attempts.reserve_slot() {
            Ok(pause) => sleep_between_attempts(pause.unwrap_or_default(), &attempts).await,
            Err(cause) => return attempts.fail_call(cause),
        }
        let mut events = vec![attempts.begin_attempt()?];
        notify_observer(&mut observer, &mut events)?;
        let limit = attempts.time_limit();
        let is_connected = AtomicBool::new(false);
        let attempt = run_attempt(pool, &mut attempts, limit, &is_connected);
        let outcome = match limit {
            None => attempt.await,
            Some(limit) => match timeout_at(Instant::from_std(limit.time), attempt).await {
                Ok(outcome) => outcome,
                Err(_) => Err(limit.timeout_cause(is_connected.load(Relaxed)).into()),
            },
        };
        let outcome = match outcome {
            Ok(response) => Ok(response),
            Err(AttemptError::Failed(cause)) => Err(cause),
            Err(AttemptError::Interrupted | AttemptError::Closed) => return Err(Error::Closed),
        };
        let next = attempts.end_attempt(outcome, filter, &mut events);
        notify_observer(&mut observer, &mut events)?;
        match next {
            RetryDecision::Done(outcome) => return outcome,
            RetryDecision::Retry(pause) => sleep_between_attempts(pause, &attempts).await,
        }
    }
}

/// Pauses, but not for longer than the client is open; the next attempt says that it is not.
async fn sleep_between_attempts(pause: Duration, attempts: &Attempts) {
    let end = Instant::now() + pause;
    while Instant::now() < end && !attempts.is_closed() {
        sleep_until(end.min(Instant::now() + POLL_INTERVAL)).await;
    }
}

async fn run_attempt(
    pool: &Arc<ConnectionPool<TcpStream>>,
    attempts: &mut Attempts,
    limit: Option<TimeLimit>,
    is_connected: &AtomicBool,
) -> Result<Response, AttemptError> {
    let mut lease = lease_connection(pool, attempts).await?;
    attempts.record_reuse(lease.connection.is_some());
    if lease.connection.is_none() {
        lease.connection = Some(open_connection(attempts, limit).await?);
    }
    is_connected.store(true, Relaxed);
    Ok(run_exchange(lease, attempts).await?)
}

async fn lease_connection(
    pool: &Arc<ConnectionPool<TcpStream>>,
    attempts: &Attempts,
) -> Result<Lease<TcpStream>, AttemptError> {
    /// A place in the line that is given up when nobody waits any more.
    struct QueuedWaiter(Arc<super::pool::Waiter<TcpStream>>);
    impl Drop for QueuedWaiter {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }

    let released = Arc::new(Notify::new());
    let notify = || -> Box<dyn Fn() + Send + Sync> {
        let released = released.clone();
        Box::new(move || released.notify_one())
    };
    let waiter = match pool.checkout(attempts.reuse_requirements(), notify) {
        Checkout::Lease(lease) => return Ok(lease),
        Checkout::Waiter(waiter) => QueuedWaiter(waiter),
    };
    loop {
        released.notified().await;
        if let Some(mut lease) = waiter.0.take_lease() {
            lease.validate_connection(attempts.reuse_requirements());
            return Ok(lease);
        }
        if attempts.is_closed() {
            return Err(AttemptError::Closed);
        }
    }
}

/// Opens a connection on a thread that may wait.
async fn open_connection(
    attempts: &Attempts,
    limit: Option<TimeLimit>,
) -> Result<ApiConnection<TcpStream>, Cause> {
    struct DialGuard(Arc<AtomicBool>);
    impl Drop for DialGuard {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    let settings = attempts.settings().clone();
    let is_over = Arc::new(AtomicBool::new(false));
    let _dialing = DialGuard(is_over.clone());
    let dial_result = spawn_blocking(move || {
        let mut is_interrupted = || is_over.load(Relaxed);
        dial_origin(&settings, DialContext { limit, is_interrupted: &mut is_interrupted })
    });
    let connection = match dial_result.await {
        Ok(Ok(connection)) => connection,
        Ok(Err(AttemptError::Failed(cause))) => return Err(cause),
        Ok(Err(AttemptError::Interrupted | AttemptError::Closed)) | Err(_) => {
            return Err(Cause::Connect(io::Error::other("the runtime ends")));
        }
    };
    let registered = connection.map_socket(|socket: ClientSocket| {
        let socket = socket.into_inner();
        socket.set_nonblocking(true)?;
        TcpStream::from_std(socket.into())
    });
    registered.map_err(Cause::Connect)
}

async fn run_exchange(mut lease: Lease<TcpStream>, attempts: &Attempts) -> Result<Response, Cause> {
    let Some(connection) = &mut lease.connection else {
        return Err(Cause::Connect(io::Error::other("there is no connection")));
    };
    let request = attempts.request_bytes();
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut exchange = connection.begin_exchange(request)?;
    let response = loop {
        let is_sent = connection.send_request(&mut exchange, request, false)?;
        let mut budget_bytes = MAX_TURN_BYTES;
        match connection.receive_response(&mut exchange, &mut buffer, &mut budget_bytes)? {
            ReceiveOutcome::Complete(response) => break response,
            ReceiveOutcome::More => tokio::task::yield_now().await,
            ReceiveOutcome::Pending => {
                let ready = if is_sent {
                    connection.socket.readable().await
                } else {
                    let interest = tokio::io::Interest::READABLE | tokio::io::Interest::WRITABLE;
                    connection.socket.ready(interest).await.map(drop)
                };
                ready.map_err(|source| Cause::Broken { place: "while it was awaited", source })?;
            }
        }
    };
    if connection.may_stay(&exchange, request, &response)
        && attempts.permits_reuse(response.has_surplus)
    {
        lease.retain_connection();
    }
    Ok(response)
}
