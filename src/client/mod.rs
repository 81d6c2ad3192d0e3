//! Sends operations: configuration, transport, retries, pages, errors.
//!
//! One call runs through these files: `options.rs` has made [`Settings`] of what the user gave,
//! `api::encode` makes a [`Call`] of an operation, `attempts.rs` sends it until an
//! answer is worth returning, `pool.rs` lends it a connection (`link.rs`), and `answer.rs` says what
//! the answer means. What errors show of it goes through `redaction.rs`.
//!
//! # Transport, and why not reqwest alone
//!
//! A direct connection is spoken to with hyper's HTTP/1.1 connection, polled inside the call that
//! uses it (`link.rs`), so that no request waits for another task. reqwest carries what goes through
//! a proxy: it knows HTTP and SOCKS proxies, their authentication, and the settings of the system.
//! `docs/benchmarks.md` has the figures of both; reqwest alone misses the goals for one thread, for
//! eight threads and for HTTPS.
//!
//! # Blocking calls and asynchronous ones
//!
//! A blocking call drives a runtime of its own on the calling thread (`lanes.rs`): nothing wakes
//! another thread. Asynchronous calls of the Python bindings run on one network thread
//! (`network.rs`). Either way a process that forks starts anew in the child (`fork.rs`).

mod answer;
mod attempts;
mod error;
mod event;
mod fork;
mod lanes;
mod link;
mod network;
mod options;
mod pool;
mod proxied;
mod redaction;
mod retry;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::api::{self, Call, Operation};

pub use answer::{Answer, StatusError};
pub use error::{Cause, ConfigError, Error};
pub use event::{Event, Observer, What};
pub use link::loopback_only;
pub use network::Task;
pub use options::{Api, Options, Settings};

use fork::PerProcess;
use lanes::Lanes;
use pool::Pool;

/// A client of one API at one address. Clones share connections.
#[derive(Clone)]
pub struct Client {
    settings: Arc<Settings>,
    shared: Arc<Shared>,
}

/// What clones of a client share.
struct Shared {
    closed: AtomicBool,
    /// Connections of blocking calls, each with the runtime that drives it.
    lanes: PerProcess<Lanes>,
    /// Connections of calls on a runtime of the caller's, or on the network thread.
    pool: PerProcess<Pool>,
}

impl Client {
    /// A client for what the options say; opens no connection yet.
    ///
    /// # Errors
    /// When an option is missing or unusable; the message names it.
    pub fn new(options: Options) -> Result<Self, ConfigError> {
        let settings = Arc::new(Settings::new(options)?);
        let shared = Shared {
            closed: AtomicBool::new(false),
            lanes: PerProcess::new(Lanes::default),
            pool: PerProcess::new(Pool::default),
        };
        Ok(Self { settings, shared: Arc::new(shared) })
    }

    /// A client with other options for the same address, which shares connections with this one.
    ///
    /// # Errors
    /// When an option is unusable, or names another address.
    pub fn with_options(&self, options: Options) -> Result<Self, ConfigError> {
        let mut settings = Settings::new(options)?;
        if settings.origin != self.settings.origin {
            return Err(ConfigError::new("base_url", "cannot change: make another client"));
        }
        settings.reuse_ban = self.settings.reuse_ban.clone();
        Ok(Self { settings: Arc::new(settings), shared: Arc::clone(&self.shared) })
    }

    /// The same client with another deadline.
    pub fn within(&self, deadline: Duration) -> Self {
        let mut settings = Settings::clone(&self.settings);
        settings.deadline = Some(deadline);
        Self { settings: Arc::new(settings), shared: Arc::clone(&self.shared) }
    }

    /// The same client with more headers, in place of those of their names.
    ///
    /// # Errors
    /// When a header cannot be sent.
    pub fn with_headers(&self, headers: &[(String, String)]) -> Result<Self, ConfigError> {
        let mut settings = Settings::clone(&self.settings);
        settings.add_headers(headers)?;
        Ok(Self { settings: Arc::new(settings), shared: Arc::clone(&self.shared) })
    }

    /// What the client was made with.
    pub fn settings(&self) -> &Settings {
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
        let call = api::encode(operation).map_err(Error::Malformed)?;
        let answer = self.send(call).await?.accept()?;
        answer.decode()
    }

    /// Sends a request on the runtime of the caller; any status is an answer.
    ///
    /// # Errors
    /// When no answer arrives within the deadline, retries included.
    pub async fn send(&self, call: Call) -> Result<Answer, Error> {
        self.send_observed(call, None).await
    }

    /// Sends a request as [`Client::send`], and tells the observer what happens to it.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_observed(
        &self,
        call: Call,
        observer: Option<&Observer<'_>>,
    ) -> Result<Answer, Error> {
        self.check_open()?;
        attempts::run(&self.settings, self.shared.pool.current(), call, observer).await
    }

    /// Sends a request from a thread that may wait. `interrupted` is asked every 50 ms, and ends the
    /// wait with `Ok(None)` when it says so; the request is then dropped.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn send_blocking(
        &self,
        call: Call,
        observer: Option<&Observer<'_>>,
        interrupted: impl FnMut() -> bool + Send,
    ) -> Result<Option<Answer>, Error> {
        self.check_open()?;
        let lanes = self.shared.lanes.current();
        let run = async |pool: &Pool| attempts::run(&self.settings, pool, call, observer).await;
        let outcome = lanes.run(run, interrupted);
        if self.is_closed() {
            lanes.clear();
        }
        outcome
    }

    /// Sends a request on the network thread, which hands the answer to `done`. Aborting the task
    /// drops the request; `done` is then not called.
    ///
    /// # Errors
    /// When the client is closed, or the network thread cannot be started.
    pub fn send_in_background(
        &self,
        call: Call,
        observer: Option<Box<Observer<'static>>>,
        done: impl FnOnce(Result<Answer, Error>) + Send + 'static,
    ) -> Result<Task, Error> {
        self.check_open()?;
        let client = self.clone();
        network::spawn(async move { done(client.send_observed(call, observer.as_deref()).await) })
    }

    /// The path and query of a page's address, after making sure that it is at this client's
    /// address: the key goes nowhere else.
    ///
    /// # Errors
    /// When the address is elsewhere or not an address; the message shows it.
    pub fn page_target(&self, next_page_uri: &str) -> Result<String, Error> {
        self.settings.origin.target_of(next_page_uri).ok_or_else(|| Error::ForeignPage {
            uri: self.settings.redacted(next_page_uri),
            origin: self.settings.origin.to_string(),
        })
    }

    /// Closes the idle connections; calls fail from now on. Closing twice is fine.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.lanes.current().clear();
        self.shared.pool.current().clear();
    }

    /// True after [`Client::close`], on any clone.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }
}
