//! One connection and the exchange on it, for all drivers: they say when, and wait in between.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustls::ClientConnection;

use ginnel_http1::reuse::IdleState;
use ginnel_http1::{Response, ResponseError, ResponseReader};

use super::Cause;
use super::socket::{SocketIo, is_not_ready};
use super::tls_error::refusal_error;

/// How long a connection may have been idle and still carry a `POST`, which is not repeated when it
/// breaks.
const MAX_IDLE_BEFORE_POST: Duration = Duration::from_secs(5);
/// The largest body that a client takes, as it came and with its coding undone, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 64 << 20;
/// How much is received at once, in bytes.
pub(super) const RECEIVE_BYTES: usize = 64 << 10;
/// How much is received in one turn by all connections of a driver, so that others have theirs, in bytes.
pub(super) const MAX_TURN_BYTES: usize = 1 << 20;

/// One connection.
#[derive(Debug)]
pub(super) struct ApiConnection<S> {
    /// Tells connections apart; no other one ever has it.
    pub number: u64,
    pub socket: S,
    tls: Option<Box<TlsLayers>>,
    idle_since: Instant,
    /// True if the connection leads to this machine, and not through a proxy.
    pub is_local: bool,
}

/// TLS, once or twice: within the connection to a proxy that speaks it there is the server's.
#[derive(Debug)]
pub(super) struct TlsLayers {
    pub to_server: ClientConnection,
    pub to_proxy: Option<ClientConnection>,
    /// What is to be sent.
    outgoing: Vec<u8>,
    /// Whether the server said that it sends no more.
    is_closed: bool,
}

/// A request and its answer on a connection.
#[derive(Debug)]
pub(super) struct HttpExchange {
    sent: usize,
    reader: ResponseReader,
}

/// How far an exchange is.
pub(super) enum ReceiveOutcome {
    /// Complete.
    Complete(Response),
    /// It waits for the server.
    Pending,
    /// There may be more to receive at once.
    More,
}

