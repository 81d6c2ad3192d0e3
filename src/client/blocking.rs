//! Calls that wait on the thread of their caller: plain sockets, no runtime, no other thread.
//!
//! A read waits for a tick of 50 ms at most, and then looks at the time and asks whether the caller
//! was interrupted; a signal ends the read at once. So a call of one attempt is one write and one read.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::attempts::{Attempts, Limit, Next};
use super::connection::{Connection, Progress, RECEIVE_BYTES};
use super::dial::{Patience, Stop, dial};
use super::pool::{Grant, Lease, Pool};
use super::socket::{Socket, TICK};
use super::{Answer, Error, Event, Observer};
use crate::http1::Response;

thread_local! {
    /// Where answers arrive.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs a call to its end on this thread.
pub(super) fn run(
    pool: &Arc<Pool<Socket>>,
    mut attempts: Attempts,
    mut observer: Option<Observer<'_>>,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<Answer, Error> {
    let filter = observer.as_ref().map(|observer| observer.filter);
    loop {
        match attempts.reserve() {
            Ok(pause) => sleep(pause.unwrap_or_default(), &attempts, is_interrupted)?,
            Err(cause) => return attempts.give_up(cause),
        }
        let begun = attempts.begin()?;
        let mut events = Vec::new();
        events.extend(observer.is_some().then_some(begun));
        tell(&mut observer, &mut events)?;
        let outcome = match attempt(pool, &mut attempts, is_interrupted) {
            Ok(response) => Ok(response),
            Err(Stop::Failed(cause)) => Err(cause),
            Err(Stop::Interrupted) => return Err(Error::Interrupted),
            Err(Stop::Closed) => return Err(Error::Closed),
        };
        let next = attempts.end(outcome, filter, &mut events);
        tell(&mut observer, &mut events)?;
        match next {
            Next::Done(outcome) => return outcome,
            Next::Again(pause) => sleep(pause, &attempts, is_interrupted)?,
        }
    }
}

/// Tells of events.
///
/// # Errors
/// When that ends the call.
pub(super) fn tell(
    observer: &mut Option<Observer<'_>>,
    events: &mut Vec<Event>,
) -> Result<(), Error> {
    let Some(observer) = observer else { return Ok(()) };
    let is_over = events.drain(..).any(|event| observer.tell(event));
    if is_over { Err(Error::Interrupted) } else { Ok(()) }
}

fn sleep(
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
        thread::sleep(left.min(TICK));
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
    }
}

fn attempt(
    pool: &Arc<Pool<Socket>>,
    attempts: &mut Attempts,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<Response, Stop> {
    let limit = attempts.limit();
    let mut lease = lease(pool, attempts, limit, is_interrupted)?;
    attempts.reuse(lease.connection.is_some());
    if lease.connection.is_none() {
        let patience = Patience { limit, is_interrupted: &mut *is_interrupted };
        lease.connection = Some(dial(attempts.settings(), patience)?);
    }
    ROOM.with(|room| match room.try_borrow_mut() {
        Ok(mut room) => exchange(lease, attempts, &mut room, limit, is_interrupted),
        // Within another call, as in the handler of a signal.
        Err(_) => exchange(lease, attempts, &mut Vec::new(), limit, is_interrupted),
    })
}

/// The right to a connection, waited for in line.
fn lease(
    pool: &Arc<Pool<Socket>>,
    attempts: &Attempts,
    limit: Option<Limit>,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<Lease<Socket>, Stop> {
    let notify = || -> Box<dyn Fn() + Send + Sync> {
        let waiting = thread::current();
        Box::new(move || waiting.unpark())
    };
    let ticket = match pool.request(attempts.needs(), notify) {
        Grant::Lease(lease) => return Ok(lease),
        Grant::Ticket(ticket) => ticket,
    };
    loop {
        if let Some(mut lease) = ticket.take() {
            lease.check(attempts.needs());
            return Ok(lease);
        }
        thread::park_timeout(TICK);
        let is_late = limit.is_some_and(|limit| limit.left().is_zero());
        let stop = match limit {
            _ if is_interrupted() => Stop::Interrupted,
            _ if attempts.is_closed() => Stop::Closed,
            Some(limit) if is_late => Stop::Failed(limit.cause(false)),
            _ => continue,
        };
        ticket.cancel();
        return Err(stop);
    }
}

fn exchange(
    mut lease: Lease<Socket>,
    attempts: &mut Attempts,
    room: &mut Vec<u8>,
    limit: Option<Limit>,
    is_interrupted: &mut dyn FnMut() -> bool,
) -> Result<Response, Stop> {
    room.resize(RECEIVE_BYTES, 0);
    let connection = lease.connection.as_mut().ok_or(Stop::Interrupted)?;
    #[cfg(unix)]
    connection.socket.leave_reactor();
    let request = attempts.request();
    let mut exchange = connection.begin(request)?;
    let mut is_sent = false;
    let mut looked = Instant::now();
    let response = loop {
        if !is_sent {
            is_sent = connection.send(&mut exchange, request, true)?;
        }
        // Where sending is stuck, the answer may be there already.
        let waits = is_sent && wait_for_last_tick(connection, limit);
        match connection.receive_once(&mut exchange, room, waits)?.0 {
            Progress::Done(response) => break response,
            // A server that sends little by little lets no tick pass.
            Progress::More if looked.elapsed() < TICK => {}
            Progress::More | Progress::Waits => {
                if is_interrupted() {
                    return Err(Stop::Interrupted);
                }
                looked = Instant::now();
            }
        }
        if let Some(limit) = limit.filter(|limit| limit.left().is_zero()) {
            return Err(Stop::Failed(limit.cause(true)));
        }
    };
    if connection.may_stay(&exchange, request, &response)
        && attempts.permits_reuse(response.has_surplus)
    {
        lease.keep();
    }
    Ok(response)
}

/// Whether a whole tick is left. Where less is, this waits for as much, or until something arrives.
fn wait_for_last_tick(connection: &Connection<Socket>, limit: Option<Limit>) -> bool {
    let left = limit.map_or(TICK, |limit| limit.left());
    if left < TICK {
        connection.socket.wait_readable(left);
    }
    left >= TICK
}
