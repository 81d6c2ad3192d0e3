//! What happens to an agent, one line for each event.

use std::time::Duration;

use chrono::SecondsFormat;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::agent::capture::{Change, Message, Record};
use crate::agent::{Agent, State, masked_target};
use crate::cli::output::say;
use crate::service::Service;

/// How long requests gather before they are told of: to be woken for each would cost more than
/// serving it.
const GATHER: Duration = Duration::from_millis(10);
/// How much text is written at once at most.
const PAGE: usize = 64 * 1024;
/// How often it is looked for what keeps the agent from connecting.
const LOOK: Duration = Duration::from_millis(200);

/// Tells of the requests that have ended since, then lets some more gather; false when there will
/// be no more.
async fn requests(changes: &mut Receiver<Change>, tell: Tell) -> bool {
    let mut page = String::new();
    let mut next = changes.recv().await;
    while page.len() < PAGE {
        match next {
            Ok(Change::Updated(record)) => tell.request(&record, &mut page),
            Ok(Change::Cleared) => {}
            Err(RecvError::Lagged(missed)) => {
                let fields = json!({"missed": missed});
                tell.add(&mut page, "missed", || format!("{missed} events"), || fields);
            }
            Err(RecvError::Closed) => return false,
        }
        next = match changes.try_recv() {
            Ok(change) => Ok(change),
            Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
            Err(TryRecvError::Closed) => Err(RecvError::Closed),
            Err(TryRecvError::Empty) => break,
        };
    }
    if !page.is_empty() {
        say(page.trim_end());
    }
    tokio::time::sleep(GATHER).await;
    true
}

/// Tells what happens, one line each.
#[derive(Clone, Copy)]
pub(super) struct Tell {
    /// Whether each line is a JSON object.
    pub as_json: bool,
}

impl Tell {
    /// Where the agent API is.
    pub fn agent(self, agent: &Agent) {
        if let Some(url) = agent.url() {
            self.line("agent_api", &format!("agent API at {url}/api"), json!({"url": url}));
        }
    }

    /// Tells what keeps an agent from connecting; does not end.
    pub async fn troubles(self, agent: &Agent) {
        let mut told = None;
        loop {
            let last = agent.last_error();
            if last != told
                && let Some(reason) = &last
            {
                self.line("error", reason, json!({"error": reason}));
            }
            told = last;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The tunnels that run.
    pub fn tunnels(self, agent: &Agent) {
        self.line("online", "online", json!({}));
        for tunnel in agent.tunnels() {
            let (name, url, addr) = (tunnel.name, tunnel.public_url, tunnel.config.addr);
            let fields = json!({"name": name, "public_url": url, "addr": addr});
            self.line("tunnel", &format!("{name}: {url} -> {addr}"), fields);
        }
    }

    /// Tells what happens until the agent ends.
    pub async fn live(self, agent: &Agent) {
        let mut state = agent.watch();
        let mut changes = agent.captures().subscribe();
        let mut told = "";
        loop {
            tokio::select! {
                changed = state.changed() => {
                    let now = state.borrow_and_update().clone();
                    // Every attempt to connect is a change, of the same name.
                    if now.name() != told {
                        told = now.name();
                        self.line("state", told, json!({"state": told}));
                    }
                    if changed.is_err() || matches!(now, State::Offline) {
                        return;
                    }
                }
                more = requests(&mut changes, self) => if !more {
                    return;
                },
            }
        }
    }

    fn line(self, event: &str, text: &str, fields: Value) {
        let mut page = String::new();
        self.add(&mut page, event, || text.to_owned(), || fields);
        say(page.trim_end());
    }

    /// Adds one line, in the form that is wanted.
    fn add<F: Serialize>(
        self,
        page: &mut String,
        event: &str,
        text: impl FnOnce() -> String,
        fields: impl FnOnce() -> F,
    ) {
        let now = chrono::Local::now();
        if self.as_json {
            let ts = now.to_rfc3339_opts(SecondsFormat::Millis, false);
            let line = Line { fields: fields(), ts, event };
            // Fields with plain names always make JSON.
            page.push_str(&serde_json::to_string(&line).unwrap_or_default());
        } else {
            page.push_str(&format!("{} {}", now.format("%H:%M:%S%.3f"), plain(&text())));
        }
        page.push('\n');
    }

    /// Where the management API is, and its admin key.
    pub fn service(self, service: &Service) {
        let key = service.api_key().map(|key| key.0.as_str()).unwrap_or_default();
        let text = format!("management API at {}, admin key {key}", service.url());
        self.line("service", &text, json!({"url": service.url(), "api_key": key}));
    }

    /// Adds a request that is complete.
    fn request(self, record: &Record, page: &mut String) {
        let exchange = record.exchange();
        let Some(took) = exchange.took else { return };
        let [method, uri, _] = exchange.request.start_line();
        let uri = masked_target(&uri).into_owned();
        let status = exchange.response.as_ref().map_or("-".to_owned(), Message::status);
        drop(exchange);
        let ms = took.as_secs_f64() * 1e3;
        let text = || format!("{method} {uri} {status} {ms:.1} ms");
        let fields = || Ended {
            id: &record.id,
            tunnel: &record.tunnel_name,
            method: &method,
            uri: &uri,
            status: &status,
            ms,
        };
        self.add(page, "request", text, fields);
    }
}

/// A line for programs.
#[derive(Serialize)]
struct Line<'a, F> {
    #[serde(flatten)]
    fields: F,
    ts: String,
    event: &'a str,
}

/// A request that has ended. Not made as a `Value`: there are tens of thousands a second.
#[derive(Serialize)]
struct Ended<'a> {
    id: &'a str,
    tunnel: &'a str,
    method: &'a str,
    uri: &'a str,
    status: &'a str,
    ms: f64,
}

/// Text of others that does nothing to a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}
