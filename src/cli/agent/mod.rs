//! Commands that run an agent: `agent`, `http`, `tcp`, `tls`, `start` and `dev`.
//!
//! What happens is told in a view that lives on a terminal (`console`), or line by line (`event_log`).

mod console;
mod event_log;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value};

use console::Console;
use event_log::{EventLog, RequestLog};

use crate::agent::config::{self, AgentConfig, SECTIONS, usual_path};
use crate::agent::definition::Definition;
use crate::agent::{self, Agent, AgentOptions, SessionState, StartError, Trust, TunnelBindError};
use crate::api::{mask, yaml};
use crate::cli::error::{CliError, Exit};
use crate::cli::output::complain;
use crate::cli::signals::{NOTHING_TO_READ, Signals, on_hangup};
use crate::cli::{admin, grace, log_file, logging, runtime, settings};
use crate::service::{self, Service};
use crate::settings::ResolvedSettings;

/// The variable that may hold the authtoken; command lines are for all to see.
const AUTHTOKEN_VARIABLE: &str = "GINNEL_AUTHTOKEN";
/// The variable that may say where the service takes agents.
const SERVER_ADDR_VARIABLE: &str = "GINNEL_SERVER_ADDR";
/// How long to wait before a tunnel is started again whose session was lost.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How long a service beside the agent has at least to bring the last answers to their visitors.
const MIN_SERVICE_GRACE: Duration = Duration::from_secs(1);
/// The name of a tunnel that the command line defines.
const UNNAMED: &str = "command_line";
/// Whether the admin key of the service beside the agent is shown.
const SHOW_KEY: &str = "show-key";

pub(in crate::cli) fn agent() -> Command {
    connecting(running(Command::new("agent")))
        .about("Run an agent; tunnels are started through its API")
        .after_help("Example:\n  ginnel agent --server-addr 127.0.0.1:4443 --ca ginnel.db-ca.pem")
}

pub(in crate::cli) fn http() -> Command {
    connecting(http_tunnel())
}

pub(in crate::cli) fn tcp() -> Command {
    connecting(tcp_tunnel())
}

pub(in crate::cli) fn tls() -> Command {
    connecting(tls_tunnel())
}

pub(in crate::cli) fn start() -> Command {
    connecting(running(Command::new("start")))
        .about("Start tunnels of the configuration file")
        .arg(Arg::new("name").num_args(0..).help("The names of the tunnels"))
        .arg(switch("all", "Start all tunnels"))
}

pub(in crate::cli) fn dev() -> Command {
    let show_key = || switch(SHOW_KEY, "Show the admin key of the service");
    Command::new("dev")
        .about("Run a service and an agent together: one command, no account")
        .after_help("Example:\n  ginnel dev http 8080")
        .subcommand_required(true)
        .subcommands([http_tunnel(), tcp_tunnel(), tls_tunnel()].map(|it| it.arg(show_key())))
}

fn http_tunnel() -> Command {
    tunnel("http", "Make a local web service public")
        .arg(text(
            "host-header",
            "HOST",
            "The Host header that the local service gets: preserve, rewrite or a value",
        ))
        .arg(text("app-protocol", "PROTOCOL", "What the local service speaks: http1 or http2"))
        .arg(text("domain", "HOST", "The public host name"))
        .arg(text(
            "subdomain",
            "NAME",
            "The first label of the public host, below the service's base domain",
        ))
        .arg(switch("no-inspect", "Do not capture requests"))
}

fn tcp_tunnel() -> Command {
    tunnel("tcp", "Make a local TCP port public").arg(text(
        "remote-addr",
        "HOST:PORT",
        "The public address",
    ))
}

fn tls_tunnel() -> Command {
    tunnel("tls", "Make a local TLS port public; the local service terminates TLS").arg(text(
        "domain",
        "HOST",
        "The public host name",
    ))
}

fn tunnel(name: &'static str, about: &'static str) -> Command {
    running(Command::new(name))
        .about(about)
        .arg(
            Arg::new("addr")
                .required(true)
                .value_name("ADDR")
                .help("Where to forward to: a port, host:port or a URL"),
        )
        .arg(text("name", "NAME", "The tunnel's name").default_value(UNNAMED))
        .arg(file("policy-file", "A traffic policy, JSON or YAML"))
        .arg(file(
            "definition-file",
            "More fields of the tunnel's definition, JSON or YAML; they may be secret",
        ))
}

