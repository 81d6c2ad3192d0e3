//! Connections to the server, which one thread carries, and what is sent over them.
//!
//! Whoever waits for a response may do so on any thread but those that serve: readers wait on threads
//! for blocking work, changes are made by the thread that writes.

use std::collections::HashMap;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_postgres::config::Host as ServerHost;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Statement};

use ginnel_base::address::{Host, HostPort};
use ginnel_base::thread_runtime::ThreadRuntime;
use ginnel_net::{DialRole, PrivateSocket, Shutdown, ShutdownPhase, is_loopback_only, permit_host};

use super::error::ServerError;
use super::options::{PostgresOptions, TlsMode};
use super::tls::PostgresTls;
use crate::{StoreError, StoreResult};

/// How long a response may take: longer than the server takes for a statement at most, so that the server
/// says why.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(12);

/// Where connections are made.
#[derive(Clone)]
pub(super) struct Server(Arc<ServerState>);

struct ServerState {
    options: PostgresOptions,
    tls: Option<PostgresTls>,
    /// The sockets of the database, which no tunnel may lead to.
    _sockets: Vec<PrivateSocket>,
    runtime: ThreadRuntime,
    /// Forced once no response is waited for any more.
    closing: Shutdown,
}

/// Returns the sockets of a database that is reached by folders.
#[cfg(unix)]
fn private_sockets(config: &Config) -> Vec<PrivateSocket> {
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let folders = config.get_hosts().iter().filter_map(|host| match host {
        ServerHost::Unix(folder) => Some(folder),
        ServerHost::Tcp(_) => None,
    });
    folders.map(|folder| PrivateSocket::new(folder.join(format!(".s.PGSQL.{port}")))).collect()
}

#[cfg(not(unix))]
fn private_sockets(_: &Config) -> Vec<PrivateSocket> {
    Vec::new()
}

impl Server {
    /// # Errors
    /// When the certificates to trust cannot be read, or the system gives no thread.
    pub(super) fn new(options: PostgresOptions) -> StoreResult<Self> {
        let tls = match options.tls {
            TlsMode::Disable => None,
            TlsMode::VerifyFull => Some(PostgresTls::new(&options)?),
        };
        let runtime = ThreadRuntime::start("ginnel-postgres")
            .map_err(|source| StoreError::File { path: "database thread".into(), source })?;
        let (closing, sockets) = (Shutdown::default(), private_sockets(&options.config));
        Ok(Self(Arc::new(ServerState { options, tls, _sockets: sockets, runtime, closing })))
    }

    /// Makes a connection, with these settings.
    pub(super) fn connect(&self, settings: &str) -> Result<ServerSession, ServerError> {
        self.connect_with(settings, RESPONSE_TIMEOUT, |_| {})
    }

    /// As [`Server::connect`], within this time.
    pub(super) fn connect_within(
        &self,
        settings: &str,
        limit: Duration,
    ) -> Result<ServerSession, ServerError> {
        self.connect_with(settings, limit, |_| {})
    }

    /// As [`Server::connect`]; the payloads of notifications are handed over as they come.
    pub(super) fn connect_listening(
        &self,
        settings: &str,
        notified: impl Fn(&str) + Send + 'static,
    ) -> Result<ServerSession, ServerError> {
        self.connect_with(settings, RESPONSE_TIMEOUT, notified)
    }

    fn connect_with(
        &self,
        settings: &str,
        limit: Duration,
        notified: impl Fn(&str) + Send + 'static,
    ) -> Result<ServerSession, ServerError> {
        let connecting = async {
            let config = &self.0.options.config;
            permit_hosts(config).await?;
            let spawned = &self.0.runtime;
            let client = match self.0.tls.clone() {
                Some(tls) => {
                    let (client, connection) = config.connect(tls).await?;
                    spawned.handle().spawn(drive_connection(connection, notified));
                    client
                }
                None => {
                    let (client, connection) = config.connect(NoTls).await?;
                    spawned.handle().spawn(drive_connection(connection, notified));
                    client
                }
            };
            client.batch_execute(settings).await?;
            Ok::<_, ServerError>(client)
        };
        let client = self.wait_for_response(connecting, limit)??;
        let server = self.clone();
        Ok(ServerSession {
            client,
            server,
            statements: Mutex::default(),
            timeout: RESPONSE_TIMEOUT,
            deadline: None,
        })
    }

    /// Waits for no response any more when this time is over.
    pub(super) fn close_after(&self, grace: Duration) {
        let closing = self.0.closing.clone();
        self.0.runtime.handle().spawn(async move {
            sleep(grace).await;
            closing.begin_phase(ShutdownPhase::Forced);
        });
    }

    /// Whether no response is waited for any more.
    pub(super) fn is_closed(&self) -> bool {
        self.0.closing.phase() == ShutdownPhase::Forced
    }

    /// Waits for a response.
    fn wait_for_response<F: Future>(
        &self,
        response: F,
        limit: Duration,
    ) -> Result<F::Output, ServerError> {
        let _entered = self.0.runtime.handle().enter();
        let mut closing = self.0.closing.signal();
        let limited = closing.run_until(ShutdownPhase::Forced, timeout(limit, response));
        block_on(limited).and_then(Result::ok).ok_or(ServerError::Unanswered)
    }
}

