//! Calls of an event loop on its own thread: many exchanges behind one descriptor.
//!
//! The loop watches the descriptor and calls [`Reactor::turn`] when it is readable; that moves what can
//! be moved and tells what became of calls. Nothing here waits: connections are opened on other threads.
//! The watching is edge-triggered, so each receive goes on until nothing is left, the answer is complete,
//! or others want their turn.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use super::attempts::{Attempts, Limit, Next};
use super::connection::{Connection, Exchange, MAX_TURN_BYTES, Progress, RECEIVE_BYTES};
use super::dial::{Patience, Stop, dial};
use super::number_map::NumberMap;
use super::pool::{Grant, Lease, Pool, Ticket};
use super::socket::{Socket, TICK};
use super::{Answer, Cause, Client, Error, Event, EventFilter};
use crate::api::Call;
use crate::http1::Response;

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
    mailbox: Arc<Mailbox>,
    last_call: u64,
    calls: NumberMap<Box<Running>>,
    /// Which call uses a connection.
    using: NumberMap<u64>,
    /// Requests that go out at the end of the turn.
    unsent: Vec<u64>,
    /// Calls that may have more to receive.
    unfinished: Vec<u64>,
    is_in_turn: bool,
    news: Vec<(u64, News)>,
    room: Vec<u8>,
    /// How much may still be received in this turn.
    budget_bytes: usize,
    /// The earliest time at which something is over that began since this was taken.
    earliest: Option<Instant>,
}

/// What can be heard of a call.
#[derive(Debug)]
pub enum News {
    /// Something happened to an attempt.
    Event(Event),
    /// The call is over.
    Finished(Result<Answer, Error>),
}

struct Running {
    pool: Arc<Pool<Socket>>,
    attempts: Attempts,
    limit: Option<Limit>,
    filter: Option<EventFilter>,
    stage: Stage,
}

enum Stage {
    /// In line for a connection.
    Queued(Arc<Ticket<Socket>>),
    /// Until the connection is open; the flag says that nobody waits any more.
    Opening(Lease<Socket>, Arc<AtomicBool>),
    Exchanging {
        lease: Lease<Socket>,
        exchange: Exchange,
        is_sending: bool,
    },
    /// Until then; true when the attempt has its slot of the rate limit.
    Pausing(Instant, bool),
    Over,
}

/// What other threads say.
struct Mailbox {
    waker: Waker,
    has_mail: AtomicBool,
    mail: Mutex<Vec<(u64, Mail)>>,
}

enum Mail {
    /// A connection was opened, or not.
    Opened(Result<Connection<Socket>, Stop>),
    /// It is the call's turn in line.
    Turn,
}

/// That a reactor is told when something arrives on a socket.
#[derive(Debug)]
pub(super) struct Registration {
    reactor: u64,
    registry: Weak<Registry>,
}

