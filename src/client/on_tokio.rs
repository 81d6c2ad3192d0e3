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

use super::attempts::{Attempts, Limit, Next};
use super::blocking::tell;
use super::connection::{Connection, MAX_TURN_BYTES, Progress, RECEIVE_BYTES};
use super::dial::{Patience, Stop, dial};
use super::pool::{Grant, Lease, Pool};
use super::socket::{Socket, TICK, Transport, idle};
use super::{Answer, Cause, Error, Observer};
use crate::http1::Response;
use crate::reuse::IdleState;

impl Transport for TcpStream {
    fn send(&mut self, bytes: &[u8], _wait: bool) -> io::Result<usize> {
        self.try_write(bytes)
    }

    fn receive(&mut self, room: &mut [u8], _wait: bool) -> io::Result<usize> {
        self.try_read(room)
    }

    fn idle_state(&mut self) -> IdleState {
        // The runtime tells what it knows of, and may have slept since.
        idle(SockRef::from(&*self).peek(&mut [std::mem::MaybeUninit::uninit()]))
    }
}

/// Runs a call to its end.
pub(super) async fn run(
    pool: &Arc<Pool<TcpStream>>,
    mut attempts: Attempts,
    mut observer: Option<Observer<'_>>,
) -> Result<Answer, Error> {
    let filter = observer.as_ref().map(|observer| observer.filter);
    loop {
        match attempts.reserve() {
            Ok(pause) => rest(pause.unwrap_or_default(), &attempts).await,
            Err(cause) => return attempts.give_up(cause),
        }
        let mut events = vec![attempts.begin()?];
        tell(&mut observer, &mut events)?;
        let limit = attempts.limit();
        let is_connected = AtomicBool::new(false);
        let attempt = attempt(pool, &mut attempts, limit, &is_connected);
        let outcome = match limit {
            None => attempt.await,
            Some(limit) => match timeout_at(Instant::from_std(limit.at), attempt).await {
                Ok(outcome) => outcome,
                Err(_) => Err(limit.cause(is_connected.load(Relaxed)).into()),
            },
        };
        let outcome = match outcome {
            Ok(response) => Ok(response),
            Err(Stop::Failed(cause)) => Err(cause),
            Err(Stop::Interrupted | Stop::Closed) => return Err(Error::Closed),
        };
        let next = attempts.end(outcome, filter, &mut events);
        tell(&mut observer, &mut events)?;
        match next {
            Next::Done(outcome) => return outcome,
            Next::Again(pause) => rest(pause, &attempts).await,
        }
    }
}

/// Pauses, but not for longer than the client is open; the next attempt says that it is not.
async fn rest(pause: Duration, attempts: &Attempts) {
    let end = Instant::now() + pause;
    while Instant::now() < end && !attempts.is_closed() {
        sleep_until(end.min(Instant::now() + TICK)).await;
    }
}

async fn attempt(
    pool: &Arc<Pool<TcpStream>>,
    attempts: &mut Attempts,
    limit: Option<Limit>,
    is_connected: &AtomicBool,
) -> Result<Response, Stop> {
    let mut lease = lease(pool, attempts).await?;
    attempts.reuse(lease.connection.is_some());
    if lease.connection.is_none() {
        lease.connection = Some(connection(attempts, limit).await?);
    }
    is_connected.store(true, Relaxed);
    Ok(exchange(lease, attempts).await?)
}

async fn lease(pool: &Arc<Pool<TcpStream>>, attempts: &Attempts) -> Result<Lease<TcpStream>, Stop> {
    /// A place in the line that is given up when nobody waits any more.
    struct Place(Arc<super::pool::Ticket<TcpStream>>);
    impl Drop for Place {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }

    let turn = Arc::new(Notify::new());
    let notify = || -> Box<dyn Fn() + Send + Sync> {
        let turn = turn.clone();
        Box::new(move || turn.notify_one())
    };
    let place = match pool.request(attempts.needs(), notify) {
        Grant::Lease(lease) => return Ok(lease),
        Grant::Ticket(ticket) => Place(ticket),
    };
    loop {
        turn.notified().await;
        if let Some(mut lease) = place.0.take() {
            lease.check(attempts.needs());
            return Ok(lease);
        }
        if attempts.is_closed() {
            return Err(Stop::Closed);
        }
    }
}

/// Opens a connection on a thread that may wait.
async fn connection(
    attempts: &Attempts,
    limit: Option<Limit>,
) -> Result<Connection<TcpStream>, Cause> {
    struct Dialing(Arc<AtomicBool>);
    impl Drop for Dialing {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    let settings = attempts.settings().clone();
    let is_over = Arc::new(AtomicBool::new(false));
    let _dialing = Dialing(is_over.clone());
    let dialed = spawn_blocking(move || {
        let mut is_interrupted = || is_over.load(Relaxed);
        dial(&settings, Patience { limit, is_interrupted: &mut is_interrupted })
    });
    let connection = match dialed.await {
        Ok(Ok(connection)) => connection,
        Ok(Err(Stop::Failed(cause))) => return Err(cause),
        Ok(Err(Stop::Interrupted | Stop::Closed)) | Err(_) => {
            return Err(Cause::Connect(io::Error::other("the runtime ends")));
        }
    };
    let registered = connection.map(|socket: Socket| {
        let socket = socket.into_inner();
        socket.set_nonblocking(true)?;
        TcpStream::from_std(socket.into())
    });
    registered.map_err(Cause::Connect)
}

async fn exchange(mut lease: Lease<TcpStream>, attempts: &Attempts) -> Result<Response, Cause> {
    let Some(connection) = &mut lease.connection else {
        return Err(Cause::Connect(io::Error::other("there is no connection")));
    };
    let request = attempts.request();
    let mut room = vec![0; RECEIVE_BYTES];
    let mut exchange = connection.begin(request)?;
    let response = loop {
        let is_sent = connection.send(&mut exchange, request, false)?;
        let mut budget_bytes = MAX_TURN_BYTES;
        match connection.receive(&mut exchange, &mut room, &mut budget_bytes)? {
            Progress::Done(response) => break response,
            Progress::More => tokio::task::yield_now().await,
            Progress::Waits => {
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
        lease.keep();
    }
    Ok(response)
}
