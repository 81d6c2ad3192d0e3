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

use super::error::{CliError, CommandResult, Exit};
use super::output::print_line;
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

pub(super) fn run(matches: &ArgMatches) -> CommandResult<()> {
    let file = matches.get_one::<PathBuf>("config");
    let file = file.map(|path| config::read_file(path)).transpose().map_err(CliError::usage)?;
    let files = Vec::from_iter(file);
    // Flags of `ginnel serve` are not known here, but those that are no settings.
    let environment = |name: &str| std::env::var_os(name);
    let sources = SettingSources { flags: &|_| None, environment: &environment, files: &files };
    let loaded = config::load_config(&sources);
    let findings = examine_all(matches, loaded.as_ref().ok().map(|loaded| &loaded.config));
    let problems = loaded.as_ref().err().into_iter().flatten();
    let problems = problems.map(|problem| {
        Finding::problem("configuration", problem.clone()).with_remedy("correct the setting")
    });
    let findings: Vec<_> = problems.chain(findings).collect();
    print_findings(&findings, matches.get_flag(JSON));
    if let Some(path) = matches.get_one::<PathBuf>(BUNDLE) {
        bundle::write_bundle(path, &findings, &masked_settings(loaded.as_ref().ok()))?;
    }
    findings_result(&findings)
}

/// Everything that can be looked at with what is known.
fn examine_all(matches: &ArgMatches, config: Option<&ServeConfig>) -> Vec<Finding> {
    let options = config.map(|config| &config.options);
    let path = matches.get_one::<PathBuf>(PATH).cloned();
    let path = path.or_else(|| options.and_then(|options| options.store.path.clone()));
    let mut findings = vec![system::examine_descriptors(), system::examine_clock()];
    let mut is_running = false;
    if let Some(path) = &path {
        is_running = storage::is_in_use(path);
        findings.extend(storage::examine_database(path));
    }
    findings.extend(
        options.and_then(|options| options.store.server.as_ref()).map(storage::examine_server),
    );
    if let Some(config) = config.filter(|_| matches.contains_id("config")) {
        findings.extend(log_findings(config));
    }
    if let Some(options) = options.filter(|_| matches.contains_id("config")) {
        findings.extend(network::examine_ports(options, is_running));
        findings.extend(
            options
                .gateway
                .base_domain
                .as_deref()
                .map(network::examine_domain)
                .into_iter()
                .flatten(),
        );
        findings.extend(network::examine_certificate(options));
    }
    if let Some(url) = matches.get_one::<String>(URL) {
        let api = reach::management_api(url);
        let responds = api.iter().all(|finding| finding.severity != Severity::Problem);
        findings.extend(api);
        if responds {
            let options = options.filter(|_| matches.contains_id("config"));
            findings.extend(edges::examine_hosts(url, options));
            findings.extend(policies::examine_policies(url));
            findings.extend(addresses::examine_addresses(url));
            findings.extend(backends::examine_backends(url));
            findings.extend(reach::examine_clock_pause(url));
        }
    }
    if let Some(url) = matches.get_one::<String>(AGENT_URL) {
        findings.push(reach::examine_agent(url));
    }
    findings
}

/// The files of logs.
fn log_findings(config: &ServeConfig) -> impl Iterator<Item = Finding> {
    let problems = log_problems(config).into_iter();
    problems.map(|(key, problem)| {
        Finding::problem("configuration", format!("{key}: {problem}"))
            .with_remedy("make the folder, and let the user of the service write to it")
    })
}

fn print_findings(findings: &[Finding], as_json: bool) {
    if as_json {
        print_line(&json!({"findings": findings}).to_string());
        return;
    }
    for finding in findings {
        print_line(&finding.to_string());
    }
}

fn findings_result(findings: &[Finding]) -> CommandResult<()> {
    let number = findings.iter().filter(|it| it.severity == Severity::Problem).count();
    match number {
        0 => Ok(()),
        1 => Err(CliError::new(Exit::Failed, "1 problem")),
        number => Err(CliError::new(Exit::Failed, format!("{number} problems"))),
    }
}

/// The settings with their values and origins; secrets are masked.
fn masked_settings(resolved: Option<&ResolvedSettings<ServeConfig>>) -> Vec<String> {
    let Some(resolved) = resolved else { return Vec::new() };
    let settings = SECTIONS.iter().flat_map(SettingSection::settings);
    let lines = settings.map(|setting| {
        let value = setting.display_value(&resolved.config).unwrap_or_else(|| "-".to_owned());
        format!("{}: {value} ({})", setting.key, resolved.setting_origin(setting.key))
    });
    lines.collect()
}
