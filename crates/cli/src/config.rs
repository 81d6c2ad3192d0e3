//! `ginnel config`: whether a configuration is right, and where each of its values comes from.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};

use ginnel_agent::config::{AgentConfig, NamedEntry, SECTIONS as AGENT_SECTIONS};
use ginnel_agent::definition::{BindMessage, Definition};
use ginnel_service::config::{self, SECTIONS};
use ginnel_service::{check_bind, check_labeled_bind};
use ginnel_settings::{ResolvedSettings, SettingSection, ValueKind};

use super::agent::{config_argument, conflicts, load_config, placed};
use super::error::CliError;
use super::output::{complain, say};
use super::settings;

pub(super) fn command() -> Command {
    let switch = |name, help| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let check = Command::new("check").about("Check the configuration of an agent");
    let show = Command::new("show")
        .about("Show each setting with its value and its source; secrets are masked")
        .after_help("Example:\n  ginnel config show --service --config ginnel.yml")
        .arg(config_argument())
        .arg(switch("service", "The settings of `ginnel serve`"))
        .arg(switch("agent", "The settings of an agent, and its tunnels"))
        .group(ArgGroup::new("whose").args(["service", "agent"]).required(true));
    Command::new("config")
        .about("Check and show configuration files")
        .after_help("`ginnel serve --check` checks the configuration of a service.")
        .subcommand_required(true)
        .subcommands([check.arg(config_argument()), show])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), CliError> {
    match matches.subcommand() {
        Some(("check", matches)) => check(matches),
        Some(("show", matches)) if matches.get_flag("agent") => show_agent(matches),
        Some(("show", matches)) => show_service(matches),
        _ => Err(CliError::usage("no command given: use check or show")),
    }
}

fn check(matches: &ArgMatches) -> Result<(), CliError> {
    let loaded = load_config(matches)?;
    let problems = problems(&loaded);
    if !problems.is_empty() {
        return Err(settings::refused(problems));
    }
    // A file may have several tunnels for one address, of which each start takes one.
    tunnel_conflicts(&loaded.config).iter().for_each(|problem| complain(problem));
    say(&format!("the configuration is valid; {} tunnels", loaded.config.tunnels.len()));
    Ok(())
}

/// The problems that keep an agent from starting, and its tunnels at any service.
pub(super) fn problems(loaded: &ResolvedSettings<AgentConfig>) -> Vec<String> {
    let config = &loaded.config;
    let of_agent = config.problems();
    let of_agent = of_agent.iter().map(|problem| placed(loaded, problem));
    let definitions = definitions(config);
    let of_binds = definitions.iter().filter_map(|(name, definition)| {
        let problem = definition.bind_messages().iter().find_map(|it| refusal(it).err())?;
        Some(format!("{}: {problem}", config.tunnels.get(*name)?.place()))
    });
    of_agent.chain(of_binds).collect()
}

/// The reasons why not all tunnels of a configuration can be online at the same time.
pub(super) fn tunnel_conflicts(config: &AgentConfig) -> Vec<String> {
    let tunnels = definitions(config);
    conflicts(config, tunnels.iter().map(|(name, definition)| (*name, definition)))
}

/// The tunnels that are valid, by name.
fn definitions(config: &AgentConfig) -> Vec<(&str, Definition)> {
    let valid =
        config.tunnels.keys().filter_map(|name| Some((name.as_str(), config.tunnel(name).ok()?)));
    valid.collect()
}

/// Judges a bind in the way that the service does.
fn refusal(message: &BindMessage) -> Result<(), String> {
    match message {
        BindMessage::Endpoint(bind) => check_bind(bind),
        BindMessage::Labeled(bind) => check_labeled_bind(bind),
    }
}

fn show_service(matches: &ArgMatches) -> Result<(), CliError> {
    let mut paths = matches.get_many::<PathBuf>("config").into_iter().flatten();
    let (path, more) = (paths.next(), paths.next());
    if more.is_some() {
        return Err(CliError::usage("a service has one configuration file"));
    }
    let file = path.map(|path| config::read_file(path)).transpose().map_err(CliError::usage)?;
    let loaded = settings::with_sources(matches, &Vec::from_iter(file), config::load);
    show(rows(SECTIONS, &loaded.map_err(settings::refused)?));
    Ok(())
}

fn show_agent(matches: &ArgMatches) -> Result<(), CliError> {
    let loaded = load_config(matches)?;
    let tables = [&loaded.config.tunnels, &loaded.config.mocks];
    let entries = tables.iter().flat_map(|table| table.values()).flat_map(NamedEntry::shown);
    show(rows(AGENT_SECTIONS, &loaded).chain(entries));
    Ok(())
}

/// The key of each setting, the value, and where it comes from. What has no effect is left out.
fn rows<C>(
    sections: &'static [SettingSection<C>],
    resolved: &ResolvedSettings<C>,
) -> impl Iterator<Item = [String; 3]> {
    let settings = sections.iter().flat_map(SettingSection::settings);
    settings.filter(|setting| setting.field.kind != ValueKind::Unused).map(|setting| {
        let value = setting.shown(&resolved.config).unwrap_or_else(|| "-".to_owned());
        [setting.key.to_owned(), value, resolved.origin(setting.key).to_string()]
    })
}

/// Prints a table.
fn show(rows: impl Iterator<Item = [String; 3]>) {
    let rows: Vec<_> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let (keys, values) = (width(0).unwrap_or(0), width(1).unwrap_or(0));
    for [key, value, origin] in &rows {
        say(&format!("{key:keys$}  {value:values$}  {origin}"));
    }
}
