//! What happens to an agent, one line for each event.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Local, SecondsFormat};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use ginnel_agent::capture::{CaptureRecord, CaptureStore, CapturedMessage};
use ginnel_agent::{Agent, SessionState, masked_target};
use ginnel_api::local::tunnels::AgentTunnel;
use ginnel_base::logging::{ignore, or_debug};
use ginnel_service::Service;

use super::targets::{TargetStates, TargetWatch, describe_target};
use crate::error::CommandResult;
use crate::lines::{LineWriter, count_lines};
use crate::log_file::LogOutput;

/// The name of a tunnel that the command line defines.
pub(crate) const UNNAMED: &str = "command_line";
/// How long requests gather before they are told of: to be woken for each would cost more than
/// serving it.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);
/// How much text is written at once at most.
const MAX_BATCH_BYTES: usize = 64 * 1024;
/// How much waits for the reader of the lines: so many times what is written at once.
const MAX_QUEUED_BATCHES: usize = 64;
/// How long requests that end with the agent are waited for.
const FINISH_TIMEOUT: Duration = Duration::from_millis(500);
/// How often it is looked for what keeps the agent from connecting.
const ERROR_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Writes one line for each request when it has ended, in a task of its own: what ends while the
/// agent stops is told as well.
pub(super) struct RequestLog {
    /// Dropped when no more requests are to come.
    last: oneshot::Sender<()>,
    writing: JoinHandle<()>,
    lines: LineWriter,
}

impl RequestLog {
    /// Tells of the requests that end from now on.
    pub fn start(event_log: EventLog, captures: Arc<CaptureStore>) -> Self {
        let (last, over) = oneshot::channel();
        let ended = captures.subscribe_ended();
        let lines = event_log.writer.clone();
        Self {
            last,
            writing: ginnel_base::tasks::spawn(write_requests(event_log, captures, ended, over)),
            lines,
        }
    }

    /// Tells of those that are left, once the agent has stopped.
    pub async fn finish(self) {
        drop(self.last);
        // It does not panic, and nobody aborts it.
        or_debug!(self.writing.await, "the log of requests broke");
        self.lines.flush(FINISH_TIMEOUT);
    }
}

async fn write_requests(
    event_log: EventLog,
    captures: Arc<CaptureStore>,
    mut ended: Receiver<Arc<CaptureRecord>>,
    mut over: oneshot::Receiver<()>,
) {
    loop {
        let next = tokio::select! {
            next = ended.recv() => next,
            _ = &mut over => break,
        };
        write_page(&event_log, next, &mut ended);
        tokio::time::sleep(BATCH_INTERVAL).await;
    }
    let deadline = Instant::now() + FINISH_TIMEOUT;
    loop {
        let is_idle = captures.is_idle();
        while let Some(next) = next_ended(&mut ended) {
            write_page(&event_log, next, &mut ended);
        }
        if is_idle || Instant::now() > deadline {
            return;
        }
        tokio::time::sleep(BATCH_INTERVAL).await;
    }
}

/// Writes of a request, and of those that have ended since.
fn write_page(
    event_log: &EventLog,
    first: Result<Arc<CaptureRecord>, RecvError>,
    ended: &mut Receiver<Arc<CaptureRecord>>,
) {
    let mut page = EventPage::now();
    let mut next = Some(first);
    while let Some(record) = next {
        match record {
            Ok(record) => event_log.add_request(&record, &mut page),
            Err(RecvError::Lagged(missed)) => {
                let fields = json!({"missed": missed});
                event_log.add_event(&mut page, "missed", || format!("{missed} events"), || fields);
            }
            // The records outlive this task.
            Err(RecvError::Closed) => {}
        }
        next = if page.lines.len() < MAX_BATCH_BYTES { next_ended(ended) } else { None };
    }
    event_log.queue_page(page);
}

/// The next request that has ended, where there is one.
fn next_ended(
    ended: &mut Receiver<Arc<CaptureRecord>>,
) -> Option<Result<Arc<CaptureRecord>, RecvError>> {
    match ended.try_recv() {
        Ok(record) => Some(Ok(record)),
        Err(TryRecvError::Lagged(missed)) => Some(Err(RecvError::Lagged(missed))),
        Err(TryRecvError::Closed | TryRecvError::Empty) => None,
    }
}

