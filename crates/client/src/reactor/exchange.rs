//! The exchange of a call: its request goes out, its response comes in, its connection goes back.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use ginnel_http1::Response;

use super::Reactor;
use super::call::{ActiveCall, CallStage};
use crate::attempts::RetryDecision;
use crate::connection::{ApiConnection, ReceiveOutcome};
use crate::pool::Lease;
use crate::registration::ReactorRegistration;
use crate::socket::ClientSocket;
use crate::{CallUpdate, Cause};

impl Reactor {
    pub(super) fn start_exchange(&mut self, number: u64, mut lease: Lease<ClientSocket>) {
        let Some(running) = self.calls.get_mut(&number) else { return };
        let Some(connection) = &mut lease.connection else { return };
        let started = watch_connection(self.number, &self.registry, connection)
            .map_err(Cause::BrokenUnsent)
            .and_then(|()| connection.begin_exchange(running.attempts.request_bytes()));
        let exchange = match started {
            Ok(exchange) => exchange,
            Err(cause) => return self.end_attempt(number, Err(cause)),
        };
        self.calls_by_connection.insert(connection.number, number);
        running.stage = CallStage::Exchanging { lease, exchange, is_sending: true };
        if self.is_in_turn {
            self.unsent.push(number);
        } else {
            self.send_request(number);
        }
    }

    pub(super) fn send_request(&mut self, number: u64) {
        let Some(running) = self.calls.get_mut(&number) else { return };
        let CallStage::Exchanging { lease, exchange, is_sending } = &mut running.stage else {
            return;
        };
        let Some(connection) = &mut lease.connection else { return };
        match connection.send_request(exchange, running.attempts.request_bytes(), false) {
            Ok(is_sent) => {
                let interest = match (is_sent, *is_sending) {
                    (true, true) => None,
                    _ => Some(Interest::READABLE | Interest::WRITABLE),
                };
                *is_sending = !is_sent;
                let fd = connection.socket.as_raw_fd();
                let token = connection_token(connection.number);
                let changed = interest
                    .filter(|_| !is_sent)
                    .map(|interest| self.registry.reregister(&mut SourceFd(&fd), token, interest));
                if let Some(Err(error)) = changed {
                    self.end_attempt(
                        number,
                        Err(Cause::Broken { place: "while it was sent", source: error }),
                    );
                }
            }
            Err(cause) => self.end_attempt(number, Err(cause)),
        }
    }

    /// Receives what there is of an answer; false when nothing has come of it.
    pub(super) fn receive_response(&mut self, number: u64) -> bool {
        let Some(running) = self.calls.get_mut(&number) else { return false };
        let CallStage::Exchanging { lease, exchange, .. } = &mut running.stage else {
            return false;
        };
        let Some(connection) = &mut lease.connection else { return false };
        match connection.receive_response(exchange, &mut self.buffer, &mut self.budget_bytes) {
            Ok(ReceiveOutcome::Pending) => return false,
            Ok(ReceiveOutcome::More) => self.unfinished.push(number),
            Ok(ReceiveOutcome::Complete(response)) => self.end_attempt(number, Ok(response)),
            Err(cause) => self.end_attempt(number, Err(cause)),
        }
        true
    }

    pub(super) fn receive_only(&mut self) -> bool {
        let Some(number) = self.calls_by_connection.values().next().copied() else { return false };
        self.receive_response(number)
    }

    /// Ends the attempt of a call.
    pub(super) fn end_attempt(&mut self, number: u64, outcome: Result<Response, Cause>) {
        let Some(mut running) = self.calls.remove(&number) else { return };
        self.release_connection(&mut running, outcome.as_ref().ok());
        let mut events = Vec::new();
        let next = running.attempts.end_attempt(outcome, running.filter, &mut events);
        self.updates.extend(events.into_iter().map(|event| (number, CallUpdate::Event(event))));
        match next {
            RetryDecision::Done(outcome) => {
                self.updates.push((number, CallUpdate::Finished(outcome)))
            }
            RetryDecision::Retry(pause) => {
                self.calls.insert(number, running);
                self.pause_call(number, pause, false);
            }
        }
    }

    /// Gives the connection of a call back, or closes it.
    pub(super) fn release_connection(
        &mut self,
        running: &mut ActiveCall,
        response: Option<&Response>,
    ) {
        self.leave_connection(running);
        let (lease, exchange) = match std::mem::replace(&mut running.stage, CallStage::Over) {
            CallStage::Exchanging { lease, exchange, .. } => (lease, exchange),
            CallStage::Queued(ticket) => return ticket.cancel(),
            CallStage::Opening(_, is_over) => return is_over.store(true, Relaxed),
            CallStage::Pausing(..) | CallStage::Over => return,
        };
        let Some(response) = response else { return };
        let request = running.attempts.request_bytes();
        let may_stay = lease
            .connection
            .as_ref()
            .is_some_and(|connection| connection.may_stay(&exchange, request, response));
        if may_stay && running.attempts.permits_reuse(response.has_surplus) {
            lease.retain_connection();
        }
    }

    pub(super) fn leave_connection(&mut self, running: &ActiveCall) {
        if let CallStage::Exchanging { lease: Lease { connection: Some(connection), .. }, .. } =
            &running.stage
        {
            self.calls_by_connection.remove(&connection.number);
        }
    }
}

/// Has a reactor told when something arrives on a connection.
fn watch_connection(
    reactor: u64,
    registry: &Arc<Registry>,
    connection: &mut ApiConnection<ClientSocket>,
) -> io::Result<()> {
    let socket = &mut connection.socket;
    if socket.registration.as_ref().is_some_and(|it| it.reactor == reactor) {
        return Ok(());
    }
    socket.leave_reactor();
    let fd = socket.as_raw_fd();
    registry.register(
        &mut SourceFd(&fd),
        connection_token(connection.number),
        Interest::READABLE,
    )?;
    socket.registration = Some(ReactorRegistration { reactor, registry: Arc::downgrade(registry) });
    Ok(())
}

fn connection_token(connection: u64) -> Token {
    // Connections are numbered from 1, and there are never so many.
    Token(connection as usize)
}
