//! A view of the agent that lives on a terminal: session, tunnels, figures and the last requests.

mod frame;
mod keyboard;
mod requests;
mod screen;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use crossterm::event::KeyCode;
use terminal_size::{Height, Width, terminal_size};

use ginnel_agent::{Agent, OnlineSession, SessionState};
use ginnel_api::local::tunnels::AgentTunnel;
use ginnel_service::Service;

use super::event_log::{UrlKind, try_command};
use super::targets::{TargetWatch, describe_target};
use crate::signals::{JobControl, JobSignal, is_terminal_gone, outlives_terminal};
use frame::{ScreenLine, render_frame};
use keyboard::Keyboard;
use requests::RequestPane;
use screen::Screen;

/// How often the view is drawn at most.
const FRAME_INTERVAL: Duration = Duration::from_millis(200);
/// What the view measures when the terminal does not say: columns and lines.
const DEFAULT_SIZE: (usize, usize) = (80, 24);
/// How many lines requests have at least while somebody is busy with them.
const MIN_REQUEST_LINES: usize = 8;
/// How wide the names of facts are.
const NAME_COLUMNS: usize = 14;
/// The view; dropping it gives the terminal back as it was.
pub(super) struct Console {
    /// What is said of a service beside the agent.
    service: Vec<(&'static str, String)>,
    url_kind: UrlKind,
    targets: TargetWatch,
    shown: String,
    entered: bool,
    jobs: JobControl,
    screen: Screen,
    keyboard: Option<Keyboard>,
    requests: RequestPane,
    outlives_terminal: bool,
}

impl Console {
    /// A view that shows the admin key of a service only where `shows_key`.
    pub fn new(agent: &Agent, service: Option<&Service>, shows_key: bool) -> Self {
        let url_kind = UrlKind::for_service(service);
        let facts = service.map(|service| {
            let key = service.api_key().filter(|_| shows_key).map(|key| key.0.clone());
            let mut facts = vec![("Management API", service.url().to_owned())];
            facts.extend(key.map(|key| ("Admin key", key)));
            facts
        });
        let service = facts.unwrap_or_default();
        let (shown, outlives_terminal) = (String::new(), outlives_terminal());
        Self {
            service,
            url_kind,
            targets: TargetWatch::start(agent),
            shown,
            entered: false,
            jobs: JobControl::new(),
            screen: Screen::open(),
            keyboard: Keyboard::open(),
            requests: RequestPane::new(),
            outlives_terminal,
        }
    }

    /// Shows the agent while it connects; ends with the terminal only.
    pub async fn show_connecting(&mut self, agent: &Agent) {
        while !self.is_orphaned() {
            self.draw_frame(agent);
            self.handle_input_until(agent, tokio::time::sleep(FRAME_INTERVAL)).await;
        }
    }

    /// Shows the agent until it ends, or the terminal does.
    pub async fn show_until_ended(&mut self, agent: &Agent) {
        let mut state = agent.watch_state();
        let mut changes = agent.captures().subscribe();
        loop {
            self.draw_frame(agent);
            if matches!(*state.borrow_and_update(), SessionState::Offline) || self.is_orphaned() {
                return;
            }
            self.handle_input_until(agent, tokio::time::sleep(FRAME_INTERVAL)).await;
            // Without requests the figures still fall, once a second.
            let change = async {
                tokio::select! {
                    _ = changes.recv() => true,
                    changed = state.changed() => changed.is_ok(),
                    () = tokio::time::sleep(Duration::from_secs(1)) => true,
                }
            };
            if !self.handle_input_until(agent, change).await {
                return;
            }
            changes = changes.resubscribe();
        }
    }

    /// Waits for something. A shell may have the terminal in the meantime, and then gives it back in
    /// a state of its own.
    async fn handle_input_until<T>(
        &mut self,
        agent: &Agent,
        awaited: impl Future<Output = T>,
    ) -> T {
        let mut awaited = std::pin::pin!(awaited);
        loop {
            tokio::select! {
                done = &mut awaited => return done,
                key = next_key(&mut self.keyboard) => {
                    self.requests.handle_key(agent, key);
                    self.draw_frame(agent);
                }
                () = self.requests.wait_for_reply() => self.draw_frame(agent),
                () = self.targets.wait_for_change() => self.draw_frame(agent),
                job = self.jobs.next() => {
                    if matches!(job, JobSignal::Stop) {
                        self.restore_terminal();
                        JobControl::stop_process();
                    }
                    self.shown.clear();
                    self.draw_frame(agent);
                }
            }
        }
    }

    /// Whether the terminal is gone, and the process was not told to outlive it: nobody could see
    /// or end it any more.
    fn is_orphaned(&self) -> bool {
        !self.outlives_terminal && is_terminal_gone()
    }

    fn restore_terminal(&mut self) {
        if std::mem::take(&mut self.entered) {
            if let Some(keyboard) = &self.keyboard {
                keyboard.restore_terminal();
            }
            self.screen.restore_terminal();
        }
    }