/// What somebody may type to see a tunnel at work; none where no web page is behind it.
pub(super) fn try_command(public_url: &str) -> Option<String> {
    let is_web = public_url.starts_with("http://") || public_url.starts_with("https://");
    is_web.then(|| format!("curl {public_url}"))
}

/// The reach of the URLs of the tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlKind {
    /// Every program that can reach the service.
    Public,
    /// Programs on this machine only: the service runs next to the agent.
    Local,
}

impl UrlKind {
    /// Returns the kind for an agent with this service next to it.
    pub fn for_service(service: Option<&Service>) -> Self {
        if service.is_some() { Self::Local } else { Self::Public }
    }

    /// The name of such a URL.
    pub fn label(self) -> &'static str {
        match self {
            Self::Public => "Public URL",
            Self::Local => "Local URL",
        }
    }
}

/// Writes events, one line each. The lines at the start form a block without times for people.
#[derive(Clone)]
pub(super) struct EventLog {
    /// If true, each line is a JSON object.
    as_json: bool,
    url_kind: UrlKind,
    writer: LineWriter,
}

impl EventLog {
    /// A log on the standard output, for people or as JSON.
    pub fn start(as_json: bool, url_kind: UrlKind) -> CommandResult<Self> {
        let writer = LineWriter::start(MAX_QUEUED_BATCHES, LogOutput::stdout())?;
        Ok(Self { as_json, url_kind, writer })
    }

    /// Returns the writer of the lines.
    pub fn line_writer(&self) -> &LineWriter {
        &self.writer
    }

    /// Has lines written; what was dropped before is told of first.
    fn queue_page(&self, page: EventPage) {
        if page.lines.is_empty() {
            return;
        }
        let dropped = self.writer.take_lost();
        let mut lines = String::from_utf8_lossy(&page.lines).into_owned();
        let count = dropped + count_lines(&lines);
        if dropped > 0 {
            let mut notice = EventPage::now();
            let fields = json!({"dropped": dropped});
            self.add_event(
                &mut notice,
                "dropped",
                || format!("{dropped} lines were dropped"),
                || fields,
            );
            lines.insert_str(0, &String::from_utf8_lossy(&notice.lines));
        }
        self.writer.add_counted(lines, count);
    }

    /// Where requests can be looked at, and the agent API is.
    pub fn log_addresses(&self, agent: &Agent) {
        if let Some(url) = agent.api_url() {
            self.start_line("agent_api", &format!("Inspect: {url}"), json!({"url": url}));
        }
        if let Some(address) = agent.admin_address() {
            let text = format!("Metrics: http://{address}/metrics");
            self.start_line("monitoring", &text, json!({"admin_addr": address.to_string()}));
        }
    }

    /// Tells what keeps an agent from connecting; does not end.
    pub async fn log_errors(&self, agent: &Agent) {
        let mut shown = None;
        loop {
            let last = agent.last_error();
            if last != shown
                && let Some(reason) = &last
            {
                self.log_line("error", reason, json!({"error": reason}));
            }
            shown = last;
            tokio::time::sleep(ERROR_POLL_INTERVAL).await;
        }
    }

    /// Writes the tunnels at the start, each with the state of its target.
    pub fn log_tunnels(&self, agent: &Agent, targets: &TargetStates) {
        if self.as_json {
            self.log_line("online", "", json!({}));
        }
        for tunnel in agent.list_tunnels() {
            let accepts = targets.get(&tunnel.config.addr).copied();
            match self.as_json {
                true => self.tunnel_event(&tunnel, accepts),
                false => self
                    .tunnel_lines(&tunnel, accepts)
                    .iter()
                    .for_each(|line| self.start_text(line)),
            }
        }
    }

    /// Writes that a tunnel can be reached again.
    fn log_tunnel_recovery(&self, tunnel: &AgentTunnel) {
        match self.as_json {
            true => self.tunnel_event(tunnel, None),
            false => self.tunnel_lines(tunnel, None).iter().for_each(|line| self.log_text(line)),
        }
    }

