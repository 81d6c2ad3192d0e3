//! A view of the agent that lives on a terminal: session, tunnels, figures and the last requests.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use chrono::Timelike;
use terminal_size::{Height, Width, terminal_size};

use super::event_log::{plain, try_command};
use crate::agent::capture::{CaptureRecord, CapturedMessage};
use crate::agent::{Agent, OnlineSession, SessionState, masked_target};
use crate::api::local::tunnels::AgentTunnel;
use crate::cli::signals::{JobControl, JobSignal, is_terminal_gone, outlives_terminal};
use crate::logging::or_debug;
use crate::service::Service;

/// How often the view is drawn at most.
const FRAME_INTERVAL: Duration = Duration::from_millis(200);
/// What the view measures when the terminal does not say: columns and lines.
const DEFAULT_SIZE: (usize, usize) = (80, 24);
/// How wide the names of facts are.
const NAME_COLUMNS: usize = 14;
/// How many requests are looked at.
const MAX_REQUESTS: usize = 200;

/// Lines are not wrapped: letters may be wider than one column.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

/// The view; dropping it gives the terminal back as it was.
pub(super) struct Console {
    /// What is said of a service beside the agent.
    service: Vec<(&'static str, String)>,
    shown: String,
    entered: bool,
    jobs: JobControl,
    outlives_terminal: bool,
}

impl Console {
    /// A view that shows the admin key of a service only where `shows_key`.
    pub fn new(service: Option<&Service>, shows_key: bool) -> Self {
        let facts = service.map(|service| {
            let key = service.api_key().filter(|_| shows_key).map(|key| key.0.clone());
            let mut facts = vec![("Management API", service.url().to_owned())];
            facts.extend(key.map(|key| ("Admin key", key)));
            facts
        });
        let service = facts.unwrap_or_default();
        let (shown, outlives_terminal) = (String::new(), outlives_terminal());
        Self { service, shown, entered: false, jobs: JobControl::new(), outlives_terminal }
    }

    /// Shows the agent while it connects; ends with the terminal only.
    pub async fn wait(&mut self, agent: &Agent) {
        while !self.is_orphaned() {
            self.draw(agent);
            self.during(agent, tokio::time::sleep(FRAME_INTERVAL)).await;
        }
    }

    /// Shows the agent until it ends, or the terminal does.
    pub async fn live(&mut self, agent: &Agent) {
        let mut state = agent.watch();
        let mut changes = agent.captures().subscribe();
        loop {
            self.draw(agent);
            if matches!(*state.borrow_and_update(), SessionState::Offline) || self.is_orphaned() {
                return;
            }
            self.during(agent, tokio::time::sleep(FRAME_INTERVAL)).await;
            // Without requests the figures still fall, once a second.
            let change = async {
                tokio::select! {
                    _ = changes.recv() => true,
                    changed = state.changed() => changed.is_ok(),
                    () = tokio::time::sleep(Duration::from_secs(1)) => true,
                }
            };
            if !self.during(agent, change).await {
                return;
            }
            changes = changes.resubscribe();
        }
    }

    /// Waits for something. A shell may have the terminal in the meantime, and then gives it back in
    /// a state of its own.
    async fn during<T>(&mut self, agent: &Agent, awaited: impl Future<Output = T>) -> T {
        let mut awaited = std::pin::pin!(awaited);
        loop {
            tokio::select! {
                done = &mut awaited => return done,
                job = self.jobs.next() => {
                    if matches!(job, JobSignal::Stop) {
                        self.leave();
                        JobControl::stop();
                    }
                    self.shown.clear();
                    self.draw(agent);
                }
            }
        }
    }

    /// Whether the terminal is gone, and the process was not told to outlive it: nobody could see
    /// or end it any more.
    fn is_orphaned(&self) -> bool {
        !self.outlives_terminal && is_terminal_gone()
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.entered) {
            let mut output = std::io::stdout().lock();
            let left = write!(output, "{LEAVE}").and_then(|()| output.flush());
            or_debug!(left, "the terminal is gone");
        }
    }

    fn draw(&mut self, agent: &Agent) {
        if !JobControl::has_terminal() {
            return;
        }
        let size = terminal_size().map(|(Width(columns), Height(lines))| (columns, lines));
        let (columns, lines) =
            size.map_or(DEFAULT_SIZE, |(columns, lines)| (columns.into(), lines.into()));
        let frame = frame(&self.lines(agent, lines), columns, lines);
        if frame == self.shown {
            return;
        }
        let mut output = std::io::stdout().lock();
        let enter = if self.entered { "" } else { ENTER };
        // A terminal that is gone needs no view.
        let drawn = write!(output, "{enter}{HOME}{frame}{REST_OF_SCREEN}");
        or_debug!(drawn.and_then(|()| output.flush()), "the terminal is gone");
        self.entered = true;
        self.shown = frame;
    }

