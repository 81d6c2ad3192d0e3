//! Sends operations: configuration, transport, retries, pages, errors.
//!
//! One call runs through these files: `options.rs` has made [`ClientSettings`] of what the user gave,
//! [`ginnel_api::encode_operation`] makes a [`Call`] of an operation, `attempts.rs` sends it until an
//! answer is worth returning, `pool.rs` lends it a connection (`connection.rs`), and `response.rs` says what
//! the answer means. What errors show of it goes through `redaction.rs`.
//!
//! # One core, three drivers
//!
//! What a call does is plain state, without I/O: `request.rs` makes its bytes, `attempts.rs` counts its
//! attempts and decides what follows each, `pool.rs` knows the connections and who waits for one, and
//! `http1` reads answers. `connection.rs` moves the bytes of one exchange, over TLS or not, and
//! `dial.rs` opens connections, through a proxy (`ginnel_net::proxy`) or not. Three drivers wait for that:
//!
//! - `blocking.rs` on the thread of the caller, with a socket's own time limits;
//! - `reactor` on the thread of an event loop, which watches one descriptor for all calls;
//! - `on_tokio.rs` on a runtime of tokio, for callers in Rust, and for event loops that cannot watch a
//!   descriptor (`network.rs`).
//!
//! So no way has other limits, retries or codings than another. A process that forks starts anew in the
//! child (`crates/base/src/fork.rs`).
//!
//! # Why neither hyper nor reqwest
//!
//! Both need a runtime that a blocking caller would have to drive and an event loop would have to be
//! woken from. Measured in one run (`docs/benchmarks.md`), that is a third of a call with one thread and
//! half of it with one call in flight on asyncio, and retries inside a pool are attempts that nobody
//! counts. Proxies take 570 lines (`ginnel_net::proxy`). Where a runtime runs anyway, `ginnel_net::OutboundClient` uses reqwest:
//! for the requests of policies and logins, for ACME and event deliveries, and for the files of the `ngrok` command.
//!
//! # Invariants
//!
//! - Neither the service nor the agent is needed: the client works with any server that implements the APIs.
//! - The core does no I/O; only the drivers, `connection.rs` and `dial.rs` do.

mod attempts;
mod base_url;
mod blocking;
mod config_error;
mod connection;
mod dial;
mod error;
mod event;
mod headers;
mod network;
pub mod number_map;
mod on_tokio;
mod options;
mod pool;
mod proxy;
mod query;
mod rate;
#[cfg(unix)]
mod reactor;
pub mod redaction;
#[cfg(unix)]
mod registration;
mod request;
mod response;
mod retry;
mod settings;
mod socket;
mod time_limit;
mod tls;
mod tls_error;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use ginnel_api::{self as api, Call, Operation};
use ginnel_base::fork::PerProcess;

pub use config_error::ConfigError;
pub use error::{Cause, Error};
pub use event::{CallEvent, CallEventKind, CallUpdate, EventFilter, Observer};
pub use ginnel_net::loopback_only;
pub use ginnel_net::proxy::ProxyError;
pub use network::Task;
pub use options::{Api, ClientCert, ClientOptions, OptionChanges};
#[cfg(unix)]
pub use reactor::Reactor;
pub use response::{ApiResponse, RecordedResponse, StatusError};
pub use settings::ClientSettings;

use attempts::Attempts;
use pool::ConnectionPool;
use socket::ClientSocket;

/// Told what happens to a call in the background.
type BackgroundObserver = dyn FnMut(CallEvent) -> ControlFlow<()> + Send;

/// A client of one API at one address. Clones share connections.
#[derive(Clone)]
pub struct Client {
    settings: Arc<ClientSettings>,
    shared: Arc<ClientInner>,
}

/// What clones of a client share.
struct ClientInner {
    closed: Arc<AtomicBool>,
    /// Connections of blocking calls, and of those of event loops.
    sockets: PerProcess<OnceLock<Arc<ConnectionPool<ClientSocket>>>>,
    /// Connections of calls on a runtime of tokio.
    tokio: PerProcess<OnceLock<Arc<ConnectionPool<TcpStream>>>>,
}

impl Client {
    /// A client for what the options say; opens no connection yet.
    ///
    /// # Errors
    /// When an option is missing or unusable; the message names it.
    pub fn new(options: ClientOptions) -> Result<Self, ConfigError> {
        let settings = Arc::new(ClientSettings::new(options)?);
        let shared = ClientInner {
            closed: Arc::default(),
            sockets: PerProcess::new(OnceLock::new),
            tokio: PerProcess::new(OnceLock::new),
        };
        Ok(Self { settings, shared: Arc::new(shared) })
    }

    /// A client with other options for the same address, which shares connections with this one.
    ///
    /// # Errors
    /// When a changed option is unusable.
    pub fn with_options(&self, changes: OptionChanges) -> Result<Self, ConfigError> {
        let settings = self.settings.with_options(changes)?;
        Ok(Self { settings: Arc::new(settings), shared: Arc::clone(&self.shared) })
    }