    fn tunnel_event(&self, tunnel: &AgentTunnel, accepts: Option<bool>) {
        let (name, url, addr) = (&tunnel.name, &tunnel.public_url, &tunnel.config.addr);
        let mut fields = json!({"name": name, "public_url": url, "addr": addr});
        if let Some(accepts) = accepts {
            fields["target_accepts"] = accepts.into();
        }
        self.log_line("tunnel", "", fields);
    }

    /// Returns the lines about a tunnel for people.
    fn tunnel_lines(&self, tunnel: &AgentTunnel, accepts: Option<bool>) -> Vec<String> {
        let (name, url, addr) = (&tunnel.name, &tunnel.public_url, &tunnel.config.addr);
        let of = if name == UNNAMED { String::new() } else { format!(" of {name}") };
        let mut lines = Vec::new();
        if !url.is_empty() {
            lines.push(format!("{}{of}: {url}", self.url_kind.label()));
        }
        let from = if url.is_empty() { name } else { url };
        lines.push(format!("Forwarding{of}: {from} -> {addr}"));
        lines.extend(
            accepts.map(|accepts| format!("Target{of}: {}", describe_target(addr, accepts))),
        );
        lines.extend(try_command(url).map(|command| format!("try: {command}")));
        lines
    }

    /// Writes each change of a target, until the task ends.
    pub async fn log_targets(&self, mut watch: TargetWatch) {
        let mut known = watch.states();
        loop {
            watch.wait_for_change().await;
            let states = watch.states();
            for (address, accepts) in &states {
                // A target that is new and accepts connections is as expected.
                if known.get(address).copied().unwrap_or(true) != *accepts {
                    let fields = json!({"addr": address, "accepts": accepts});
                    self.log_line("target", &describe_target(address, *accepts), fields);
                }
            }
            known = states;
        }
    }

    /// Writes a line for people.
    fn log_text(&self, text: &str) {
        self.log_line("", text, Value::Null);
    }

    /// Writes a line of the start for people.
    fn start_text(&self, text: &str) {
        self.start_line("", text, Value::Null);
    }

    /// Tells which tunnels visitors cannot reach although there is a session, and which they can
    /// again; `shown` is what was told of them before.
    fn log_statuses(&self, agent: &Agent, shown: &mut HashMap<String, String>) {
        for tunnel in agent.list_tunnels() {
            let (name, status) = (tunnel.name.clone(), tunnel.status.clone().unwrap_or_default());
            if status == "online" {
                if shown.remove(&name).is_some() {
                    self.log_tunnel_recovery(&tunnel);
                }
            } else if shown.get(&name) != Some(&status) {
                let fields = json!({"name": name, "status": status});
                self.log_line("tunnel_status", &format!("{name}: {status}"), fields);
                shown.insert(name, status);
            }
        }
    }

    /// Tells which nodes of the service the agent has sessions with, where it has nodes; `shown` is what
    /// has been shown before.
    fn log_nodes(&self, state: &SessionState, shown: &mut Vec<String>) {
        let nodes = state.sessions().filter_map(|online| online.node.as_deref());
        let nodes: Vec<_> = nodes.map(str::to_owned).collect();
        if nodes != *shown && !nodes.is_empty() {
            let fields = json!({"nodes": nodes});
            self.log_line("sessions", &format!("sessions with {}", nodes.join(", ")), fields);
        }
        *shown = nodes;
    }

    /// Tells how the link to the service is.
    fn log_state(&self, state: &'static str, reason: Option<String>) {
        let text = match &reason {
            Some(reason) => format!("{state}: {reason}"),
            None => state.to_owned(),
        };
        self.log_line("state", &text, json!({"state": state, "reason": reason}));
    }