/// The options of agents that connect to a service elsewhere.
fn connecting(command: Command) -> Command {
    let keys = ["server_addr", "root_cas", "authtoken_file"];
    let flags = keys.into_iter().filter_map(|key| settings::single_argument(SECTIONS, key));
    command.arg(config_argument()).args(flags)
}

/// The options of every agent.
fn running(command: Command) -> Command {
    command
        .args(settings::single_argument(SECTIONS, "web_addr"))
        .arg(admin::argument())
        .args(logging::arguments())
        .arg(grace::argument())
        .arg(switch("json", "Print one JSON object for each event"))
}

pub(in crate::cli) fn config_argument() -> Arg {
    file("config", "The configuration file; may be given more than once").action(ArgAction::Append)
}

fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn file(name: &'static str, help: &'static str) -> Arg {
    text(name, "FILE", help).value_parser(value_parser!(PathBuf))
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

pub(in crate::cli) fn run_agent(matches: &ArgMatches) -> Result<(), CliError> {
    let config = read_config(matches)?;
    let (options, console) = (options(&config)?, config.console.is_shown());
    run(LaunchPlan { options, tunnels: Vec::new(), matches, console, service: None })
}

pub(in crate::cli) fn run_http(matches: &ArgMatches) -> Result<(), CliError> {
    run_one("http", matches)
}

pub(in crate::cli) fn run_tcp(matches: &ArgMatches) -> Result<(), CliError> {
    run_one("tcp", matches)
}

pub(in crate::cli) fn run_tls(matches: &ArgMatches) -> Result<(), CliError> {
    run_one("tls", matches)
}

fn run_one(proto: &str, matches: &ArgMatches) -> Result<(), CliError> {
    let config = read_config(matches)?;
    let tunnels = vec![definition(proto, matches)?];
    let (options, console) = (options(&config)?, config.console.is_shown());
    run(LaunchPlan { options, tunnels, matches, console, service: None })
}

pub(in crate::cli) fn run_start(matches: &ArgMatches) -> Result<(), CliError> {
    let config = read_config(matches)?;
    let named = matches.get_many::<String>("name").into_iter().flatten().cloned();
    let names: Vec<String> = match matches.get_flag("all") {
        true => config.tunnels.keys().cloned().collect(),
        false => named.collect(),
    };
    if names.is_empty() {
        return Err(CliError::usage("name the tunnels to start, or pass --all"));
    }
    let tunnels = names.iter().map(|name| config.tunnel(name));
    let tunnels = tunnels.collect::<Result<Vec<_>, _>>()?;
    let (options, console) = (options(&config)?, config.console.is_shown());
    run(LaunchPlan { options, tunnels, matches, console, service: None })
}

pub(in crate::cli) fn run_dev(matches: &ArgMatches) -> Result<(), CliError> {
    let Some((proto, matches)) = matches.subcommand() else {
        return Err(CliError::usage("no protocol given: use http, tcp or tls"));
    };
    let tunnels = vec![definition(proto, matches)?];
    // Where the service is becomes known when it runs.
    let flags = settings::flags_alone(matches, config::load).map_err(settings::refused)?;
    let options = flags.config.local_options();
    let service = Some(service::Options::default());
    run(LaunchPlan { options, tunnels, matches, console: None, service })
}

fn read_config(matches: &ArgMatches) -> Result<AgentConfig, CliError> {
    Ok(load_config(matches)?.config)
}

/// The configuration that files, environment and flags make.
pub(in crate::cli) fn load_config(
    matches: &ArgMatches,
) -> Result<ResolvedSettings<AgentConfig>, CliError> {
    let mut paths: Vec<_> =
        matches.get_many::<PathBuf>("config").into_iter().flatten().cloned().collect();
    if paths.is_empty() {
        paths.extend(usual_path().filter(|path| path.exists()));
    }
    let files = paths.iter().map(|path| config::read_file(path)).collect::<Result<Vec<_>, _>>();
    let files = files.map_err(CliError::usage)?;
    let loaded = settings::with_sources(matches, &files, config::load);
    let mut loaded = loaded.map_err(settings::refused)?;
    let idle = config::without_effect(&loaded);
    if !idle.is_empty() {
        complain(&format!("no effect here: {}", idle.join(", ")));
    }
    let is_file = loaded.outweighs("authtoken_file", "authtoken");
    if let Some(path) = loaded.config.authtoken_file.as_ref().filter(|_| is_file) {
        loaded.config.authtoken = Some(service::read_authtoken(path)?);
    }
    Ok(loaded)
}

fn options(config: &AgentConfig) -> Result<AgentOptions, CliError> {
    if config.server_addr.is_empty() {
        let problem =
            format!("server_addr is missing; pass --server-addr or set {SERVER_ADDR_VARIABLE}");
        return Err(CliError::usage(problem));
    }
    if config.authtoken.is_none() {
        let problem =
            format!("authtoken is missing; pass --authtoken-file or set {AUTHTOKEN_VARIABLE}");
        return Err(CliError::usage(problem));
    }
    Ok(config.options()?)
}

/// The definition that a command line gives.
fn definition(proto: &str, matches: &ArgMatches) -> Result<Definition, CliError> {
    let mut definition = match matches.get_one::<PathBuf>("definition-file") {
        Some(path) => read_object(path)?,
        None => Map::new(),
    };
    definition.insert("proto".to_owned(), proto.into());
    for (argument, field) in [
        ("addr", "addr"),
        ("name", "name"),
        ("host-header", "host_header"),
        ("app-protocol", "app_protocol"),
        ("domain", "domain"),
        ("subdomain", "subdomain"),
        ("remote-addr", "remote_addr"),
    ] {
        if let Ok(Some(value)) = matches.try_get_one::<String>(argument) {
            definition.insert(field.to_owned(), value.as_str().into());
        }
    }
    if matches.try_get_one::<bool>("no-inspect").ok().flatten() == Some(&true) {
        definition.insert("inspect".to_owned(), false.into());
    }
    if let Some(path) = matches.get_one::<PathBuf>("policy-file") {
        definition.insert("traffic_policy".to_owned(), read_file(path)?.into());
    }
    Definition::read(&definition).map_err(|problems| CliError::usage(problems.join("; ")))
}

fn read_file(path: &PathBuf) -> Result<String, CliError> {
    let read = std::fs::read_to_string(path);
    read.map_err(|error| CliError::usage(format!("{}: {error}", mask::path(path))))
}

fn read_object(path: &PathBuf) -> Result<Map<String, Value>, CliError> {
    let read = yaml::read(&read_file(path)?);
    read.map_err(|error| CliError::usage(format!("{}: {error}", mask::path(path))))
}

/// What is to be run.
struct LaunchPlan<'a> {
    options: AgentOptions,
    tunnels: Vec<Definition>,
    matches: &'a ArgMatches,
    /// Whether the console is wanted; none is where there is a terminal.
    console: Option<bool>,
    /// A service to run beside the agent, which then connects to it.
    service: Option<service::Options>,
}

