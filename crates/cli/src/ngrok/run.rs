//! `start`, `http`, `tcp` and `tls` of a program called `ngrok`.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use ginnel_agent::AgentOptions;
use ginnel_agent::config::{
    self, AgentConfig, NgrokLogConfig, NgrokLogFormat, NgrokLogLevel, SECTIONS, WITHOUT_EFFECT,
    usual_path,
};
use ginnel_agent::definition::Definition;
use ginnel_api::{Secret, mask};
use ginnel_settings::{ResolvedSettings, SettingSources};

use super::log::NgrokLog;
use super::places::config_paths;
use super::tunnel_flags;
use crate::agent::{
    LaunchPlan, SERVER_ADDR_VARIABLE, ViewOptions, apply_authtoken_file, launch_agent, tunnel_names,
};
use crate::error::{CliError, CommandResult, Exit};
use crate::{settings, variables};

/// How long visitors in flight may take at the end: whoever stops such a program does not wait long.
const GRACE: Duration = Duration::from_secs(5);
/// Variables that such a program knows, and ours.
const VARIABLES: [(&str, &str); 1] = [("GINNEL_AUTHTOKEN", "NGROK_AUTHTOKEN")];
pub(super) const AUTHTOKEN: &str = "authtoken";
const REGION: &str = "region";
const NONE: &str = "none";

/// The options of every command that has a log.
pub(super) fn log_arguments() -> [Arg; 3] {
    let option =
        |name, value, help| Arg::new(name).long(name).value_name(value).help(help).global(true);
    [
        option("log", "FILE", "Where the log goes: stdout, stderr, false or a file"),
        option("log-format", "FORMAT", "The form of the log").value_parser(NgrokLogFormat::NAMES),
        option("log-level", "LEVEL", "From which level on there are lines")
            .value_parser(NgrokLogLevel::NAMES),
    ]
}

/// The options of commands that connect to a service.
pub(super) fn with_connection_arguments(command: Command) -> Command {
    let keys = ["server_addr", "root_cas", "authtoken_file", "web_addr"];
    let flags = keys.into_iter().filter_map(|key| settings::single_argument(SECTIONS, key));
    command
        .args(flags.map(|flag| flag.help_heading(None::<&str>)))
        .arg(
            Arg::new(AUTHTOKEN)
                .long(AUTHTOKEN)
                .value_name("TOKEN")
                .help("The token that identifies the agent to the service"),
        )
        .arg(
            Arg::new(REGION).long(REGION).value_name("REGION").help("Accepted, and without effect"),
        )
}

pub(super) fn start_command() -> Command {
    let switch = |name, help| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    with_connection_arguments(Command::new("start"))
        .about("Start tunnels and endpoints of the configuration file")
        .arg(Arg::new("name").num_args(0..).help("The names of the tunnels"))
        .arg(switch("all", "Start all of them"))
        .arg(switch(NONE, "Start none; they are started through the agent API"))
}

pub(super) fn tunnel_command(name: &'static str, about: &'static str) -> Command {
    tunnel_flags::with_arguments(with_connection_arguments(Command::new(name)).about(about))
}

/// Runs `start`.
pub(super) fn run_start(matches: &ArgMatches) -> CommandResult<()> {
    with_log(matches, |config| {
        let names = tunnel_names(config, matches)?;
        if names.is_empty() != matches.get_flag(NONE) {
            return Err(CliError::usage("name the tunnels to start, or pass --all or --none"));
        }
        names.iter().map(|name| find_definition(config, name)).collect()
    })
}

/// Runs `http`, `tcp` or `tls`.
pub(super) fn run_tunnel(proto: &str, matches: &ArgMatches) -> CommandResult<()> {
    with_log(matches, |_| Ok(vec![tunnel_flags::tunnel_definition(proto, matches)?]))
}

fn find_definition(config: &AgentConfig, name: &str) -> CommandResult<Definition> {
    if config.tunnels.contains_key(name) {
        return Ok(config.tunnel_definition(name)?);
    }
    let known: Vec<_> = config.tunnels.keys().map(String::as_str).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let problem = format!("tunnel {name:?} is not defined; the configuration has {known}");
    Err(CliError::new(Exit::NotFound, problem))
}

/// Runs an agent that starts these tunnels; the log also has what keeps it from that.
fn with_log(
    matches: &ArgMatches,
    tunnels: impl FnOnce(&AgentConfig) -> CommandResult<Vec<Definition>>,
) -> CommandResult<()> {
    let loaded = load_config(matches);
    let config = loaded.as_ref().map(|loaded| loaded.config.log.clone()).unwrap_or_default();
    let log = Arc::new(NgrokLog::open(&log_config(matches, config))?);
    let ended = loaded.and_then(|loaded| {
        log_start(&log, matches, &loaded);
        let tunnels = tunnels(&loaded.config)?;
        launch_tunnels(matches, &loaded.config, tunnels, &log)
    });
    let ended = ended.map_err(|error| {
        let error = CliError { message: translate_listen_error(error.message), ..error };
        let fields = [("obj", "app"), ("err", error.message.as_str())];
        log.write_line(NgrokLogLevel::Error, "terminating with error", &fields);
        log.write_line(NgrokLogLevel::Critical, "command failed", &fields[1..]);
        error
    });
    log.flush();
    ended
}