impl Registration {
    pub fn end(self, socket: &socket2::Socket) {
        if let Some(registry) = self.registry.upgrade() {
            // A reactor that is told once more ignores it.
            let _ = registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
    }
}

impl Mailbox {
    fn put(&self, call: u64, mail: Mail) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).push((call, mail));
        if !self.has_mail.swap(true, Relaxed) {
            // Without it the mail is read at the next turn.
            let _ = self.waker.wake();
        }
    }

    fn take(&self) -> Vec<(u64, Mail)> {
        if !self.has_mail.load(Relaxed) {
            return Vec::new();
        }
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_mail.store(false, Relaxed);
        std::mem::take(&mut mail)
    }
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
        let (has_mail, mail) = (AtomicBool::new(false), Mutex::default());
        Ok(Self {
            number: NUMBER.fetch_add(1, Relaxed),
            poll,
            registry,
            events: Events::with_capacity(MAX_EVENTS),
            mailbox: Arc::new(Mailbox { waker, has_mail, mail }),
            last_call: 0,
            calls: NumberMap::default(),
            using: NumberMap::default(),
            unsent: Vec::new(),
            unfinished: Vec::new(),
            is_in_turn: false,
            news: Vec::new(),
            room: vec![0; RECEIVE_BYTES],
            budget_bytes: 0,
            earliest: None,
        })
    }

    /// Starts a call, and gives the number that its news will have. What happened at once is in the
    /// news of the next turn.
    ///
    /// # Errors
    /// When the client is closed, or no request can be made of the call.
    pub fn start(
        &mut self,
        client: &Client,
        call: Call,
        filter: Option<EventFilter>,
    ) -> Result<u64, Error> {
        let attempts = client.begin(call)?;
        let pool = client.plain_pool();
        self.last_call += 1;
        let number = self.last_call;
        let stage = Stage::Over;
        let running = Running { pool, attempts, limit: None, filter, stage };
        self.calls.insert(number, Box::new(running));
        self.begin(number, false);
        Ok(number)
    }

    /// Drops a call; it has no news any more.
    pub fn cancel(&mut self, number: u64) {
        if let Some(mut running) = self.calls.remove(&number) {
            self.release(&mut running, None);
            self.news.retain(|(call, _)| *call != number);
        }
    }

    /// Moves what can be moved now. Requests that start until [`Reactor::flush`] go out there.
    pub fn turn(&mut self) -> Vec<(u64, News)> {
        self.is_in_turn = true;
        self.budget_bytes = MAX_TURN_BYTES;
        for number in std::mem::take(&mut self.unfinished) {
            self.receive(number);
        }
        // One call is likely what the wake-up was for: asking which one would cost more.
        if self.using.len() != 1 || !self.receive_only() {
            self.poll();
        }
        for (number, mail) in self.mailbox.take() {
            self.read(number, mail);
        }
        std::mem::take(&mut self.news)
    }

    /// Ends a turn: sends what was started meanwhile.
    pub fn flush(&mut self) -> Vec<(u64, News)> {
        self.is_in_turn = false;
        for number in std::mem::take(&mut self.unsent) {
            self.send(number);
        }
        if !self.unfinished.is_empty() {
            // They have their next turn when the loop comes round.
            let _ = self.mailbox.waker.wake();
        }
        std::mem::take(&mut self.news)
    }

    /// Whether there is news that no turn has told, as of calls that were over at once.
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// When [`Reactor::expire`] is to be called for what began since the last time this was asked.
    pub fn take_earliest(&mut self) -> Option<Instant> {
        self.earliest.take()
    }

    /// Ends what has lasted for too long, and goes on with what has paused for long enough. When it
    /// is to be called again is the earliest time then.
    pub fn expire(&mut self) {
        let now = Instant::now();
        let due = self.calls.iter().filter(|(_, running)| running.is_due(now));
        let mut due: Vec<_> = due.map(|(number, _)| *number).collect();
        // In the order in which they began.
        due.sort_unstable();
        for number in due {
            let Some(running) = self.calls.get(&number) else { continue };
            match (&running.stage, running.limit) {
                (Stage::Pausing(until, has_slot), _) => {
                    let has_slot = *has_slot;
                    if running.attempts.is_closed() {
                        self.finish(number, Err(Error::Closed));
                    } else if *until <= now {
                        self.begin(number, has_slot);
                    }
                }
                (stage, Some(limit)) => {
                    let is_connected = matches!(stage, Stage::Exchanging { .. });
                    self.end(number, Err(limit.cause(is_connected)));
                }
                _ => {}
            }
        }
        self.earliest = self.calls.values().filter_map(|running| running.due(now)).min();
    }

    fn begin(&mut self, number: u64, has_slot: bool) {
        let Some(running) = self.calls.get_mut(&number) else { return };
        if !has_slot {
            match running.attempts.reserve() {
                Ok(None) => {}
                Ok(Some(pause)) => return self.pause(number, pause, true),
                Err(cause) => {
                    let outcome = running.attempts.give_up(cause);
                    return self.finish(number, outcome);
                }
            }
        }
        let begun = match running.attempts.begin() {
            Ok(begun) => begun,
            Err(error) => return self.finish(number, Err(error)),
        };
        if running.filter == Some(EventFilter::All) {
            self.news.push((number, News::Event(begun)));
        }
        running.limit = running.attempts.limit();
        let due = running.limit.map(|limit| limit.at);
        let mailbox = &self.mailbox;
        let notify = || -> Box<dyn Fn() + Send + Sync> {
            let mailbox = mailbox.clone();
            Box::new(move || mailbox.put(number, Mail::Turn))
        };
        let grant = running.pool.request(running.attempts.needs(), notify);
        self.note(due);
        match grant {
            Grant::Lease(lease) => self.connect(number, lease),
            Grant::Ticket(ticket) => self.enter(number, Stage::Queued(ticket)),
        }
    }

    /// Ends a call that has no connection.
    fn finish(&mut self, number: u64, outcome: Result<Answer, Error>) {
        self.calls.remove(&number);
        self.news.push((number, News::Finished(outcome)));
    }

    fn pause(&mut self, number: u64, pause: Duration, has_slot: bool) {
        let end = Instant::now() + pause;
        self.note(Some(end.min(Instant::now() + TICK)));
        self.enter(number, Stage::Pausing(end, has_slot));
    }

    fn note(&mut self, due: Option<Instant>) {
        self.earliest = match (self.earliest, due) {
            (Some(earliest), Some(due)) => Some(earliest.min(due)),
            (earliest, due) => earliest.or(due),
        };
    }

    fn enter(&mut self, number: u64, stage: Stage) {
        if let Some(running) = self.calls.get_mut(&number) {
            running.stage = stage;
        }
    }

    /// Goes on with a connection, which may have to be opened.
    fn connect(&mut self, number: u64, lease: Lease<Socket>) {
        let Some(running) = self.calls.get_mut(&number) else { return };
        running.attempts.reuse(lease.connection.is_some());
        if lease.connection.is_some() {
            return self.exchange(number, lease);
        }
        let (settings, limit) = (running.attempts.settings().clone(), running.limit);
        let (mailbox, is_over) = (self.mailbox.clone(), Arc::new(AtomicBool::new(false)));
        self.enter(number, Stage::Opening(lease, is_over.clone()));
        let open = move || {
            let mut is_interrupted = || is_over.load(Relaxed);
            let opened = dial(&settings, Patience { limit, is_interrupted: &mut is_interrupted });
            mailbox.put(number, Mail::Opened(opened));
        };
        if let Err(error) = thread::Builder::new().name("ginnel-dial".to_owned()).spawn(open) {
            self.end(number, Err(Cause::Connect(error)));
        }
    }

    fn exchange(&mut self, number: u64, mut lease: Lease<Socket>) {
        let Some(running) = self.calls.get_mut(&number) else { return };
        let Some(connection) = &mut lease.connection else { return };
        let begun = watch(self.number, &self.registry, connection)
            .map_err(Cause::BrokenUnsent)
            .and_then(|()| connection.begin(running.attempts.request()));
        let exchange = match begun {
            Ok(exchange) => exchange,
            Err(cause) => return self.end(number, Err(cause)),
        };
        self.using.insert(connection.number, number);
        running.stage = Stage::Exchanging { lease, exchange, is_sending: true };
        if self.is_in_turn {
            self.unsent.push(number);
        } else {
            self.send(number);
        }
    }

    fn send(&mut self, number: u64) {
        let Some(running) = self.calls.get_mut(&number) else { return };
        let Stage::Exchanging { lease, exchange, is_sending } = &mut running.stage else { return };
        let Some(connection) = &mut lease.connection else { return };
        match connection.send(exchange, running.attempts.request(), false) {
            Ok(is_sent) => {
                let interest = match (is_sent, *is_sending) {
                    (true, true) => None,
                    _ => Some(Interest::READABLE | Interest::WRITABLE),
                };
                *is_sending = !is_sent;
                let fd = connection.socket.as_raw_fd();
                let token = token(connection.number);
                let changed = interest
                    .filter(|_| !is_sent)
                    .map(|interest| self.registry.reregister(&mut SourceFd(&fd), token, interest));
                if let Some(Err(error)) = changed {
                    self.end(
                        number,
                        Err(Cause::Broken { place: "while it was sent", source: error }),
                    );
                }
            }
            Err(cause) => self.end(number, Err(cause)),
        }
    }

    /// Receives what there is of an answer; false when nothing has come of it.
    fn receive(&mut self, number: u64) -> bool {
        let Some(running) = self.calls.get_mut(&number) else { return false };
        let Stage::Exchanging { lease, exchange, .. } = &mut running.stage else { return false };
        let Some(connection) = &mut lease.connection else { return false };
        match connection.receive(exchange, &mut self.room, &mut self.budget_bytes) {
            Ok(Progress::Waits) => return false,
            Ok(Progress::More) => self.unfinished.push(number),
            Ok(Progress::Done(response)) => self.end(number, Ok(response)),
            Err(cause) => self.end(number, Err(cause)),
        }
        true
    }

    fn receive_only(&mut self) -> bool {
        let Some(number) = self.using.values().next().copied() else { return false };
        self.receive(number)
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
            let Some(number) = self.using.get(&connection).copied() else { continue };
            let running = self.calls.get(&number).map(|running| &running.stage);
            if is_writable && matches!(running, Some(Stage::Exchanging { is_sending: true, .. })) {
                self.send(number);
            }
            self.receive(number);
        }
    }

    fn read(&mut self, number: u64, mail: Mail) {
        let Some(running) = self.calls.get_mut(&number) else { return };
        match (mail, std::mem::replace(&mut running.stage, Stage::Over)) {
            (Mail::Opened(Ok(connection)), Stage::Opening(mut lease, _)) => {
                lease.connection = Some(connection);
                self.exchange(number, lease);
            }
            (Mail::Opened(Err(Stop::Failed(cause))), Stage::Opening(..)) => {
                self.end(number, Err(cause));
            }
            (Mail::Turn, Stage::Queued(ticket)) => match ticket.take() {
                Some(mut lease) => {
                    lease.check(running.attempts.needs());
                    self.connect(number, lease);
                }
                None if running.attempts.is_closed() => self.finish(number, Err(Error::Closed)),
                None => running.stage = Stage::Queued(ticket),
            },
            // It concerns an attempt that is over.
            (_, stage) => running.stage = stage,
        }
    }

    /// Ends the attempt of a call.
    fn end(&mut self, number: u64, outcome: Result<Response, Cause>) {
        let Some(mut running) = self.calls.remove(&number) else { return };
        self.release(&mut running, outcome.as_ref().ok());
        let mut events = Vec::new();
        let next = running.attempts.end(outcome, running.filter, &mut events);
        self.news.extend(events.into_iter().map(|event| (number, News::Event(event))));
        match next {
            Next::Done(outcome) => self.news.push((number, News::Finished(outcome))),
            Next::Again(pause) => {
                self.calls.insert(number, running);
                self.pause(number, pause, false);
            }
        }
    }

    /// Gives the connection of a call back, or closes it.
    fn release(&mut self, running: &mut Running, response: Option<&Response>) {
        self.leave_connection(running);
        let (lease, exchange) = match std::mem::replace(&mut running.stage, Stage::Over) {
            Stage::Exchanging { lease, exchange, .. } => (lease, exchange),
            Stage::Queued(ticket) => return ticket.cancel(),
            Stage::Opening(_, is_over) => return is_over.store(true, Relaxed),
            Stage::Pausing(..) | Stage::Over => return,
        };
        let Some(response) = response else { return };
        let request = running.attempts.request();
        let may_stay = lease
            .connection
            .as_ref()
            .is_some_and(|connection| connection.may_stay(&exchange, request, response));
        if may_stay && running.attempts.permits_reuse(response.has_surplus) {
            lease.keep();
        }
    }

    fn leave_connection(&mut self, running: &Running) {
        if let Stage::Exchanging { lease: Lease { connection: Some(connection), .. }, .. } =
            &running.stage
        {
            self.using.remove(&connection.number);
        }
    }
}

impl Running {
    /// When it is to be looked at: what pauses now and then, as the client may be closed.
    fn due(&self, now: Instant) -> Option<Instant> {
        match self.stage {
            Stage::Pausing(until, _) => Some(until.min(now + TICK)),
            _ => self.limit.map(|limit| limit.at),
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Pausing(..)) || self.limit.is_some_and(|limit| limit.at <= now)
    }
}

/// Has a reactor told when something arrives on a connection.
fn watch(
    reactor: u64,
    registry: &Arc<Registry>,
    connection: &mut Connection<Socket>,
) -> io::Result<()> {
    let socket = &mut connection.socket;
    if socket.registration.as_ref().is_some_and(|it| it.reactor == reactor) {
        return Ok(());
    }
    socket.leave_reactor();
    let fd = socket.as_raw_fd();
    registry.register(&mut SourceFd(&fd), token(connection.number), Interest::READABLE)?;
    socket.registration = Some(Registration { reactor, registry: Arc::downgrade(registry) });
    Ok(())
}

fn token(connection: u64) -> Token {
    // Connections are numbered from 1, and there are never so many.
    Token(connection as usize)
}