    fn lines(&self, agent: &Agent, height: usize) -> Vec<String> {
        let tunnels = agent.tunnels();
        let mut lines = vec![format!("ginnel {}", env!("CARGO_PKG_VERSION")), String::new()];
        let facts = self.facts(agent, &tunnels);
        lines.extend(facts.iter().map(|(name, value)| format!("{name:<NAME_COLUMNS$}  {value}")));
        lines.push(String::new());
        lines.extend(figures(&tunnels));
        let requests = agent.captures().list(height.min(MAX_REQUESTS), None);
        if !requests.is_empty() {
            lines.extend([String::new(), "Requests".to_owned()]);
            lines.extend(requests.iter().map(line));
        }
        lines
    }

    fn facts(&self, agent: &Agent, tunnels: &[AgentTunnel]) -> Vec<(&'static str, String)> {
        let state = agent.state();
        let mut facts = vec![("Session", session(agent, &state))];
        let nodes: Vec<_> = state.sessions().filter_map(node).collect();
        if !nodes.is_empty() {
            facts.push(("Nodes", nodes.join(", ")));
        } else if let Some(online) = state.sessions().next() {
            let latency = online.latency().map(|time| format!("{:.1} ms", millis(time)));
            facts.push(("Region", online.region.clone()));
            facts.push(("Latency", latency.unwrap_or_else(|| "-".to_owned())));
        }
        let urls = || tunnels.iter().map(|tunnel| &tunnel.public_url).filter(|url| !url.is_empty());
        facts.extend(urls().map(|url| ("Public URL", url.clone())));
        let forwarding = tunnels.iter().map(|tunnel| {
            let from = match tunnel.public_url.as_str() {
                "" => &tunnel.name,
                url => url,
            };
            let status = tunnel.status.as_deref().filter(|status| *status != "online");
            let status = status.map(|status| format!(" ({status})")).unwrap_or_default();
            ("Forwarding", format!("{from} -> {}{status}", tunnel.config.addr))
        });
        facts.extend(forwarding);
        facts.extend(agent.url().map(|url| ("Inspect", url)));
        facts.extend(self.service.iter().cloned());
        facts.extend(urls().find_map(|url| try_command(url)).map(|command| ("try:", command)));
        facts
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The state, and while there is no session what stands in its way.
fn session(agent: &Agent, state: &SessionState) -> String {
    let reason = match state {
        SessionState::Online(_) => None,
        _ => agent.last_error(),
    };
    let mut shown = state.name().to_owned();
    if let Some(reason) = reason {
        let _ = write!(shown, " ({reason})");
    }
    match agent.reconnects() {
        0 => shown,
        times => format!("{shown}, reconnected {times} times"),
    }
}

/// The node that a session leads to, and how far it is.
fn node(online: &OnlineSession) -> Option<String> {
    let name = online.node.as_deref()?;
    Some(match online.latency() {
        Some(latency) => format!("{name} ({:.1} ms)", millis(latency)),
        None => name.to_owned(),
    })
}

/// What the tunnels have carried; percentiles in seconds.
fn figures(tunnels: &[AgentTunnel]) -> Vec<String> {
    let head = format!(
        "{:<NAME_COLUMNS$}  {:>7} {:>5} {:>7} {:>7} {:>6} {:>6}",
        "Connections", "ttl", "opn", "rt1", "rt5", "p50", "p90"
    );
    let rows = tunnels.iter().map(|tunnel| {
        let conns = &tunnel.metrics.conns;
        let name = tunnel.name.chars().take(NAME_COLUMNS).collect::<String>();
        format!(
            "{name:<NAME_COLUMNS$}  {:>7} {:>5} {:>7.2} {:>7.2} {:>6.2} {:>6.2}",
            conns.count,
            conns.gauge,
            conns.rate1.0,
            conns.rate5.0,
            conns.p50.0 / 1e9,
            conns.p90.0 / 1e9
        )
    });
    std::iter::once(head).chain(rows).collect()
}

fn line(record: &Arc<CaptureRecord>) -> String {
    let exchange = record.exchange();
    let [method, target, _] = exchange.request.start_line();
    let status = exchange.response.as_ref().map_or("...".into(), CapturedMessage::status);
    let took = exchange.took.map(|took| format!("{:.1} ms", millis(took)));
    let start = record.start();
    let clock = format!("{}.{:03}", start.format("%H:%M:%S"), start.nanosecond() / 1_000_000);
    let target = masked_target(&target);
    format!("{clock} {method:<7} {target:<40} {status:<24} {}", took.unwrap_or_default())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What is written: as many lines as there is room for, none longer than the terminal is wide.
fn frame(lines: &[String], columns: usize, height: usize) -> String {
    let cut = |line: &String| plain(line).chars().take(columns).collect::<String>();
    let lines = lines.iter().take(height.max(1)).map(cut).collect::<Vec<_>>();
    let last = lines.len().saturating_sub(1);
    let mut frame = String::new();
    for (at, line) in lines.iter().enumerate() {
        frame.push_str(line);
        frame.push_str(REST_OF_LINE);
        // A line break in the last line would push the first one out.
        frame.push_str(if at < last { "\r\n" } else { "" });
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal_and_does_nothing_to_it() {
        let lines = ["123456789", "a\x1b[2J", "three"].map(str::to_owned);

        assert_eq!(frame(&lines, 5, 2), "12345\x1b[K\r\na\u{fffd}[2J\x1b[K");
        assert_eq!(frame(&lines, 80, 9).matches("\r\n").count(), 2);
    }
}