    /// Tells what becomes of the session until the agent ends.
    pub async fn log_session(&self, agent: &Agent) {
        let mut state = agent.watch_state();
        // The state at the start has been shown; changes of tunnels are changes of the state as well.
        let (mut shown, mut statuses) = (state.borrow().name(), HashMap::new());
        let mut nodes = Vec::new();
        loop {
            let changed = state.changed().await;
            let now = state.borrow_and_update().clone();
            let is_online = matches!(now, SessionState::Online(_));
            // Every attempt to connect is a change, of the same name.
            if now.name() != shown {
                shown = now.name();
                self.log_state(shown, agent.last_error().filter(|_| !is_online));
            }
            self.log_nodes(&now, &mut nodes);
            if is_online {
                self.log_statuses(agent, &mut statuses);
            }
            if changed.is_err() || matches!(now, SessionState::Offline) {
                return;
            }
        }
    }

    fn log_line(&self, event: &str, text: &str, fields: Value) {
        self.add_line(EventPage::now(), event, text, fields);
    }

    /// Writes a line of the start, which has no time for people.
    fn start_line(&self, event: &str, text: &str, fields: Value) {
        self.add_line(EventPage { is_start: true, ..EventPage::now() }, event, text, fields);
    }

    fn add_line(&self, mut page: EventPage, event: &str, text: &str, fields: Value) {
        self.add_event(&mut page, event, || text.to_owned(), || fields);
        self.queue_page(page);
    }

    /// Adds one line, in the form that is wanted.
    fn add_event<F: Serialize>(
        &self,
        page: &mut EventPage,
        event: &str,
        text: impl FnOnce() -> String,
        fields: impl FnOnce() -> F,
    ) {
        if self.as_json {
            let line = EventLine { fields: fields(), ts: &page.rfc3339, event };
            let written = serde_json::to_writer(&mut page.lines, &line);
            ignore(written, "fields with plain names always make JSON");
        } else {
            let mut line = replace_controls(&text());
            if !page.is_start {
                line.insert_str(0, &page.time.format("%H:%M:%S%.3f ").to_string());
            }
            page.lines.extend_from_slice(line.as_bytes());
        }
        page.lines.push(b'\n');
    }

    /// Where the management API is; its admin key is in JSON, and for people where they ask for it.
    pub fn log_service(&self, service: &Service, shows_key: bool) {
        let key = service.api_key().map(|key| key.0.as_str()).unwrap_or_default();
        let text = format!("Management API: {}", service.url());
        self.start_line("service", &text, json!({"url": service.url(), "api_key": key}));
        if shows_key && !self.as_json {
            self.start_text(&format!("Admin key: {key}"));
        }
    }

    /// Adds a request that has ended.
    fn add_request(&self, record: &CaptureRecord, page: &mut EventPage) {
        let exchange = record.lock_exchange();
        let Some(took) = exchange.took else { return };
        let [method, uri, _] = exchange.request.start_line();
        let uri = masked_target(&uri);
        let status = exchange.response.as_ref().map_or("-".into(), CapturedMessage::status_text);
        let error = exchange.error.as_deref();
        let ms = took.as_secs_f64() * 1e3;
        let text = || {
            let error = error.map(|error| format!(": {error}")).unwrap_or_default();
            format!("{method} {uri} {status} {ms:.1} ms{error}")
        };
        let fields = || RequestFields {
            id: &record.id,
            tunnel: &record.tunnel_name,
            method: &method,
            uri: &uri,
            status: &status,
            ms,
            error,
        };
        self.add_event(page, "request", text, fields);
    }
}

/// Lines that are written at one time.
struct EventPage {
    time: DateTime<Local>,
    rfc3339: String,
    /// If true, lines for people have no time.
    is_start: bool,
    lines: Vec<u8>,
}

impl EventPage {
    fn now() -> Self {
        let time = Local::now();
        let rfc3339 = time.to_rfc3339_opts(SecondsFormat::Millis, false);
        Self { time, rfc3339, is_start: false, lines: Vec::new() }
    }
}

/// A line for programs.
#[derive(Serialize)]
struct EventLine<'a, F> {
    #[serde(flatten)]
    fields: F,
    ts: &'a str,
    event: &'a str,
}

/// A request that has ended. Not made as a `Value`: there are tens of thousands a second.
#[derive(Serialize)]
struct RequestFields<'a> {
    id: &'a str,
    tunnel: &'a str,
    method: &'a str,
    uri: &'a str,
    status: &'a str,
    ms: f64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Text of others that does nothing to a terminal.
pub(super) fn replace_controls(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}