fn run(plan: LaunchPlan<'_>) -> Result<(), CliError> {
    let runtime = runtime::start()?;
    let ended = runtime.block_on(serve(plan));
    runtime.shutdown_background();
    ended
}

async fn serve(plan: LaunchPlan<'_>) -> Result<(), CliError> {
    let mut signals = Signals::new()?;
    let grace = grace::read(plan.matches);
    let admin_addr = admin::read(plan.matches);
    let mut options = AgentOptions { grace, admin_addr, ..plan.options };
    let service = match plan.service {
        Some(requested) => Some(Service::start(requested).await?),
        None => None,
    };
    if let Some(service) = &service {
        connect_to(&mut options, service);
    }
    let mut agent = Agent::start(options).await?;
    let view = AgentView::of(plan.matches, plan.console, service.as_ref());
    let requests = view.requests(&agent);
    let is_drawn = matches!(view, AgentView::Console(_));
    on_hangup(move || {
        if !log_file::reopen() {
            say_nothing_to_read(is_drawn);
        }
    })?;
    let ended = tokio::select! {
        ended = carry(&mut agent, plan.tunnels, view) => ended,
        () = signals.next() => Ok(()),
    };
    tokio::select! {
        () = stop(agent, requests, service, grace) => ended,
        () = signals.next() => Err(CliError::second_signal()),
    }
}

/// Ends the agent, and then the service beside it: within `grace`, as far as that is theirs.
async fn stop(
    agent: Agent,
    requests: Option<RequestLog>,
    service: Option<Service>,
    grace: Duration,
) {
    let began = Instant::now();
    agent.stop(grace).await;
    if let Some(requests) = requests {
        requests.finish().await;
    }
    if let Some(service) = service {
        // What the agent has sent last is still on its way to the visitors.
        service.stop(grace.saturating_sub(began.elapsed()).max(MIN_SERVICE_GRACE)).await;
    }
}

