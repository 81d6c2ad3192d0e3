//! `ginnel serve`: the management API until a signal ends it.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;
use tokio::time::timeout;

use ginnel_api::Secret;
use ginnel_base::logging::{LogFormat, ignore, or_debug};
use ginnel_gateway::{EventDelivery, EventSubscriber};
use ginnel_net::secret_file::take_readable_files;
use ginnel_service::config::{self, SECTIONS, ServeConfig};
use ginnel_service::{AcceptFailures, Error as ServiceError, Options, Refusals, Service};
use ginnel_settings::{ConfigFile, ResolvedSettings};
use ginnel_store::HealthEvents;

use super::access_log::{self, AccessLog};
use super::error::{CliError, CommandResult};
use super::log_file::{self, LogOutput};
use super::logging::{LogOptions, LogWriter};
use super::notify::{self, SystemdNotifier};
use super::output::{self, eprint_line, print_line, try_print_line};
use super::serve_reload::RunningConfig;
use super::signals::Signals;
use super::{runtime, settings, variables};

/// How often it is said that connections were closed because there were too many.
const REFUSAL_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// How long a start may go on that a signal ends.
const START_GRACE: Duration = Duration::from_secs(1);

pub(super) fn command() -> Command {
    Command::new("serve")
        .about("Serve the management API, agents and public traffic")
        .after_help(
            "The admin key is made and printed once, when the database is new; a new database\n\
             takes the one in --admin-key-file or GINNEL_API_KEY instead. For one that is lost,\n\
             see `ginnel admin-key new`.\n\n\
             Every option is a key of the file of --config as well, and a variable: --edge-host,\n\
             edge_host and GINNEL_EDGE_HOST are one. Options win over variables, and these over\n\
             the file.\n\n\
             Example:\n  ginnel serve --path ginnel.db --port 4000 --rate-limit 120/60s",
        )
        .arg(settings::config_argument().help_heading("Configuration"))
        .arg(
            Arg::new("check")
                .long("check")
                .action(ArgAction::SetTrue)
                .help_heading("Configuration")
                .help("Check the configuration, print every problem, and start nothing"),
        )
        .args(settings::setting_arguments(SECTIONS))
}

pub(super) fn run(matches: &ArgMatches) -> CommandResult<()> {
    let loaded = load_config(matches).map_err(settings::report_problems)?;
    let config = &loaded.resolved.config;
    let mut problems = preflight(&loaded.resolved);
    config.options.unused_settings().iter().for_each(|line| eprint_line(line));
    variables::report_unknown();
    take_readable_files().iter().for_each(|warning| eprint_line(warning));
    if matches.get_flag("check") {
        if !problems.is_empty() {
            return Err(settings::report_problems(
                problems.into_iter().map(|it| it.message).collect(),
            ));
        }
        print_line("the configuration is valid");
        return Ok(());
    }
    if let Some(last) = problems.pop() {
        problems.iter().for_each(|problem| eprint_line(&problem.message));
        return Err(last);
    }
    let _log = LogWriter::start_ready(&log_options(config))?;
    let access = config.access_log.as_deref().map(access_log::open_output).transpose()?;
    let access = access.map(|output| (output, access_log::line_format(config.log_format)));
    let runtime = runtime::start_runtime()?;
    let served = runtime.block_on(serve_until_stopped(RunningConfig::new(matches, loaded), access));
    // What a second signal leaves unfinished is not waited for.
    runtime.shutdown_background();
    served
}

/// Everything that keeps the service from starting, as far as it can be known without listening.
fn preflight(resolved: &ResolvedSettings<ServeConfig>) -> Vec<CliError> {
    let problems = config::preflight_problems(resolved).into_iter();
    let problems = problems.map(|(message, error)| CliError { message, ..error.into() });
    let logs = log_problems(&resolved.config).into_iter();
    let logs = logs.map(|(key, problem)| CliError::usage(resolved.describe_problem(key, &problem)));
    problems.chain(logs).collect()
}

/// Why logs cannot be written, by the keys of their files.
pub(super) fn log_problems(config: &ServeConfig) -> Vec<(&'static str, String)> {
    let access_log = config.access_log.as_deref().filter(|path| !access_log::is_stdout(path));
    let logs = [("log_file", config.log_file.as_deref()), ("access_log", access_log)];
    let problems = logs
        .into_iter()
        .filter_map(|(key, path)| Some((key, log_file::check_writable(path?).err()?)));
    problems.collect()
}