/// What the flags say of the log goes before what files say.
fn log_config(matches: &ArgMatches, config: NgrokLogConfig) -> NgrokLogConfig {
    let word = |name| matches.get_one::<String>(name).cloned();
    let place = |names: &[&str], word: &String| names.iter().position(|name| name == word);
    let format = word("log-format").and_then(|word| place(&NgrokLogFormat::NAMES, &word));
    let level = word("log-level").and_then(|word| place(&NgrokLogLevel::NAMES, &word));
    NgrokLogConfig {
        output: word("log").or(config.output),
        format: format.map_or(config.format, |at| NgrokLogFormat::ALL[at]),
        level: level.map_or(config.level, |at| NgrokLogLevel::ALL[at]),
    }
}

/// Says what is run, by which files, and what of it has no effect.
fn log_start(log: &NgrokLog, matches: &ArgMatches, loaded: &ResolvedSettings<AgentConfig>) {
    let version = [("obj", "app"), ("version", env!("CARGO_PKG_VERSION"))];
    log.write_line(NgrokLogLevel::Info, "ginnel is called as ngrok", &version);
    for path in config_files(matches) {
        let fields = [("path", &*mask::path(&path)), ("err", "nil")];
        log.write_line(NgrokLogLevel::Info, "open config file", &fields);
    }
    for problem in variables::process_warnings() {
        log.write_line(NgrokLogLevel::Warn, &problem, &[("obj", "app")]);
    }
    let idle = config::without_effect(loaded, &[WITHOUT_EFFECT]);
    let region = matches.get_one::<String>(REGION).map(|_| "--region");
    for name in idle.into_iter().chain(region) {
        log.write_line(NgrokLogLevel::Warn, "no effect here", &[("obj", "app"), ("option", name)]);
    }
}

fn launch_tunnels(
    matches: &ArgMatches,
    config: &AgentConfig,
    tunnels: Vec<Definition>,
    log: &Arc<NgrokLog>,
) -> CommandResult<()> {
    let options = AgentOptions { serves_wrappers: true, ..agent_options(matches, config)? };
    let is_drawn = !log.is_on() && std::io::stdout().is_terminal();
    let console = config.console.is_shown();
    let view = match is_drawn && console != Some(false) {
        true => ViewOptions::Lines { requested: console, as_json: false, shows_key: false },
        false => ViewOptions::Ngrok(log.clone()),
    };
    launch_agent(LaunchPlan {
        options,
        tunnels,
        grace: GRACE,
        admin_addr: None,
        view,
        service: None,
    })
}

/// The options of an agent that only connects.
pub(super) fn connect_options(matches: &ArgMatches) -> CommandResult<AgentOptions> {
    agent_options(matches, &load_config(matches)?.config)
}

fn agent_options(matches: &ArgMatches, config: &AgentConfig) -> CommandResult<AgentOptions> {
    let mut config = config.clone();
    if let Some(authtoken) = matches.get_one::<String>(AUTHTOKEN) {
        config.authtoken = Some(Secret(authtoken.clone()));
    }
    let missing = |what: &str, place: &str| {
        Err(CliError::usage(format!(
            "{what} is missing; set {place}, or {what} in a configuration file"
        )))
    };
    match () {
        () if config.server_addr.is_empty() => missing("server_addr", SERVER_ADDR_VARIABLE),
        () if config.authtoken.is_none() => missing("authtoken", "--authtoken or NGROK_AUTHTOKEN"),
        () => Ok(config.agent_options()?),
    }
}

/// The files that are read: ours, which says where the service is, and then those of such a program.
fn config_files(matches: &ArgMatches) -> Vec<std::path::PathBuf> {
    let named = matches.contains_id("config");
    let theirs = config_paths(matches).into_iter().filter(|path| named || path.exists());
    usual_path().filter(|path| path.exists()).into_iter().chain(theirs).collect()
}

/// The configuration that files, environment and flags make.
pub(super) fn load_config(matches: &ArgMatches) -> CommandResult<ResolvedSettings<AgentConfig>> {
    let files = config_files(matches);
    let files = files.iter().map(|path| config::read_file(path)).collect::<Result<Vec<_>, _>>();
    let files = files.map_err(CliError::usage)?;
    let loaded = settings::with_sources(matches, &files, |sources| {
        let environment = |name: &str| {
            let theirs = VARIABLES.iter().find(|(ours, _)| *ours == name).map(|(_, theirs)| theirs);
            (sources.environment)(name).or_else(|| (sources.environment)(theirs?))
        };
        config::load_config(&SettingSources { environment: &environment, ..*sources })
    });
    let mut loaded = loaded.map_err(|problems| CliError::usage(problems.join("; ")))?;
    apply_authtoken_file(&mut loaded)?;
    Ok(loaded)
}

/// An address in use as wrappers look for it.
fn translate_listen_error(message: String) -> String {
    let start = "web_addr: cannot listen on ";
    let address = message.strip_prefix(start).and_then(|rest| rest.split_once(": "));
    match address {
        Some((address, cause)) if cause.to_lowercase().starts_with("address already in use") => {
            format!("listen tcp {address}: bind: address already in use")
        }
        _ => message,
    }
}