/// A terminal that is drawn on has no place for it; what goes on is seen there.
fn say_nothing_to_read(is_drawn: bool) {
    if !(is_drawn && std::io::stderr().is_terminal()) {
        complain(NOTHING_TO_READ);
    }
}

fn connect_to(options: &mut AgentOptions, service: &Service) {
    options.server_addrs = service.agent_address().iter().map(ToString::to_string).collect();
    options.authtoken = service.authtoken().cloned().unwrap_or_default();
    options.trust = Trust::Pem(service.gateway().authority().pem().as_bytes().to_vec());
    let own = service.url().strip_prefix("http://").map(str::parse::<std::net::SocketAddr>);
    options.closed.extend(own.and_then(Result::ok));
}

/// Starts tunnels and tells what happens, until the agent ends; fails when it was refused.
async fn carry(
    agent: &mut Agent,
    tunnels: Vec<Definition>,
    view: AgentView,
) -> Result<(), CliError> {
    match view {
        AgentView::Console(console) => draw(agent, tunnels, console).await?,
        AgentView::Lines(event_log) => print(agent, tunnels, event_log).await?,
    }
    agent.refusal().map_or(Ok(()), |refusal| Err(refusal.into()))
}

async fn draw(
    agent: &Agent,
    tunnels: Vec<Definition>,
    mut console: Console,
) -> Result<(), CliError> {
    let is_started = tokio::select! {
        started = start_all(agent, tunnels) => started?,
        () = console.wait(agent) => false,
    };
    if is_started {
        console.live(agent).await;
    }
    Ok(())
}

async fn print(
    agent: &Agent,
    tunnels: Vec<Definition>,
    event_log: EventLog,
) -> Result<(), CliError> {
    event_log.agent(agent);
    let is_started = tokio::select! {
        started = start_all(agent, tunnels) => started?,
        () = event_log.errors(agent) => false,
    };
    if is_started {
        event_log.tunnels(agent);
        event_log.live(agent).await;
    }
    Ok(())
}

/// Waits for the session, and starts the tunnels; false when the agent ends before that.
async fn start_all(agent: &Agent, tunnels: Vec<Definition>) -> Result<bool, CliError> {
    for definition in tunnels {
        start_one(agent, definition).await?;
    }
    Ok(online(agent).await)
}

/// Starts a tunnel; a session that is lost meanwhile is waited for again.
async fn start_one(agent: &Agent, definition: Definition) -> Result<(), CliError> {
    while online(agent).await {
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
async fn online(agent: &Agent) -> bool {
    let mut state = agent.watch();
    let settled = state
        .wait_for(|state| matches!(state, SessionState::Online(_) | SessionState::Offline))
        .await;
    matches!(settled.as_deref(), Ok(SessionState::Online(_)))
}

/// How what happens is told.
enum AgentView {
    Console(Console),
    Lines(EventLog),
}

impl AgentView {
    fn of(matches: &ArgMatches, requested: Option<bool>, service: Option<&Service>) -> Self {
        let as_json = matches.get_flag("json");
        let shows_key = matches.try_get_one(SHOW_KEY).ok().flatten() == Some(&true);
        let on_terminal = !as_json && requested != Some(false) && std::io::stdout().is_terminal();
        if on_terminal || requested == Some(true) && !as_json {
            return Self::Console(Console::new(service, shows_key));
        }
        let event_log = EventLog { as_json };
        if let Some(service) = service {
            event_log.service(service, shows_key);
        }
        Self::Lines(event_log)
    }

    /// Tells of requests from now on, where that takes a line each.
    fn requests(&self, agent: &Agent) -> Option<RequestLog> {
        match self {
            Self::Lines(event_log) => Some(RequestLog::start(*event_log, agent.captures().clone())),
            Self::Console(_) => None,
        }
    }
}

impl From<agent::Error> for CliError {
    fn from(error: agent::Error) -> Self {
        let exit = match &error {
            agent::Error::Listen { .. } | agent::Error::AdminAddress { .. } => Exit::Address,
            agent::Error::Refused(_) => Exit::Denied,
            _ => Exit::Usage,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        let exit = match &error {
            StartError::Definition(_) => Exit::Usage,
            StartError::Bind(error) if error.is_fault() => Exit::Server,
            _ => Exit::Refused,
        };
        Self::new(exit, error.to_string())
    }
}
