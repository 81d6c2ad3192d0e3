//! `ginnel doctor`: looks at what a service or an agent needs, and says what to do about what is wrong.

mod addresses;
mod backends;
mod bundle;
mod clock;
mod edges;
mod finding;
mod network;
mod policies;
mod reach;
mod storage;
mod system;

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;

use ginnel_service::config::{self, SECTIONS, ServeConfig};
use ginnel_settings::{ResolvedSettings, SettingSection, SettingSources};

use super::error::{CliError, Exit};
use super::output::say;
use super::serve::log_problems;
use super::settings;
use finding::{Finding, Severity};

const AGENT_URL: &str = "agent-url";
const BUNDLE: &str = "bundle";
const JSON: &str = "json";
const PATH: &str = "path";
const URL: &str = "url";

pub(super) fn command() -> Command {
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    let url = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("URL").help(help)
    };
    Command::new("doctor")
        .about("Find problems of a service or an agent, and their remedies")
        .after_help(
            "Nothing is changed, and a running service goes on. The exit code is 1 when there is a\n\
             problem, and 0 when there are only warnings.\n\n\
             Example:\n  ginnel doctor --config /etc/ginnel/ginnel.yml",
        )
        .arg(file(PATH, "The database to examine; by default that of --config"))
        .arg(settings::config_argument())
        .arg(url(URL, "The management API to reach"))
        .arg(url(AGENT_URL, "The local API of an agent to reach"))
        .arg(
            Arg::new(JSON)
                .long(JSON)
                .action(ArgAction::SetTrue)
                .help("Print the findings as one JSON object"),
        )
        .arg(file(BUNDLE, "Write an archive for a bug report, a new .tar.gz without secrets"))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), CliError> {
    let file = matches.get_one::<PathBuf>("config");
    let file = file.map(|path| config::read_file(path)).transpose().map_err(CliError::usage)?;
    let files = Vec::from_iter(file);
    // Flags of `ginnel serve` are not known here, but those that are no settings.
    let environment = |name: &str| std::env::var_os(name);
    let sources = SettingSources { flags: &|_| None, environment: &environment, files: &files };
    let loaded = config::load(&sources);
    let findings = examine(matches, loaded.as_ref().ok().map(|loaded| &loaded.config));
    let problems = loaded.as_ref().err().into_iter().flatten();
    let problems = problems.map(|problem| {
        Finding::problem("configuration", problem.clone()).remedy("correct the setting")
    });
    let findings: Vec<_> = problems.chain(findings).collect();
    print(&findings, matches.get_flag(JSON));
    if let Some(path) = matches.get_one::<PathBuf>(BUNDLE) {
        bundle::write(path, &findings, &shown(loaded.as_ref().ok()))?;
    }
    verdict(&findings)
}

/// Everything that can be looked at with what is known.
fn examine(matches: &ArgMatches, config: Option<&ServeConfig>) -> Vec<Finding> {
    let options = config.map(|config| &config.options);
    let path = matches.get_one::<PathBuf>(PATH).cloned();
    let path = path.or_else(|| options.and_then(|options| options.store.path.clone()));
    let mut findings = vec![system::descriptors(), system::clock()];
    let mut is_running = false;
    if let Some(path) = &path {
        is_running = storage::is_in_use(path);
        findings.extend(storage::examine(path));
    }
    findings.extend(options.and_then(|options| options.store.server.as_ref()).map(storage::server));
    if let Some(config) = config.filter(|_| matches.contains_id("config")) {
        findings.extend(logs(config));
    }
    if let Some(options) = options.filter(|_| matches.contains_id("config")) {
        findings.extend(network::ports(options, is_running));
        findings.extend(
            options.gateway.base_domain.as_deref().map(network::domain).into_iter().flatten(),
        );
        findings.extend(network::certificates(options));
    }
    if let Some(url) = matches.get_one::<String>(URL) {
        let api = reach::management_api(url);
        let responds = api.iter().all(|finding| finding.severity != Severity::Problem);
        findings.extend(api);
        if responds {
            let options = options.filter(|_| matches.contains_id("config"));
            findings.extend(edges::hosts(url, options));
            findings.extend(policies::examine(url));
            findings.extend(addresses::examine(url));
            findings.extend(backends::examine(url));
            findings.extend(reach::pause(url));
        }
    }
    if let Some(url) = matches.get_one::<String>(AGENT_URL) {
        findings.push(reach::agent(url));
    }
    findings
}

/// The files of logs.
fn logs(config: &ServeConfig) -> impl Iterator<Item = Finding> {
    let problems = log_problems(config).into_iter();
    problems.map(|(key, problem)| {
        Finding::problem("configuration", format!("{key}: {problem}"))
            .remedy("make the folder, and let the user of the service write to it")
    })
}

fn print(findings: &[Finding], as_json: bool) {
    if as_json {
        say(&json!({"findings": findings}).to_string());
        return;
    }
    for finding in findings {
        say(&finding.to_string());
    }
}

fn verdict(findings: &[Finding]) -> Result<(), CliError> {
    let number = findings.iter().filter(|it| it.severity == Severity::Problem).count();
    match number {
        0 => Ok(()),
        1 => Err(CliError::new(Exit::Failed, "1 problem")),
        number => Err(CliError::new(Exit::Failed, format!("{number} problems"))),
    }
}

/// The settings with their values and origins; secrets are masked.
fn shown(resolved: Option<&ResolvedSettings<ServeConfig>>) -> Vec<String> {
    let Some(resolved) = resolved else { return Vec::new() };
    let settings = SECTIONS.iter().flat_map(SettingSection::settings);
    let lines = settings.map(|setting| {
        let value = setting.shown(&resolved.config).unwrap_or_else(|| "-".to_owned());
        format!("{}: {value} ({})", setting.key, resolved.origin(setting.key))
    });
    lines.collect()
}
