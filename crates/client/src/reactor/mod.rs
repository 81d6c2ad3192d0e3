//! Calls of an event loop on its own thread: many exchanges behind one descriptor.
//!
//! The loop watches the descriptor and calls [`Reactor::run_turn`] when it is readable; that moves what can
//! be moved and returns what became of calls. Nothing here waits: connections are opened on other threads.
//! The watching is edge-triggered, so each receive goes on until nothing is left, the answer is complete,
//! or others want their turn.

mod call;
mod exchange;
mod inbox;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Registry, Token, Waker};

use ginnel_api::Call;
use ginnel_base::logging::or_debug;

use super::connection::{MAX_TURN_BYTES, RECEIVE_BYTES};
use super::dial::{AttemptError, DialContext, dial_origin};
use super::number_map::NumberMap;
use super::pool::{Checkout, Lease};
use super::socket::{ClientSocket, POLL_INTERVAL};
use super::{ApiResponse, CallUpdate, Cause, Client, Error, EventFilter};
use call::{ActiveCall, CallStage};
use inbox::{ReactorInbox, ReactorMessage};

/// How many sockets are looked at in one turn.
const MAX_EVENTS: usize = 1024;
/// What wakes the reactor itself.
const WAKE: Token = Token(0);

/// The calls of one event loop.
pub struct Reactor {
    number: u64,
    poll: Poll,
    registry: Arc<Registry>,
    events: Events,
    inbox: Arc<ReactorInbox>,
    last_call: u64,
    calls: NumberMap<Box<ActiveCall>>,
    /// Which call uses a connection.
    calls_by_connection: NumberMap<u64>,
    /// Requests that go out at the end of the turn.
    unsent: Vec<u64>,
    /// Calls that may have more to receive.
    unfinished: Vec<u64>,
    is_in_turn: bool,
    updates: Vec<(u64, CallUpdate)>,
    buffer: Vec<u8>,
    /// How much may still be received in this turn.
    budget_bytes: usize,
    /// The earliest time at which something is over that began since this was taken.
    earliest: Option<Instant>,
}