/// How the service is logged.
pub(super) fn log_options(config: &ServeConfig) -> LogOptions {
    let (levels, format, file) = (config.log_level, config.log_format, config.log_file.clone());
    LogOptions { levels, format, file }
}

/// The configuration, and whether its file sets anything.
pub(super) struct LoadedConfig {
    pub resolved: ResolvedSettings<ServeConfig>,
    pub has_empty_file: bool,
}

/// Puts the configuration together of flags, environment and file.
pub(super) fn load_config(matches: &ArgMatches) -> Result<LoadedConfig, Vec<String>> {
    let path = matches.get_one::<PathBuf>("config");
    let file = path.map(|path| config::read_file(path)).transpose();
    let files = Vec::from_iter(file.map_err(|problem| vec![problem])?);
    let resolved = settings::with_sources(matches, &files, config::load_config)?;
    let has_empty_file = files.iter().any(ConfigFile::is_empty);
    Ok(LoadedConfig { resolved, has_empty_file })
}

/// Where requests are told, and how.
type AccessOutput = (LogOutput, LogFormat);

async fn serve_until_stopped(
    mut running: RunningConfig,
    access: Option<AccessOutput>,
) -> CommandResult<()> {
    // In place before the service is, so that no signal ends it unprepared.
    let mut signals = Signals::new()?;
    let ServeConfig { options, json, events, .. } = running.config.clone();
    let place = describe_storage(&options);
    let path = options.store.path.clone();
    let is_configured = (options.tokens.admin_key.is_some(), options.tokens.authtoken.is_some());
    let Some((started, is_ending)) = start(options, &mut signals).await else {
        eprint_line("stopped before it had started");
        return Ok(());
    };
    let mut service = started?;
    let key = service.api_key().filter(|_| !is_configured.0);
    let token = service.authtoken().filter(|_| !is_configured.1);
    match print_addresses(&service, (path.as_deref(), &place), (key, token), json) {
        true => service.remove_token_files(),
        false => service.keep_token_files(),
    }
    // The command may run for months before it can report this at its end.
    output::check_written().unwrap_or_else(|error| eprint_line(&error.message));
    if !log_options(&running.config).is_on() {
        // Otherwise, the log has them.
        service.refused_policies().iter().for_each(|line| eprint_line(line));
    }
    ginnel_base::tasks::spawn(report_health(service.storage_health()));
    if events {
        ginnel_base::tasks::spawn(print_events(service.own_events()));
    }
    let start_log = |(output, format)| AccessLog::start(service.own_events(), output, format);
    let access = access.map(start_log).transpose()?;
    let systemd = SystemdNotifier::from_environment();
    systemd.send_state(notify::READY);
    tokio::select! {
        () = report_refusals(&service) => {}
        () = systemd.keep_alive() => {}
        reloading = running.serve_reloads(&service, &systemd) => reloading?,
        () = signals.next(), if !is_ending => {}
        () = std::future::ready(()), if is_ending => {}
    }
    systemd.send_state(notify::STOPPING);
    tokio::select! {
        () = stop_service(service, access, running.config.grace) => Ok(()),
        () = signals.next() => Err(CliError::second_signal()),
    }
}

/// Starts the service. Returns true with it if a signal has come meanwhile, and nothing if it then takes too long.
async fn start(
    options: Options,
    signals: &mut Signals,
) -> Option<(Result<Service, ServiceError>, bool)> {
    let mut starting = pin!(Service::start(options));
    tokio::select! {
        started = starting.as_mut() => Some((started, false)),
        // A service that has almost started is stopped in order, because its new tokens are displayed once.
        () = signals.next() => {
            let started = timeout(START_GRACE, starting).await;
            let started = or_debug!(started, "a start that a signal has ended takes too long");
            started.map(|started| (started, true))
        }
    }
}

async fn stop_service(service: Service, access: Option<AccessLog>, grace: Duration) {
    service.stop(grace).await;
    if let Some(access) = access {
        access.finish().await;
    }
}

/// Says what is wrong with the storage, and when it is right again.
async fn report_health(mut health: HealthEvents) {
    while let Some(line) = health.next().await {
        eprint_line(&line);
    }
}

