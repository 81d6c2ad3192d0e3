//! Writes what happens to an agent into the log of a program called `ngrok`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;

use ginnel_agent::capture::{CaptureRecord, CapturedMessage};
use ginnel_agent::config::NgrokLogLevel;
use ginnel_agent::{Agent, SessionState, masked_target};
use ginnel_api::local::tunnels::AgentTunnel;

use super::log::NgrokLog;
use crate::lines::LineWriter;

/// How long requests gather before they are written: to be woken for each would cost more than serving it.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);
/// How often it is looked for what keeps the agent from connecting, and for tunnels that have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// What is said of a session.
const SESSION: &str = "tunnels.session";

/// What is known to the readers of a log.
pub(crate) struct EventFollower {
    log: Arc<NgrokLog>,
    state: watch::Receiver<SessionState>,
    started: watch::Receiver<u64>,
    ended: broadcast::Receiver<Arc<CaptureRecord>>,
    is_online: bool,
    error: Option<String>,
    /// The tunnels that run, by identifier: name and public address.
    tunnels: BTreeMap<String, (String, String)>,
}

impl EventFollower {
    /// Writes where the agent API is.
    pub fn new(log: Arc<NgrokLog>, agent: &Agent) -> Self {
        if let Some(url) = agent.api_url() {
            let addr = url.trim_start_matches("http://");
            log.write_line(
                NgrokLogLevel::Info,
                "starting web service",
                &[("obj", "web"), ("addr", addr), ("allow_hosts", "[]")],
            );
        }
        let (state, started) = (agent.watch_state(), agent.watch_tunnels());
        let ended = agent.captures().subscribe_ended();
        let (is_online, error, tunnels) = Default::default();
        Self { log, state, started, ended, is_online, error, tunnels }
    }

    /// Returns the writer of the log, if there is one.
    pub fn line_writer(&self) -> Option<&LineWriter> {
        self.log.line_writer()
    }

    /// Writes what happens until the agent has ended. May be dropped and called again.
    pub async fn run(&mut self, agent: &Agent) {
        loop {
            let state = self.state.borrow_and_update().clone();
            self.started.mark_unchanged();
            self.log_session(agent, &state);
            self.log_tunnels(agent);
            self.log_requests();
            if matches!(state, SessionState::Offline) {
                return;
            }
            tokio::time::sleep(BATCH_INTERVAL).await;
            tokio::select! {
                _ = self.state.changed() => {}
                _ = self.started.changed() => {}
                record = self.ended.recv() => match record {
                    Ok(record) => self.log_request(&record),
                    Err(RecvError::Lagged(missed)) => self.log_missed(missed),
                    Err(RecvError::Closed) => {}
                },
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// How the link to the service is.
    fn log_session(&mut self, agent: &Agent, state: &SessionState) {
        let error = agent.last_error();
        let reason = error.as_deref().unwrap_or("session lost");
        let is_online = matches!(state, SessionState::Online(_));
        match (self.is_online, is_online) {
            (false, true) => self.log_established(state),
            (true, false) => self.log.write_line(
                NgrokLogLevel::Error,
                "session closed, starting reconnect loop",
                &[("obj", SESSION), ("err", reason)],
            ),
            (false, false) if error != self.error && error.is_some() => self.log.write_line(
                NgrokLogLevel::Error,
                "failed to reconnect session",
                &[("obj", SESSION), ("err", reason)],
            ),
            _ => {}
        }
        (self.is_online, self.error) = (is_online, error);
    }

    fn log_established(&self, state: &SessionState) {
        let info = |message, object| {
            self.log.write_line(NgrokLogLevel::Info, message, &[("obj", object)]);
        };
        info("tunnel session started", SESSION);
        info("client session established", SESSION);
        for leg in state.sessions() {
            let node = leg.node.as_deref().unwrap_or_default();
            let fields = [("obj", SESSION), ("region", leg.region.as_str()), ("node", node)];
            self.log.write_line(NgrokLogLevel::Debug, "session leg established", &fields);
        }
    }

    /// Which tunnels have started and ended.
    fn log_tunnels(&mut self, agent: &Agent) {
        let running = agent.list_tunnels();
        let online = running.iter().filter(|tunnel| tunnel.status.as_deref() != Some("connecting"));
        let now: BTreeMap<_, _> = online.map(|tunnel| (tunnel_id(tunnel), tunnel)).collect();
        let ended = self.tunnels.iter().filter(|(id, _)| !now.contains_key(*id));
        for (name, url) in ended.map(|(_, tunnel)| tunnel) {
            self.log_tunnel("stopped tunnel", &[("name", name), ("url", url)]);
        }
        for tunnel in now.iter().filter(|(id, _)| !self.tunnels.contains_key(*id)).map(|it| it.1) {
            let (name, addr, url) = (&tunnel.name, &tunnel.config.addr, &tunnel.public_url);
            self.log_tunnel("started tunnel", &[("name", name), ("addr", addr), ("url", url)]);
        }
        let known = now.into_iter().map(|(id, it)| (id, (it.name.clone(), it.public_url.clone())));
        self.tunnels = known.collect();
    }

    fn log_tunnel(&self, message: &str, fields: &[(&'static str, &str)]) {
        let fields = [&[("obj", "tunnels")], fields].concat();
        self.log.write_line(NgrokLogLevel::Info, message, &fields);
    }

    /// The requests that have ended meanwhile.
    fn log_requests(&mut self) {
        loop {
            match self.ended.try_recv() {
                Ok(record) => self.log_request(&record),
                Err(TryRecvError::Lagged(missed)) => self.log_missed(missed),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn log_missed(&self, requests: u64) {
        let requests = requests.to_string();
        let fields = [("obj", "join"), ("requests", requests.as_str())];
        self.log.write_line(NgrokLogLevel::Warn, "lines are missing", &fields);
    }

    /// A request that has ended: between whom, and for details what.
    fn log_request(&self, record: &CaptureRecord) {
        let (id, name) = (record.id.as_str(), record.tunnel_name.as_str());
        let visitor = record.source.remote_addr.as_str();
        let fields = [("obj", "join"), ("id", id), ("name", name), ("r", visitor)];
        self.log.write_line(NgrokLogLevel::Info, "join connections", &fields);
        if !self.log.is_enabled(NgrokLogLevel::Debug) {
            return;
        }
        let exchange = record.lock_exchange();
        let [method, target, _] = exchange.request.start_line();
        let target = masked_target(&target);
        let status = exchange.response.as_ref().map_or("-".into(), CapturedMessage::status_text);
        let ms = exchange.took.unwrap_or_default().as_millis().to_string();
        let fields = [
            ("obj", "join"),
            ("id", id),
            ("method", &method),
            ("uri", &target),
            ("status", &status),
            ("dur_ms", &ms),
        ];
        self.log.write_line(NgrokLogLevel::Debug, "request ended", &fields);
    }
}

fn tunnel_id(tunnel: &AgentTunnel) -> String {
    tunnel.ID.clone().unwrap_or_default()
}