    /// The same client with another deadline.
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        let mut settings = ClientSettings::clone(&self.settings);
        settings.deadline = Some(deadline);
        Self { settings: Arc::new(settings), shared: Arc::clone(&self.shared) }
    }

    /// The same client with more headers, in place of those of their names.
    ///
    /// # Errors
    /// When a header cannot be sent.
    pub fn with_headers(&self, headers: &[(String, String)]) -> Result<Self, ConfigError> {
        let mut settings = ClientSettings::clone(&self.settings);
        settings.add_headers(headers)?;
        Ok(Self { settings: Arc::new(settings), shared: Arc::clone(&self.shared) })
    }

    /// What the client was made with.
    pub fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    /// Performs an operation on the runtime of the caller.
    ///
    /// # Errors
    /// When the arguments are malformed, when no answer arrives, or when the answer is an error.
    pub async fn call<O: Operation>(&self, operation: &O) -> Result<O::Output, Error>
    where
        O::Output: DeserializeOwned,
    {
        let call = api::encode_operation(operation).map_err(Error::Malformed)?;
        let answer = self.send(call).await?.error_for_status()?;
        answer.decode()
    }

    /// Sends a request on the runtime of the caller; any status is an answer.
    ///
    /// # Errors
    /// When no answer arrives within the deadline, retries included.
    pub async fn send(&self, call: Call) -> Result<ApiResponse, Error> {
        self.send_observed(call, None).await
    }

    /// Sends a request as [`Client::send`], and tells the observer what happens to it.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_observed(
        &self,
        call: Call,
        observer: Option<Observer<'_>>,
    ) -> Result<ApiResponse, Error> {
        let attempts = self.begin_call(call)?;
        on_tokio::run_call(&self.tokio_pool(), attempts, observer).await
    }

    /// Sends a request from a thread that may wait. `interrupted` is asked every 50 ms, and ends the
    /// wait with `Ok(None)` when it says so; the request is then dropped.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn send_blocking(
        &self,
        call: Call,
        observer: Option<Observer<'_>>,
        mut interrupted: impl FnMut() -> bool,
    ) -> Result<Option<ApiResponse>, Error> {
        let attempts = self.begin_call(call)?;
        let pool = self.socket_pool();
        match blocking::run_call(&pool, attempts, observer, &mut interrupted, None) {
            Ok(answer) => Ok(Some(answer)),
            Err(Error::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a request from a thread that may wait, and hands the body of a success to `sink` piece by
    /// piece, as it came. The timeout of an attempt is the time without any progress. `sink` ends the call
    /// by returning false.
    ///
    /// # Errors
    /// As [`Client::send`], when the status is not one of success, and [`Error::Interrupted`] when `sink`
    /// has ended it.
    pub fn download(&self, call: Call, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Error> {
        let attempts = self.begin_call(call)?;
        let pool = self.socket_pool();
        blocking::run_call(&pool, attempts, None, &mut || false, Some(sink))?
            .error_for_status()
            .map(drop)
    }

    /// Sends a request on the network thread, which hands the answer to `done`. Aborting the task
    /// drops the request; `done` is then not called.
    ///
    /// # Errors
    /// When the client is closed, or the network thread cannot be started.
    pub fn send_in_background(
        &self,
        call: Call,
        observer: Option<(EventFilter, Box<BackgroundObserver>)>,
        done: impl FnOnce(Result<ApiResponse, Error>) + Send + 'static,
    ) -> Result<Task, Error> {
        self.check_open()?;
        let client = self.clone();
        network::spawn_on_network(async move {
            let (filter, mut on_event) = observer.unzip();
            let on_event = on_event.as_deref_mut();
            let observer = filter.zip(on_event);
            let observer = observer.map(|(filter, on_event)| Observer { filter, on_event });
            done(client.send_observed(call, observer).await);
        })
    }

    /// The path and query of a page's address, after making sure that it is at this client's
    /// address: the key goes nowhere else. Addresses may be relative to that of `list`, the target
    /// of the request that was answered with this one.
    ///
    /// # Errors
    /// When the address is elsewhere or not an address; the message shows it.
    pub fn page_target(&self, next_page_uri: &str, list: &str) -> Result<String, Error> {
        self.settings.origin.target_of(next_page_uri, list).ok_or_else(|| Error::ForeignPage {
            uri: self.settings.redact_text(next_page_uri),
            origin: self.settings.origin.to_string(),
        })
    }

    /// Closes the idle connections; calls fail from now on. Closing twice is fine.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.socket_pool().close();
        self.tokio_pool().close();
    }

    /// True after [`Client::close`], on any clone.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// A call as it is sent, with what the options append to its query. Doing it again changes nothing.
    pub fn complete_call(&self, mut call: Call) -> Call {
        self.settings.append_query(&mut call.target);
        call
    }

    /// The answer to a call that was recorded; nothing is sent.
    ///
    /// # Errors
    /// When the client is closed, or no request can be made of the call.
    pub fn replay_response(
        &self,
        call: Call,
        recorded: RecordedResponse,
        notify: impl FnMut(CallEvent),
    ) -> Result<ApiResponse, Error> {
        self.begin_call(call)?.replay_response(recorded, notify)
    }

    fn begin_call(&self, call: Call) -> Result<Attempts, Error> {
        self.check_open()?;
        let call = self.complete_call(call);
        Attempts::new(self.settings.clone(), call, self.shared.closed.clone())
    }

    fn socket_pool(&self) -> Arc<ConnectionPool<ClientSocket>> {
        let make = || ConnectionPool::new(self.settings.max_connections);
        self.shared.sockets.current().get_or_init(make).clone()
    }

    fn tokio_pool(&self) -> Arc<ConnectionPool<TcpStream>> {
        let make = || ConnectionPool::new(self.settings.max_connections);
        self.shared.tokio.current().get_or_init(make).clone()
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }
}