impl<S: SocketIo> ApiConnection<S> {
    pub fn new(socket: S, tls: Option<TlsLayers>, is_local: bool) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Relaxed);
        let tls = tls.map(Box::new);
        Self { number, socket, tls, idle_since: Instant::now(), is_local }
    }

    /// The same connection on another kind of socket.
    pub fn map_socket<T>(
        self,
        map: impl FnOnce(S) -> io::Result<T>,
    ) -> io::Result<ApiConnection<T>> {
        let Self { number, socket, tls, idle_since, is_local } = self;
        Ok(ApiConnection { number, socket: map(socket)?, tls, idle_since, is_local })
    }

    /// True when the connection was idle for so long that a request that cannot be repeated should
    /// not depend on it.
    pub fn is_stale(&self) -> bool {
        self.idle_since.elapsed() > MAX_IDLE_BEFORE_POST
    }

    /// Marks the beginning of an idle time.
    pub fn mark_idle(&mut self) {
        self.idle_since = Instant::now();
    }

    /// What the server has done since the last exchange; to be asked right before the next.
    pub fn idle_state(&mut self) -> IdleState {
        let Some(tls) = &mut self.tls else { return self.socket.idle_state() };
        let mut buffer = [0; 4096];
        loop {
            // The server may have sent tickets, which are no answer.
            let received = match self.socket.receive(&mut buffer, false) {
                Ok(0) => return IdleState::Closed,
                Ok(count) => buffer.get(..count).unwrap_or_default(),
                Err(error) if is_not_ready(&error) => return IdleState::Quiet,
                Err(_) => return IdleState::Closed,
            };
            let mut has_content = false;
            match tls.decrypt_received(received, &mut |_| has_content = true) {
                Ok(()) if has_content => return IdleState::Surplus,
                Ok(()) if !tls.is_closed => {}
                _ => return IdleState::Closed,
            }
        }
    }

    /// Begins an exchange.
    ///
    /// # Errors
    /// When TLS does not go on.
    pub fn begin_exchange(&mut self, request: &[u8]) -> Result<HttpExchange, Cause> {
        if let Some(tls) = &mut self.tls {
            tls.encrypt_request(request).map_err(Cause::BrokenUnsent)?;
        }
        let reader = ResponseReader::new(MAX_BODY_BYTES);
        Ok(HttpExchange { sent: 0, reader })
    }

    /// Sends what is left of a request, as far as that goes; true when all is sent.
    pub fn send_request(
        &mut self,
        exchange: &mut HttpExchange,
        request: &[u8],
        wait: bool,
    ) -> Result<bool, Cause> {
        let bytes = self.tls.as_ref().map_or(request, |tls| &tls.outgoing);
        while let Some(rest) = bytes.get(exchange.sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.send(rest, wait) {
                Ok(count) => exchange.sent += count,
                Err(error) if is_not_ready(&error) => return Ok(false),
                Err(error) if exchange.sent == 0 => return Err(Cause::BrokenUnsent(error)),
                Err(source) => {
                    return Err(Cause::Broken { place: "while the request was sent", source });
                }
            }
        }
        Ok(true)
    }

    /// Receives what there is of the answer, as far as the budget of the turn goes.
    pub fn receive_response(
        &mut self,
        exchange: &mut HttpExchange,
        buffer: &mut [u8],
        budget_bytes: &mut usize,
    ) -> Result<ReceiveOutcome, Cause> {
        while *budget_bytes > 0 {
            match self.receive_once(exchange, buffer, false)? {
                (ReceiveOutcome::More, count) => *budget_bytes = budget_bytes.saturating_sub(count),
                (progress, _) => return Ok(progress),
            }
        }
        Ok(ReceiveOutcome::More)
    }

    /// Receives once, and says how many bytes; with `wait`, what arrives within a tick.
    pub fn receive_once(
        &mut self,
        exchange: &mut HttpExchange,
        buffer: &mut [u8],
        wait: bool,
    ) -> Result<(ReceiveOutcome, usize), Cause> {
        let received = match self.socket.receive(buffer, wait) {
            Ok(0) => {
                return Ok((
                    ReceiveOutcome::Complete(exchange.finish_response(self.unexpected_end())?),
                    0,
                ));
            }
            Ok(count) => buffer.get(..count).unwrap_or_default(),
            Err(error) if is_not_ready(&error) => return Ok((ReceiveOutcome::Pending, 0)),
            Err(error) => {
                return Ok((ReceiveOutcome::Complete(exchange.finish_response(Some(error))?), 0));
            }
        };
        let response = match &mut self.tls {
            None => exchange.feed_bytes(received)?,
            Some(tls) => tls.feed_exchange(received, exchange)?,
        };
        Ok((response.map_or(ReceiveOutcome::More, ReceiveOutcome::Complete), received.len()))
    }

    /// What is wrong with the end of the connection: TLS says when no more comes, so that nobody on
    /// the way can cut an answer short that lasts until the close.
    fn unexpected_end(&self) -> Option<io::Error> {
        let is_cut = self.tls.as_ref().is_some_and(|tls| !tls.is_closed);
        is_cut.then(|| io::Error::new(io::ErrorKind::UnexpectedEof, "TLS ended without notice"))
    }

    /// Whether another request may follow on this connection, as far as the answer tells.
    pub fn may_stay(&self, exchange: &HttpExchange, request: &[u8], response: &Response) -> bool {
        let length = self.tls.as_ref().map_or(request.len(), |tls| tls.outgoing.len());
        let is_closed = self.tls.as_ref().is_some_and(|tls| tls.is_closed);
        response.keeps_alive && exchange.sent >= length && !is_closed
    }
}

impl HttpExchange {
    /// The same for a response whose body is taken piece by piece.
    pub fn streaming(self) -> Self {
        Self { reader: self.reader.into_streaming(), ..self }
    }

    /// What has come of the body of a success since the last time.
    pub fn take_piece(&mut self) -> Vec<u8> {
        self.reader.take_piece()
    }

