//! Commands that run an agent: `agent`, `http`, `tcp`, `tls`, `start` and `dev`.
//!
//! What happens is told in a view that lives on a terminal (`console`), or line by line (`event_log`).

mod conflicts;
mod console;
mod event_log;
mod launch;
mod targets;

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::Map;

pub(crate) use conflicts::find_conflicts;
pub(crate) use event_log::UNNAMED;
use launch::SHOW_KEY;
pub(crate) use launch::{LaunchPlan, ViewOptions, launch_agent, wait_until_online};

use ginnel_agent::config::{self, AgentConfig, NGROK_LOG, SECTIONS, WITHOUT_EFFECT, usual_path};
use ginnel_agent::definition::Definition;
use ginnel_agent::{self as agent, AgentOptions, StartError};
use ginnel_api::mask;
use ginnel_net::secret_file::take_readable_files;
use ginnel_service as service;
use ginnel_settings::ResolvedSettings;

use crate::error::{CliError, CommandResult, Exit};
use crate::help::HelpRank;
use crate::output::eprint_line;
use crate::{admin, grace, logging, settings, variables};

/// The variable that may hold the authtoken; command lines are for all to see.
const AUTHTOKEN_VARIABLE: &str = "GINNEL_AUTHTOKEN";
/// The variable that may say where the service takes agents.
pub(crate) const SERVER_ADDR_VARIABLE: &str = "GINNEL_SERVER_ADDR";
/// The page for users who have no service.
const HOSTING_GUIDE: &str = "docs/operate/public-url.md, \"Get a public URL\"";
/// The command that shares a local service without a service elsewhere.
const LOCAL_COMMAND: &str = "ginnel dev http 8080";

/// Groups of options in the help.
const TUNNELS: &str = "Tunnel";
const PROCESS: &str = "Process";
const MONITORING: &str = "Monitoring";

pub(crate) fn agent_command() -> Command {
    with_run_arguments(with_connection_arguments(Command::new("agent")))
        .about("Run an agent whose tunnels are started through its API")
        .after_help("Example:\n  ginnel agent --server-addr 127.0.0.1:4443 --ca ginnel.db-ca.pem")
}

pub(crate) fn http_command() -> Command {
    with_run_arguments(with_connection_arguments(http_tunnel()))
}

pub(crate) fn tcp_command() -> Command {
    with_run_arguments(with_connection_arguments(tcp_tunnel()))
}

pub(crate) fn tls_command() -> Command {
    with_run_arguments(with_connection_arguments(tls_tunnel()))
}

pub(crate) fn start_command() -> Command {
    let command = Command::new("start")
        .about("Start tunnels of the configuration file")
        .arg(Arg::new("name").num_args(0..).help("Names of the tunnels"))
        .arg(switch_argument("all", "Start all tunnels").help_heading(TUNNELS));
    with_run_arguments(with_connection_arguments(command))
}

pub(crate) fn dev_command() -> Command {
    let show_key =
        || switch_argument(SHOW_KEY, "Show the admin key of the service").help_heading(PROCESS);
    Command::new("dev")
        .about("Share a port on this machine, with a service of its own")
        .after_help("Example:\n  ginnel dev http 8080")
        .subcommand_required(true)
        .subcommands(
            [http_tunnel(), tcp_tunnel(), tls_tunnel()]
                .map(|it| with_run_arguments(it).arg(show_key())),
        )
}

fn http_tunnel() -> Command {
    let options = [
        text_argument("domain", "HOST", "Public host name"),
        text_argument(
            "subdomain",
            "NAME",
            "First label of the public host, below the service's base domain",
        ),
        text_argument(
            "host-header",
            "HOST",
            "Host header that the local service gets: preserve, rewrite or a value",
        ),
        text_argument("app-protocol", "PROTOCOL", "Protocol of the local service: http1 or http2")
            .rare(),
        switch_argument("no-inspect", "Do not capture requests").rare(),
    ];
    tunnel_command("http", "Share a local web service", options)
}

fn tcp_tunnel() -> Command {
    let options = [text_argument("remote-addr", "HOST:PORT", "Public address")];
    tunnel_command("tcp", "Share a local TCP port", options)
}

fn tls_tunnel() -> Command {
    let options = [text_argument("domain", "HOST", "Public host name")];
    tunnel_command("tls", "Share a local TLS port; the local service terminates TLS", options)
}

/// A command that starts one tunnel, with the options of its protocol first.
fn tunnel_command<const N: usize>(
    name: &'static str,
    about: &'static str,
    of_protocol: [Arg; N],
) -> Command {
    let of_all = [
        file_argument("policy-file", "File with a traffic policy, as JSON or YAML"),
        file_argument(
            "definition-file",
            "File with more fields of the tunnel's definition, as JSON or YAML; they may be secret",
        )
        .rare(),
        text_argument("name", "NAME", "Name of the tunnel").default_value(UNNAMED).rare(),
        switch_argument(
            "pooling-enabled",
            "Share the URL, and its load, with other endpoints that do",
        )
        .rare(),
    ];
    let options = of_protocol.into_iter().chain(of_all);
    Command::new(name)
        .about(about)
        .arg(
            Arg::new("addr")
                .required(true)
                .value_name("ADDR")
                .help("Address of the local service: a port, host:port or a URL"),
        )
        .args(options.map(|option| option.help_heading(TUNNELS)))
}

