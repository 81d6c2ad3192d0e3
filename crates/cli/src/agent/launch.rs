//! What is to be run, and how it runs: an agent, perhaps with a service beside it, until it ends.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ArgMatches;

use ginnel_agent::definition::Definition;
use ginnel_agent::{Agent, AgentOptions, SessionState, StartError, Trust, TunnelBindError};
use ginnel_base::address::HostPort;
use ginnel_service::{self as service, Service};

use super::console::Console;
use super::event_log::{EventLog, RequestLog, UrlKind};
use super::targets::TargetWatch;
use crate::error::{CliError, CommandResult};
use crate::lines::LineWriter;
use crate::ngrok::{EventFollower, NgrokLog};
use crate::output::eprint_line;
use crate::signals::{NOTHING_TO_READ, Signals, on_hangup};
use crate::{admin, grace, log_file, runtime};

/// Whether the admin key of the service beside the agent is shown.
pub(super) const SHOW_KEY: &str = "show-key";
/// How long to wait before a tunnel is started again whose session was lost.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How long a service beside the agent has at least to bring the last answers to their visitors.
const MIN_SERVICE_GRACE: Duration = Duration::from_secs(1);
/// How long an agent stops without a word.
const QUIET_STOP: Duration = Duration::from_millis(400);

/// What is to be run.
pub(crate) struct LaunchPlan {
    pub options: AgentOptions,
    pub tunnels: Vec<Definition>,
    /// How long visitors in flight may take at the end.
    pub grace: Duration,
    /// Where the agent is watched, if anywhere.
    pub admin_addr: Option<HostPort>,
    pub view: ViewOptions,
    /// A service to run beside the agent, which then connects to it.
    pub service: Option<service::Options>,
}

/// How what happens is to be shown.
pub(crate) enum ViewOptions {
    /// On the terminal where there is one or that is requested, else line by line.
    Lines { requested: Option<bool>, as_json: bool, shows_key: bool },
    /// In the log of a program called `ngrok`.
    Ngrok(Arc<NgrokLog>),
}

impl LaunchPlan {
    /// What a command line asks for.
    pub fn new(
        matches: &ArgMatches,
        options: AgentOptions,
        tunnels: Vec<Definition>,
        requested: Option<bool>,
    ) -> Self {
        let shows_key = matches.try_get_one(SHOW_KEY).ok().flatten() == Some(&true);
        let view = ViewOptions::Lines { requested, as_json: matches.get_flag("json"), shows_key };
        let (grace, admin_addr) = (grace::read_grace(matches), admin::read_admin_addr(matches));
        Self { options, tunnels, grace, admin_addr, view, service: None }
    }
}

/// Runs an agent until it ends or is stopped.
pub(crate) fn launch_agent(plan: LaunchPlan) -> CommandResult<()> {
    let runtime = runtime::start_runtime()?;
    let ended = runtime.block_on(run_plan(plan));
    runtime.shutdown_background();
    ended
}

async fn run_plan(plan: LaunchPlan) -> CommandResult<()> {
    let mut signals = Signals::new()?;
    let (grace, admin_addr) = (plan.grace, plan.admin_addr);
    let mut options = AgentOptions { grace, admin_addr, ..plan.options };
    let service = match plan.service {
        Some(requested) => Some(Service::start(requested).await?),
        None => None,
    };
    if let Some(service) = &service {
        connect_to(&mut options, service);
    }
    let mut agent = Agent::start(options).await?;
    let view = AgentView::from_options(plan.view, &agent, service.as_ref())?;
    let lines = view.line_writer();
    let requests = view.start_request_log(&agent);
    let is_drawn = matches!(view, AgentView::Console(_));
    on_hangup(move || {
        if !log_file::reopen_logs() {
            report_nothing_reloaded(is_drawn);
        }
    })?;
    let ended = tokio::select! {
        ended = run_view(&mut agent, plan.tunnels, view) => ended,
        () = signals.next() => Ok(()),
        // The program that started the agent and read its lines has ended.
        () = wait_for_reader_end(lines) => Ok(()),
    };
    tokio::select! {
        () = stop_agent(agent, requests, service, grace) => ended,
        () = signals.next() => Err(CliError::second_signal()),
    }
}

/// Waits until the reader of the lines has left.
async fn wait_for_reader_end(lines: Option<LineWriter>) {
    match lines {
        Some(lines) => lines.reader_left().await,
        None => std::future::pending().await,
    }
}

/// Ends the agent, and then the service beside it: within `grace`, as far as that is theirs.
async fn stop_agent(
    agent: Agent,
    requests: Option<RequestLog>,
    service: Option<Service>,
    grace: Duration,
) {
    let began = Instant::now();
    let open = agent.connection_counter();
    let mut stopping = std::pin::pin!(agent.stop(grace));
    if tokio::time::timeout(QUIET_STOP, &mut stopping).await.is_err() {
        eprint_line(&waiting_for(open(), grace));
        stopping.await;
    }
    if let Some(requests) = requests {
        requests.finish().await;
    }
    if let Some(service) = service {
        // What the agent has sent last is still on its way to the visitors.
        service.stop(grace.saturating_sub(began.elapsed()).max(MIN_SERVICE_GRACE)).await;
    }
}

/// What an agent waits for that does not stop at once.
fn waiting_for(connections: i64, grace: Duration) -> String {
    let plural = if connections == 1 { "" } else { "s" };
    let seconds = grace.as_secs_f64();
    format!(
        "waiting up to {seconds} s for {connections} open connection{plural} of visitors; Ctrl-C again stops now"
    )
}