/// Permits the hosts of the server, which the library connects to by itself.
async fn permit_hosts(config: &tokio_postgres::Config) -> Result<(), ServerError> {
    if !is_loopback_only() {
        return Ok(());
    }
    let ports = config.get_ports();
    for (index, host) in config.get_hosts().iter().enumerate() {
        let ServerHost::Tcp(name) = host else { continue };
        let host = Host::parse(name).map_err(io::Error::other)?;
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        permit_host(DialRole::Database, &HostPort { host, port }).await?;
    }
    Ok(())
}

/// Carries what is sent and received over a connection until it ends.
async fn drive_connection<S, T>(mut connection: Connection<S, T>, notified: impl Fn(&str))
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match std::future::poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => notified(notification.payload()),
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!("a connection to the database broke: {error}");
                return;
            }
            None => return,
        }
    }
}

/// One connection, used by one thread at a time.
pub(super) struct ServerSession {
    client: Client,
    server: Server,
    statements: Mutex<HashMap<String, Statement>>,
    /// How long a response may take.
    timeout: Duration,
    /// When the last one has to be there.
    deadline: Option<Instant>,
}

/// A statement with its parameters.
pub(super) struct ServerCall<'a> {
    pub sql: &'a str,
    pub params: Vec<&'a (dyn ToSql + Sync)>,
}

/// The rows of a response.
pub(super) type Rows = Vec<tokio_postgres::Row>;

impl ServerSession {
    /// Waits for responses no longer than this.
    pub(super) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Waits for no response beyond this moment.
    pub(super) fn with_deadline(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    fn wait_for_response<F: Future>(&self, response: F) -> Result<F::Output, ServerError> {
        let rest = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        self.server
            .wait_for_response(response, rest.map_or(self.timeout, |rest| rest.min(self.timeout)))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs a statement.
    pub(super) fn query(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Rows, ServerError> {
        let calls = [ServerCall { sql, params: params.to_vec() }];
        let mut results = self.run_pipelined(None, &calls, None)?;
        results.pop().unwrap_or_else(|| Ok(Vec::new()))
    }

    /// Runs statements without parameters.
    pub(super) fn execute(&self, sql: &str) -> Result<(), ServerError> {
        Ok(self.wait_for_response(self.client.batch_execute(sql))??)
    }

    /// Sends statements without waiting for what becomes of them.
    pub(super) fn send_without_waiting(&self, sql: &str) {
        let _entered = self.server.0.runtime.handle().enter();
        // A request is on its way once it was polled; dropping the response takes nothing back.
        let mut response = pin!(self.client.batch_execute(sql));
        let mut context = Context::from_waker(Waker::noop());
        if response.as_mut().poll(&mut context).is_ready() {
            tracing::debug!("the connection to the database is gone before {sql}");
        }
    }

    /// Sends all in one flight: `begin`, the calls one after the other, then `end`. The result of each
    /// call comes in its place, after that of `begin` and before that of `end`.
    pub(super) fn run_pipelined(
        &self,
        begin: Option<&str>,
        calls: &[ServerCall<'_>],
        end: Option<&str>,
    ) -> Result<Vec<Result<Rows, ServerError>>, ServerError> {
        let statements: Vec<_> =
            calls.iter().map(|call| self.prepare_statement(call.sql)).collect::<Result<_, _>>()?;
        let mut flight: Vec<Response<'_>> = Vec::with_capacity(calls.len() + 2);
        let plain = |sql| -> Response<'_> {
            Box::pin(async move {
                self.client.batch_execute(sql).await?;
                Ok(Rows::new())
            })
        };
        flight.extend(begin.map(plain));
        for (call, statement) in calls.iter().zip(&statements) {
            flight.push(Box::pin(
                async move { Ok(self.client.query(statement, &call.params).await?) },
            ));
        }
        flight.extend(end.map(plain));
        self.wait_for_response(all_in_order(flight))
    }

    /// The statement, prepared once a connection; its parameters are `?1` and so on.
    fn prepare_statement(&self, sql: &str) -> Result<Statement, ServerError> {
        let known = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(statement) = known.get(sql) {
            return Ok(statement.clone());
        }
        drop(known);
        let text = sql.replace('?', "$");
        let statement = self.wait_for_response(self.client.prepare(&text))??;
        let mut known = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

type Response<'a> = Pin<Box<dyn Future<Output = Result<Rows, ServerError>> + 'a>>;

/// Waits for all, which are first polled in their order: that is the order in which they are sent.
async fn all_in_order(flight: Vec<Response<'_>>) -> Vec<Result<Rows, ServerError>> {
    let mut results: Vec<Option<Result<Rows, ServerError>>> = flight.iter().map(|_| None).collect();
    let mut flight = flight;
    std::future::poll_fn(move |context| {
        let mut is_complete = true;
        for (response, result) in flight.iter_mut().zip(&mut results) {
            if result.is_none() {
                match response.as_mut().poll(context) {
                    Poll::Ready(ready) => *result = Some(ready),
                    Poll::Pending => is_complete = false,
                }
            }
        }
        match is_complete {
            true => Poll::Ready(results.drain(..).flatten().collect()),
            false => Poll::Pending,
        }
    })
    .await
}

/// Runs a future on this thread, which sleeps meanwhile. Unlike that of a runtime, it may be called
/// where a runtime is at work.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