/// The options of agents that connect to a service elsewhere.
fn with_connection_arguments(command: Command) -> Command {
    let keys = ["server_addr", "root_cas", "authtoken_file"];
    let flags = keys.into_iter().filter_map(|key| settings::single_argument(SECTIONS, key));
    command.args(flags).arg(config_argument().help_heading("Configuration"))
}

/// The options of every agent.
fn with_run_arguments(command: Command) -> Command {
    command
        .args(settings::single_argument(SECTIONS, "web_addr"))
        .args(settings::single_argument(SECTIONS, "inspect_file"))
        .args(
            [
                switch_argument("json", "Print one JSON object for each event"),
                grace::grace_argument().rare(),
            ]
            .map(|option| option.help_heading(PROCESS)),
        )
        .arg(admin::admin_addr_argument().help_heading(MONITORING).rare())
        .args(logging::log_arguments().map(|option| option.help_heading(MONITORING).rare()))
}

pub(crate) fn config_argument() -> Arg {
    file_argument("config", "Configuration file; may be given more than once")
        .action(ArgAction::Append)
}

fn text_argument(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn file_argument(name: &'static str, help: &'static str) -> Arg {
    text_argument(name, "FILE", help).value_parser(value_parser!(PathBuf))
}

fn switch_argument(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

pub(crate) fn run_agent(matches: &ArgMatches) -> CommandResult<()> {
    let loaded = load_config(matches)?;
    launch_tunnels(matches, &loaded, Vec::new(), LOCAL_COMMAND)
}

pub(crate) fn run_http(matches: &ArgMatches) -> CommandResult<()> {
    run_one("http", matches)
}

pub(crate) fn run_tcp(matches: &ArgMatches) -> CommandResult<()> {
    run_one("tcp", matches)
}

pub(crate) fn run_tls(matches: &ArgMatches) -> CommandResult<()> {
    run_one("tls", matches)
}

fn run_one(proto: &str, matches: &ArgMatches) -> CommandResult<()> {
    let loaded = load_config(matches)?;
    let tunnels = vec![tunnel_definition(proto, matches)?];
    launch_tunnels(matches, &loaded, tunnels, &local_command(proto, matches))
}

pub(crate) fn run_start(matches: &ArgMatches) -> CommandResult<()> {
    let loaded = load_config(matches)?;
    let config = &loaded.config;
    let names = tunnel_names(config, matches)?;
    if names.is_empty() {
        return Err(CliError::usage("name the tunnels to start, or pass --all"));
    }
    let tunnels = names.iter().map(|name| config.tunnel_definition(name));
    let tunnels = tunnels.collect::<Result<Vec<_>, _>>()?;
    let problems = find_conflicts(config, names.iter().map(String::as_str).zip(&tunnels));
    if !problems.is_empty() {
        return Err(settings::report_problems(problems));
    }
    launch_tunnels(matches, &loaded, tunnels, LOCAL_COMMAND)
}

/// The names of the tunnels to start: those of `--all`, or those that are given.
///
/// # Errors
/// Where there are none for `--all`.
pub(crate) fn tunnel_names(
    config: &AgentConfig,
    matches: &ArgMatches,
) -> CommandResult<Vec<String>> {
    let named = matches.get_many::<String>("name").into_iter().flatten().cloned();
    match matches.get_flag("all") {
        true if config.tunnels.is_empty() => {
            let problem = "--all: the configuration has no tunnels or endpoints to start";
            Err(CliError::new(Exit::NotFound, problem))
        }
        true => Ok(config.tunnels.keys().cloned().collect()),
        false => Ok(named.collect()),
    }
}

pub(crate) fn run_dev(matches: &ArgMatches) -> CommandResult<()> {
    let Some((proto, matches)) = matches.subcommand() else {
        return Err(CliError::usage("no protocol given: use http, tcp or tls"));
    };
    let tunnels = vec![tunnel_definition(proto, matches)?];
    // Where the service is becomes known when it runs.
    let flags =
        settings::flags_alone(matches, config::load_config).map_err(settings::report_problems)?;
    let options = flags.config.local_options();
    let service = Some(service::Options::default());
    launch_agent(LaunchPlan { service, ..LaunchPlan::new(matches, options, tunnels, None) })
}

fn launch_tunnels(
    matches: &ArgMatches,
    loaded: &ResolvedSettings<AgentConfig>,
    tunnels: Vec<Definition>,
    local: &str,
) -> CommandResult<()> {
    let (options, console) = (agent_options(loaded, local)?, loaded.config.console.is_shown());
    launch_agent(LaunchPlan::new(matches, options, tunnels, console))
}

/// The configuration that files, environment and flags make.
pub(crate) fn load_config(matches: &ArgMatches) -> CommandResult<ResolvedSettings<AgentConfig>> {
    let mut paths: Vec<_> =
        matches.get_many::<PathBuf>("config").into_iter().flatten().cloned().collect();
    if paths.is_empty() {
        paths.extend(usual_path().filter(|path| path.exists()));
    }
    let files = paths.iter().map(|path| config::read_file(path)).collect::<Result<Vec<_>, _>>();
    let files = files.map_err(CliError::usage)?;
    let loaded = settings::with_sources(matches, &files, config::load_config);
    let mut loaded = loaded.map_err(settings::report_problems)?;
    let idle = config::without_effect(&loaded, &[NGROK_LOG, WITHOUT_EFFECT]);
    if !idle.is_empty() {
        eprint_line(&format!("no effect here: {}", idle.join(", ")));
    }
    variables::report_unknown();
    apply_authtoken_file(&mut loaded)?;
    take_readable_files().iter().for_each(|warning| eprint_line(warning));
    Ok(loaded)
}

/// Reads the file of the authtoken, unless the authtoken itself has the say.
pub(crate) fn apply_authtoken_file(
    loaded: &mut ResolvedSettings<AgentConfig>,
) -> CommandResult<()> {
    let is_file = loaded.takes_precedence("authtoken_file", "authtoken");
    if let Some(path) = loaded.config.authtoken_file.as_ref().filter(|_| is_file) {
        let read = service::read_authtoken(path);
        let read = read.map_err(|error| CliError {
            message: loaded.describe_problem("authtoken_file", &error.to_string()),
            ..error.into()
        });
        loaded.config.authtoken = Some(read?);
    }
    Ok(())
}

/// Returns the problems of the options that keep an agent from starting, each with its place.
pub(crate) fn option_problems(loaded: &ResolvedSettings<AgentConfig>) -> Vec<String> {
    let problems = loaded.config.option_problems();
    problems.iter().map(|problem| locate_problem(loaded, problem)).collect()
}

/// Returns the text of a problem, with the file, the variable or the flag that it comes from.
pub(crate) fn locate_problem(
    loaded: &ResolvedSettings<AgentConfig>,
    problem: &agent::Error,
) -> String {
    match problem {
        agent::Error::Option { option, problem } => loaded.describe_problem(option, problem),
        problem => problem.to_string(),
    }
}

fn agent_options(
    loaded: &ResolvedSettings<AgentConfig>,
    local: &str,
) -> CommandResult<AgentOptions> {
    let config = &loaded.config;
    if config.server_addr.is_empty() {
        return Err(missing_service(local));
    }
    if config.authtoken.is_none() {
        let problem =
            format!("authtoken is missing; pass --authtoken-file or set {AUTHTOKEN_VARIABLE}");
        return Err(CliError::usage(problem));
    }
    let problems = option_problems(loaded);
    if !problems.is_empty() {
        return Err(settings::report_problems(problems));
    }
    Ok(config.agent_options()?)
}

/// The error of a command that needs a service, with the choices of a user who has none.
///
/// `local` is the command that does the same on this machine.
fn missing_service(local: &str) -> CliError {
    CliError::usage(format!(
        "server_addr is missing; for a URL on this machine, run `{local}`; for a public URL, pass \
         --server-addr (or set {SERVER_ADDR_VARIABLE}) with the address of a service; to host a service, \
         see {HOSTING_GUIDE}"
    ))
}

/// Returns the command of `ginnel dev` that shares the same local service.
fn local_command(proto: &str, matches: &ArgMatches) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ":/._-[]".contains(letter);
    let addr = matches.get_one::<String>("addr").filter(|addr| addr.chars().all(is_plain));
    format!("ginnel dev {proto} {}", addr.map_or("ADDR", String::as_str))
}

/// The definition that a command line gives.
fn tunnel_definition(proto: &str, matches: &ArgMatches) -> CommandResult<Definition> {
    let mut definition = match matches.get_one::<PathBuf>("definition-file") {
        Some(path) => config::read_definition(path, &read_file(path)?).map_err(CliError::usage)?,
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
    if matches.get_flag("pooling-enabled") {
        definition.insert("pooling_enabled".to_owned(), true.into());
    }
    if let Some(path) = matches.get_one::<PathBuf>("policy-file") {
        definition.insert("traffic_policy".to_owned(), read_file(path)?.into());
    }
    Definition::from_document(&definition).map_err(|problems| CliError::usage(problems.join("; ")))
}

pub(crate) fn read_file(path: &PathBuf) -> CommandResult<String> {
    let read = std::fs::read_to_string(path);
    read.map_err(|error| CliError::usage(format!("{}: {error}", mask::path(path))))
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