/// A terminal that is drawn on has no place for it; what goes on is seen there.
fn report_nothing_reloaded(is_drawn: bool) {
    if !(is_drawn && std::io::stderr().is_terminal()) {
        eprint_line(NOTHING_TO_READ);
    }
}

fn connect_to(options: &mut AgentOptions, service: &Service) {
    options.server_addrs = service.agent_address().map(HostPort::from).into_iter().collect();
    options.authtoken = service.authtoken().cloned().unwrap_or_default();
    options.trust = Trust::Pem(service.gateway().authority().pem().as_bytes().to_vec());
    let own = service.url().strip_prefix("http://").map(str::parse::<std::net::SocketAddr>);
    options.closed.extend(own.and_then(Result::ok));
}

/// Starts tunnels and tells what happens, until the agent ends; fails when it was refused.
async fn run_view(
    agent: &mut Agent,
    tunnels: Vec<Definition>,
    view: AgentView,
) -> CommandResult<()> {
    match view {
        AgentView::Console(console) => run_console(agent, tunnels, *console).await?,
        AgentView::Lines(event_log) => run_event_log(agent, tunnels, event_log).await?,
        AgentView::Ngrok(follower) => run_follower(agent, tunnels, follower).await?,
    }
    agent.refusal().map_or(Ok(()), |refusal| Err(refusal.into()))
}

async fn run_console(
    agent: &Agent,
    tunnels: Vec<Definition>,
    mut console: Console,
) -> CommandResult<()> {
    let is_started = tokio::select! {
        started = start_all(agent, tunnels) => started?,
        () = console.show_connecting(agent) => false,
    };
    if is_started {
        console.show_until_ended(agent).await;
    }
    Ok(())
}

async fn run_event_log(
    agent: &Agent,
    tunnels: Vec<Definition>,
    event_log: EventLog,
) -> CommandResult<()> {
    event_log.log_addresses(agent);
    let is_started = tokio::select! {
        started = start_all(agent, tunnels) => started?,
        () = event_log.log_errors(agent) => false,
    };
    if is_started {
        let mut targets = TargetWatch::start(agent);
        event_log.log_tunnels(agent, &targets.first_states().await);
        tokio::select! {
            () = event_log.log_session(agent) => {}
            () = event_log.log_targets(targets) => {}
        }
    }
    Ok(())
}

async fn run_follower(
    agent: &Agent,
    tunnels: Vec<Definition>,
    mut follower: EventFollower,
) -> CommandResult<()> {
    let is_started = tokio::select! {
        started = start_all(agent, tunnels) => started?,
        () = follower.run(agent) => false,
    };
    if is_started {
        follower.run(agent).await;
    }
    Ok(())
}

/// Waits for the session, and starts the tunnels; false when the agent ends before that.
async fn start_all(agent: &Agent, tunnels: Vec<Definition>) -> CommandResult<bool> {
    for definition in tunnels {
        start_one(agent, definition).await?;
    }
    Ok(wait_until_online(agent).await)
}

/// Starts a tunnel; a session that is lost meanwhile is waited for again.
async fn start_one(agent: &Agent, definition: Definition) -> CommandResult<()> {
    while wait_until_online(agent).await {
        match agent.start_tunnel(definition.clone()).await {
            Err(StartError::Bind(TunnelBindError::Offline | TunnelBindError::Lost(_))) => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            started => return Ok(started.map(drop)?),
        }
    }
    Ok(())
}

/// Waits until the agent is online; false when it has ended instead.
pub(crate) async fn wait_until_online(agent: &Agent) -> bool {
    let mut state = agent.watch_state();
    let settled = state
        .wait_for(|state| matches!(state, SessionState::Online(_) | SessionState::Offline))
        .await;
    matches!(settled.as_deref(), Ok(SessionState::Online(_)))
}

/// How what happens is shown.
enum AgentView {
    Console(Box<Console>),
    Lines(EventLog),
    Ngrok(EventFollower),
}

impl AgentView {
    fn from_options(
        options: ViewOptions,
        agent: &Agent,
        service: Option<&Service>,
    ) -> CommandResult<Self> {
        let (requested, as_json, shows_key) = match options {
            ViewOptions::Ngrok(log) => return Ok(Self::Ngrok(EventFollower::new(log, agent))),
            ViewOptions::Lines { requested, as_json, shows_key } => (requested, as_json, shows_key),
        };
        let on_terminal = !as_json && requested != Some(false) && std::io::stdout().is_terminal();
        if on_terminal || requested == Some(true) && !as_json {
            return Ok(Self::Console(Box::new(Console::new(agent, service, shows_key))));
        }
        let event_log = EventLog::start(as_json, UrlKind::for_service(service))?;
        if let Some(service) = service {
            event_log.log_service(service, shows_key);
        }
        Ok(Self::Lines(event_log))
    }

    /// Returns the writer of the lines, if the view consists of lines.
    fn line_writer(&self) -> Option<LineWriter> {
        match self {
            Self::Lines(event_log) => Some(event_log.line_writer().clone()),
            Self::Ngrok(follower) => follower.line_writer().cloned(),
            Self::Console(_) => None,
        }
    }

    /// Tells of requests from now on, where that takes a line each.
    fn start_request_log(&self, agent: &Agent) -> Option<RequestLog> {
        match self {
            Self::Lines(event_log) => {
                Some(RequestLog::start(event_log.clone(), agent.captures().clone()))
            }
            Self::Console(_) | Self::Ngrok(_) => None,
        }
    }
}