/// Where the data is, in words.
fn describe_storage(options: &ginnel_service::Options) -> String {
    match (&options.store.server, &options.store.path) {
        (Some(store), _) => format!("data in {store}"),
        (None, Some(path)) => format!("data in {}", path.display()),
        (None, None) => "in memory".to_owned(),
    }
}

/// Says where everything is; false when nobody can have read it.
fn print_addresses(
    service: &Service,
    (path, place): (Option<&std::path::Path>, &str),
    (key, token): (Option<&Secret>, Option<&Secret>),
    as_json: bool,
) -> bool {
    if as_json {
        let line = json!({
            "url": service.url(),
            "public_url": service.public_url(),
            "path": path,
            "agent_addr": service.agent_address().map(|address| address.to_string()),
            "api_key": key.map(|key| key.0.as_str()),
            "authtoken": token.map(|token| token.0.as_str()),
            "http_url": edge_url(service, "http"),
            "https_url": edge_url(service, "https"),
            "admin_addr": service.admin_address().map(|address| address.to_string()),
            "ca_path": service.gateway().authority().path(),
        });
        return try_print_line(&line.to_string());
    }
    let public = match service.public_url() {
        public if public == service.url() => String::new(),
        public => format!(", known as {public}"),
    };
    // One line, so that whoever starts it reads everything at once.
    let edges = ["http", "https"].into_iter().filter_map(|scheme| edge_url(service, scheme));
    let edges = edges.map(|url| format!(", public traffic at {url}")).collect::<String>();
    let agents = service.agent_address().map(|address| format!(", agents at {address}"));
    let agents = agents.unwrap_or_default();
    let admin = service.admin_address().map(|address| format!(", metrics at http://{address}"));
    let admin = admin.unwrap_or_default();
    let trusted = service.gateway().authority().path();
    let trusted = trusted.map(|path| format!(", certificates to trust in {}", path.display()));
    let trusted = trusted.unwrap_or_default();
    let url = service.url();
    print_line(&format!("management API at {url}{public}{edges}{agents}{admin}, {place}{trusted}"));
    let key =
        key.is_none_or(|key| try_print_line(&format!("admin key, shown this once: {}", key.0)));
    let token = token.is_none_or(|token| {
        try_print_line(&format!("authtoken for agents, shown this once: {}", token.0))
    });
    key && token
}

/// Says from time to time how many connections were closed because there were too many, why none could
/// be accepted, and that backups and certificates failed; never ends.
async fn report_refusals(service: &Service) {
    let mut failed_backups = 0;
    loop {
        tokio::time::sleep(REFUSAL_REPORT_INTERVAL).await;
        let backups = service.backup_status();
        if backups.failed > failed_backups {
            failed_backups = backups.failed;
            eprint_line(&format!("no backup was made: {}", backups.error.unwrap_or_default()));
        }
        for (name, problem) in service.take_certificate_failures() {
            eprint_line(&format!("no certificate for {name}: {problem}"));
        }
        for Refusals { of, count, last, per_address, total } in service.take_refusals() {
            eprint_line(&format!(
                "{count} connections of {of} refused, the last from {last}: at most \
                 {per_address} from one address and {total} in total may be open"
            ));
        }
        for AcceptFailures { of, count, last } in service.take_accept_failures() {
            eprint_line(&format!(
                "cannot accept connections of {of}: {last}; tried {count} times, and trying again"
            ));
        }
    }
}

/// Prints events until the service ends.
async fn print_events(mut events: EventSubscriber) {
    let mut output = LogOutput::stdout();
    while let Some(received) = events.next().await {
        let line = match received {
            EventDelivery::Event(event) => {
                serde_json::to_string(&event.masked()).unwrap_or_default()
            }
            EventDelivery::Missed(missed) => json!({"missed": missed}).to_string(),
        };
        ignore(output.write_lines(&format!("{line}\n")), "the output has reported it");
    }
}

/// The address for public traffic of a scheme.
fn edge_url(service: &Service, scheme: &str) -> Option<String> {
    let edges = service.gateway();
    let address = if scheme == "https" { edges.https_address() } else { edges.http_address() };
    address.map(|address| format!("{scheme}://{address}"))
}