    fn feed_bytes(&mut self, bytes: &[u8]) -> Result<Option<Response>, Cause> {
        self.reader.feed(bytes).map_err(invalid_response)
    }

    /// The connection has ended, with an error or without.
    fn finish_response(&mut self, error: Option<io::Error>) -> Result<Response, Cause> {
        let finished = self.reader.finish();
        match (finished, error) {
            (Ok(response), None) => Ok(response),
            (_, Some(source)) if self.reader.is_unbegun() => {
                Err(Cause::Broken { place: "before the response arrived", source })
            }
            (_, Some(source)) => Err(Cause::Broken { place: "within the response", source }),
            (Err(problem), None) => Err(invalid_response(problem)),
        }
    }
}

fn invalid_response(problem: ResponseError) -> Cause {
    match problem {
        ResponseError::LargeBody(_) => Cause::Body(problem.to_string()),
        _ => Cause::Response(problem),
    }
}

impl TlsLayers {
    /// TLS whose handshake is done.
    pub fn new(to_server: ClientConnection, to_proxy: Option<ClientConnection>) -> Self {
        Self { to_server, to_proxy, outgoing: Vec::new(), is_closed: false }
    }

    /// Puts a request into what is to be sent.
    fn encrypt_request(&mut self, request: &[u8]) -> io::Result<()> {
        self.outgoing.clear();
        encrypt_all(&mut self.to_server, request, &mut self.outgoing)?;
        if let Some(to_proxy) = &mut self.to_proxy {
            let inner = std::mem::take(&mut self.outgoing);
            encrypt_all(to_proxy, &inner, &mut self.outgoing)?;
        }
        Ok(())
    }

    fn feed_exchange(
        &mut self,
        received: &[u8],
        exchange: &mut HttpExchange,
    ) -> Result<Option<Response>, Cause> {
        let mut outcome = Ok(None);
        let read = self.decrypt_received(received, &mut |content| {
            if matches!(outcome, Ok(None)) {
                outcome = exchange.feed_bytes(content);
            } else if let Ok(Some(response)) = &mut outcome {
                response.has_surplus = true;
            }
        });
        if let Err(source) = read {
            return outcome?.map_or_else(
                || Err(Cause::Broken { place: "within TLS", source }),
                |response| Ok(Some(response)),
            );
        }
        match outcome {
            Ok(None) if self.is_closed => exchange.finish_response(None).map(Some),
            outcome => outcome,
        }
    }

    /// Takes what was received; `content` is given what it holds.
    fn decrypt_received(
        &mut self,
        received: &[u8],
        content: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        let Some(to_proxy) = &mut self.to_proxy else {
            self.is_closed |= decrypt_all(&mut self.to_server, received, content)?;
            return Ok(());
        };
        let mut inner = Vec::new();
        self.is_closed |=
            decrypt_all(to_proxy, received, &mut |bytes| inner.extend_from_slice(bytes))?;
        self.is_closed |= decrypt_all(&mut self.to_server, &inner, content)?;
        Ok(())
    }
}

/// Encrypts all of it.
fn encrypt_all(tls: &mut ClientConnection, plain: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
    let mut rest = plain;
    while !rest.is_empty() {
        // rustls takes a limited amount at a time.
        let taken = tls.writer().write(rest)?;
        rest = rest.get(taken..).unwrap_or_default();
        while tls.wants_write() {
            tls.write_tls(output)?;
        }
    }
    Ok(())
}

/// Decrypts all of it; true when the other side has said that no more comes.
fn decrypt_all(
    tls: &mut ClientConnection,
    received: &[u8],
    content: &mut dyn FnMut(&[u8]),
) -> io::Result<bool> {
    let mut rest = received;
    loop {
        if !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            tls.process_new_packets().map_err(refusal_error)?;
        }
        loop {
            let mut reader = tls.reader();
            let count = match reader.fill_buf() {
                Ok([]) => return Ok(true),
                Ok(plain) => {
                    content(plain);
                    plain.len()
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            reader.consume(count);
        }
        if rest.is_empty() {
            return Ok(false);
        }
    }
}