    fn draw_frame(&mut self, agent: &Agent) {
        if !JobControl::has_terminal() {
            return;
        }
        let size = terminal_size().map(|(Width(columns), Height(lines))| (columns, lines));
        let (columns, lines) =
            size.map_or(DEFAULT_SIZE, |(columns, lines)| (columns.into(), lines.into()));
        let frame = render_frame(&self.build_lines(agent, lines, columns), columns, lines);
        if frame == self.shown {
            return;
        }
        if let Some(keyboard) = self.keyboard.as_ref().filter(|_| !self.entered) {
            keyboard.capture_keys();
        }
        self.entered = true;
        self.screen.show_frame(frame.clone());
        self.shown = frame;
    }

    fn build_lines(&mut self, agent: &Agent, height: usize, columns: usize) -> Vec<ScreenLine> {
        self.requests.refresh(agent);
        let height = height - usize::from(self.keyboard.is_some() && height > 1);
        let mut lines = match self.requests.is_detail() {
            true => self.requests.render_detail(height),
            false => self.overview_lines(agent, height, columns),
        };
        if self.keyboard.is_some() {
            lines.truncate(height);
            lines.resize_with(height, ScreenLine::default);
            lines.push(self.requests.footer_text().into());
        }
        lines
    }

    /// The agent, its tunnels, and below them the requests.
    fn overview_lines(&mut self, agent: &Agent, height: usize, columns: usize) -> Vec<ScreenLine> {
        let tunnels = agent.list_tunnels();
        let mut lines = vec![format!("ginnel {}", env!("CARGO_PKG_VERSION")), String::new()];
        let facts = self.session_facts(agent, &tunnels);
        lines.extend(facts.iter().map(|(name, value)| format!("{name:<NAME_COLUMNS$}  {value}")));
        lines.push(String::new());
        lines.extend(connection_table(&tunnels));
        if self.requests.is_in_use() {
            lines.truncate(height.saturating_sub(MIN_REQUEST_LINES));
        }
        let mut lines: Vec<ScreenLine> = lines.into_iter().map(ScreenLine::from).collect();
        if self.requests.has_lines() {
            lines.push(ScreenLine::default());
            lines.extend(self.requests.render_list(height.saturating_sub(lines.len()), columns));
        }
        lines
    }

    fn session_facts(&self, agent: &Agent, tunnels: &[AgentTunnel]) -> Vec<(&'static str, String)> {
        let state = agent.session_state();
        let mut facts = vec![("Session", describe_session(agent, &state))];
        let nodes: Vec<_> = state.sessions().filter_map(describe_node).collect();
        if !nodes.is_empty() {
            facts.push(("Nodes", nodes.join(", ")));
        } else if let Some(online) = state.sessions().next() {
            let latency = online.latency().map(|time| format!("{:.1} ms", to_millis(time)));
            facts.push(("Region", online.region.clone()));
            facts.push(("Latency", latency.unwrap_or_else(|| "-".to_owned())));
        }
        let urls = || tunnels.iter().map(|tunnel| &tunnel.public_url).filter(|url| !url.is_empty());
        facts.extend(urls().map(|url| (self.url_kind.label(), url.clone())));
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
        let addresses: BTreeSet<_> = tunnels.iter().map(|tunnel| &tunnel.config.addr).collect();
        let states = self.targets.states();
        let targets = addresses.into_iter().filter_map(|addr| Some((addr, *states.get(addr)?)));
        facts.extend(targets.map(|(addr, accepts)| ("Target", describe_target(addr, accepts))));
        facts.extend(agent.api_url().map(|url| ("Inspect", url)));
        facts.extend(self.service.iter().cloned());
        facts.extend(urls().find_map(|url| try_command(url)).map(|command| ("try:", command)));
        facts
    }
}

/// Waits for a key; for ever where there is no keyboard.
async fn next_key(keyboard: &mut Option<Keyboard>) -> KeyCode {
    match keyboard {
        Some(keyboard) => keyboard.next().await,
        None => std::future::pending().await,
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.restore_terminal();
    }
}

/// The state, and while there is no session what stands in its way.
fn describe_session(agent: &Agent, state: &SessionState) -> String {
    let reason = match state {
        SessionState::Online(_) => None,
        _ => agent.last_error(),
    };
    let mut shown = state.name().to_owned();
    if let Some(reason) = reason {
        let _ = write!(shown, " ({reason})");
    }
    match agent.reconnect_count() {
        0 => shown,
        times => format!("{shown}, reconnected {times} times"),
    }
}

/// The node that a session leads to, and how far it is.
fn describe_node(online: &OnlineSession) -> Option<String> {
    let name = online.node.as_deref()?;
    Some(match online.latency() {
        Some(latency) => format!("{name} ({:.1} ms)", to_millis(latency)),
        None => name.to_owned(),
    })
}

/// What the tunnels have carried; percentiles in seconds.
fn connection_table(tunnels: &[AgentTunnel]) -> Vec<String> {
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

fn to_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