impl AsRawFd for Reactor {
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactor").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl Reactor {
    /// A reactor without calls.
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub fn new() -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let registry = Arc::new(poll.registry().try_clone()?);
        Ok(Self {
            number: NUMBER.fetch_add(1, Relaxed),
            poll,
            registry,
            events: Events::with_capacity(MAX_EVENTS),
            inbox: Arc::new(ReactorInbox::new(waker)),
            last_call: 0,
            calls: NumberMap::default(),
            calls_by_connection: NumberMap::default(),
            unsent: Vec::new(),
            unfinished: Vec::new(),
            is_in_turn: false,
            updates: Vec::new(),
            buffer: vec![0; RECEIVE_BYTES],
            budget_bytes: 0,
            earliest: None,
        })
    }

    /// Starts a call, and gives the number that its news will have. What happened at once is in the
    /// news of the next turn.
    ///
    /// # Errors
    /// When the client is closed, or no request can be made of the call.
    pub fn start_call(
        &mut self,
        client: &Client,
        call: Call,
        filter: Option<EventFilter>,
    ) -> Result<u64, Error> {
        let attempts = client.begin_call(call)?;
        let pool = client.socket_pool();
        self.last_call += 1;
        let number = self.last_call;
        let stage = CallStage::Over;
        let running = ActiveCall { pool, attempts, limit: None, filter, stage };
        self.calls.insert(number, Box::new(running));
        self.begin_attempt(number, false);
        Ok(number)
    }

    /// Drops a call; it has no news any more.
    pub fn cancel_call(&mut self, number: u64) {
        if let Some(mut running) = self.calls.remove(&number) {
            self.release_connection(&mut running, None);
            self.updates.retain(|(call, _)| *call != number);
        }
    }

    /// Moves what can be moved now. Requests that start until [`Reactor::end_turn`] go out there.
    pub fn run_turn(&mut self) -> Vec<(u64, CallUpdate)> {
        self.is_in_turn = true;
        self.budget_bytes = MAX_TURN_BYTES;
        for number in std::mem::take(&mut self.unfinished) {
            self.receive_response(number);
        }
        // One call is likely what the wake-up was for: asking which one would cost more.
        if self.calls_by_connection.len() != 1 || !self.receive_only() {
            self.poll();
        }
        for (number, message) in self.inbox.take_messages() {
            self.handle_message(number, message);
        }
        std::mem::take(&mut self.updates)
    }

    /// Ends a turn: sends what was started meanwhile.
    pub fn end_turn(&mut self) -> Vec<(u64, CallUpdate)> {
        self.is_in_turn = false;
        for number in std::mem::take(&mut self.unsent) {
            self.send_request(number);
        }
        if !self.unfinished.is_empty() {
            // They have their next turn when the loop comes round.
            or_debug!(self.inbox.waker.wake(), "cannot wake the event loop");
        }
        std::mem::take(&mut self.updates)
    }

    /// Whether there is news that no turn has told, as of calls that were over at once.
    pub fn has_updates(&self) -> bool {
        !self.updates.is_empty()
    }

    /// When [`Reactor::expire_calls`] is to be called for what began since the last time this was asked.
    pub fn take_earliest(&mut self) -> Option<Instant> {
        self.earliest.take()
    }

    /// Ends what has lasted for too long, and goes on with what has paused for long enough. When it
    /// is to be called again is the earliest time then.
    pub fn expire_calls(&mut self) {
        let now = Instant::now();
        let due = self.calls.iter().filter(|(_, running)| running.is_due(now));
        let mut due: Vec<_> = due.map(|(number, _)| *number).collect();
        // In the order in which they began.
        due.sort_unstable();
        for number in due {
            let Some(running) = self.calls.get(&number) else { continue };
            match (&running.stage, running.limit) {
                (CallStage::Pausing(until, has_slot), _) => {
                    let has_slot = *has_slot;
                    if running.attempts.is_closed() {
                        self.finish_call(number, Err(Error::Closed));
                    } else if *until <= now {
                        self.begin_attempt(number, has_slot);
                    }
                }
                (stage, Some(limit)) => {
                    let is_connected = matches!(stage, CallStage::Exchanging { .. });
                    self.end_attempt(number, Err(limit.timeout_cause(is_connected)));
                }
                _ => {}
            }
        }
        self.earliest = self.calls.values().filter_map(|running| running.due_time(now)).min();
    }

    fn begin_attempt(&mut self, number: u64, has_slot: bool) {
        let Some(running) = self.calls.get_mut(&number) else { return };
        if !has_slot {
            match running.attempts.reserve_slot() {
                Ok(None) => {}
                Ok(Some(pause)) => return self.pause_call(number, pause, true),
                Err(cause) => {
                    let outcome = running.attempts.fail_call(cause);
                    return self.finish_call(number, outcome);
                }
            }
        }
        let started = match running.attempts.begin_attempt() {
            Ok(started) => started,
            Err(error) => return self.finish_call(number, Err(error)),
        };
        if running.filter == Some(EventFilter::All) {
            self.updates.push((number, CallUpdate::Event(started)));
        }
        running.limit = running.attempts.time_limit();
        let due = running.limit.map(|limit| limit.time);
        let inbox = &self.inbox;
        let notify = || -> Box<dyn Fn() + Send + Sync> {
            let inbox = inbox.clone();
            Box::new(move || inbox.push_message(number, ReactorMessage::WaiterState))
        };
        let grant = running.pool.checkout(running.attempts.reuse_requirements(), notify);
        self.schedule_expiry(due);
        match grant {
            Checkout::Lease(lease) => self.connect_call(number, lease),
            Checkout::Waiter(ticket) => self.enter_stage(number, CallStage::Queued(ticket)),
        }
    }

    /// Ends a call that has no connection.
    fn finish_call(&mut self, number: u64, outcome: Result<ApiResponse, Error>) {
        self.calls.remove(&number);
        self.updates.push((number, CallUpdate::Finished(outcome)));
    }

    fn pause_call(&mut self, number: u64, pause: Duration, has_slot: bool) {
        let end = Instant::now() + pause;
        self.schedule_expiry(Some(end.min(Instant::now() + POLL_INTERVAL)));
        self.enter_stage(number, CallStage::Pausing(end, has_slot));
    }

    fn schedule_expiry(&mut self, due: Option<Instant>) {
        self.earliest = match (self.earliest, due) {
            (Some(earliest), Some(due)) => Some(earliest.min(due)),
            (earliest, due) => earliest.or(due),
        };
    }

    fn enter_stage(&mut self, number: u64, stage: CallStage) {
        if let Some(running) = self.calls.get_mut(&number) {
            running.stage = stage;
        }
    }

    /// Goes on with a connection, which may have to be opened.
    fn connect_call(&mut self, number: u64, lease: Lease<ClientSocket>) {
        let Some(running) = self.calls.get_mut(&number) else { return };
        running.attempts.record_reuse(lease.connection.is_some());
        if lease.connection.is_some() {
            return self.start_exchange(number, lease);
        }
        let (settings, limit) = (running.attempts.settings().clone(), running.limit);
        let (inbox, is_over) = (self.inbox.clone(), Arc::new(AtomicBool::new(false)));
        self.enter_stage(number, CallStage::Opening(lease, is_over.clone()));
        let open = move || {
            let mut is_interrupted = || is_over.load(Relaxed);
            let opened =
                dial_origin(&settings, DialContext { limit, is_interrupted: &mut is_interrupted });
            inbox.push_message(number, ReactorMessage::Opened(opened));
        };
        if let Err(error) = thread::Builder::new().name("ginnel-dial".to_owned()).spawn(open) {
            self.end_attempt(number, Err(Cause::Connect(error)));
        }
    }

    fn poll(&mut self) {
        // What cannot be asked now is asked at the next turn.
        if self.poll.poll(&mut self.events, Some(Duration::ZERO)).is_err() {
            return;
        }
        let ready: Vec<_> = self
            .events
            .iter()
            .filter(|event| event.token() != WAKE)
            .map(|event| (event.token().0 as u64, event.is_writable()))
            .collect();
        for (connection, is_writable) in ready {
            let Some(number) = self.calls_by_connection.get(&connection).copied() else { continue };
            let running = self.calls.get(&number).map(|running| &running.stage);
            if is_writable
                && matches!(running, Some(CallStage::Exchanging { is_sending: true, .. }))
            {
                self.send_request(number);
            }
            self.receive_response(number);
        }
    }

    fn handle_message(&mut self, number: u64, message: ReactorMessage) {
        let Some(running) = self.calls.get_mut(&number) else { return };
        match (message, std::mem::replace(&mut running.stage, CallStage::Over)) {
            (ReactorMessage::Opened(Ok(connection)), CallStage::Opening(mut lease, _)) => {
                lease.connection = Some(connection);
                self.start_exchange(number, lease);
            }
            (ReactorMessage::Opened(Err(AttemptError::Failed(cause))), CallStage::Opening(..)) => {
                self.end_attempt(number, Err(cause));
            }
            (ReactorMessage::WaiterState, CallStage::Queued(ticket)) => match ticket.take_lease() {
                Some(mut lease) => {
                    lease.validate_connection(running.attempts.reuse_requirements());
                    self.connect_call(number, lease);
                }
                None if running.attempts.is_closed() => {
                    self.finish_call(number, Err(Error::Closed))
                }
                None => running.stage = CallStage::Queued(ticket),
            },
            // It concerns an attempt that is over.
            (_, stage) => running.stage = stage,
        }
    }
}
