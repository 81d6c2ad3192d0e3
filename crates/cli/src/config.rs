//! `ginnel config`: whether a configuration is right, and where each of its values comes from.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};

use ginnel_agent::config::{AgentConfig, NamedEntry, SECTIONS as AGENT_SECTIONS};
use ginnel_agent::definition::{BindMessage, Definition};
use ginnel_service::config::{self, SECTIONS};
use ginnel_service::{check_bind, check_labeled_bind};
use ginnel_settings::{ResolvedSettings, SettingSection, ValueKind};

use super::agent::{config_argument, find_conflicts, load_config, locate_problem};
use super::error::{CliError, CommandResult};
use super::output::{eprint_line, print_line};
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

pub(super) fn run(matches: &ArgMatches) -> CommandResult<()> {
    match matches.subcommand() {
        Some(("check", matches)) => check_config(matches),
        Some(("show", matches)) if matches.get_flag("agent") => show_agent(matches),
        Some(("show", matches)) => show_service(matches),
        _ => Err(CliError::usage("no command given: use check or show")),
    }
}

fn check_config(matches: &ArgMatches) -> CommandResult<()> {
    let loaded = load_config(matches)?;
    let problems = find_problems(&loaded);
    if !problems.is_empty() {
        return Err(settings::report_problems(problems));
    }
    // A file may have several tunnels for one address, of which each start takes one.
    tunnel_conflicts(&loaded.config).iter().for_each(|problem| eprint_line(problem));
    print_line(&format!("the configuration is valid; {} tunnels", loaded.config.tunnels.len()));
    Ok(())
}

/// The problems that keep an agent from starting, and its tunnels at any service.
pub(super) fn find_problems(loaded: &ResolvedSettings<AgentConfig>) -> Vec<String> {
    let config = &loaded.config;
    let of_agent = config.find_problems();
    let of_agent = of_agent.iter().map(|problem| locate_problem(loaded, problem));
    let definitions = valid_definitions(config);
    let of_binds = definitions.iter().filter_map(|(name, definition)| {
        let problem =
            definition.bind_messages().iter().find_map(|it| check_bind_message(it).err())?;
        Some(format!("{}: {problem}", config.tunnels.get(*name)?.place()))
    });
    of_agent.chain(of_binds).collect()
}

/// The reasons why not all tunnels of a configuration can be online at the same time.
pub(super) fn tunnel_conflicts(config: &AgentConfig) -> Vec<String> {
    let tunnels = valid_definitions(config);
    find_conflicts(config, tunnels.iter().map(|(name, definition)| (*name, definition)))
}

/// The tunnels that are valid, by name.
fn valid_definitions(config: &AgentConfig) -> Vec<(&str, Definition)> {
    let valid = config
        .tunnels
        .keys()
        .filter_map(|name| Some((name.as_str(), config.tunnel_definition(name).ok()?)));
    valid.collect()
}

/// Judges a bind in the way that the service does.
fn check_bind_message(message: &BindMessage) -> Result<(), String> {
    match message {
        BindMessage::Endpoint(bind) => check_bind(bind),
        BindMessage::Labeled(bind) => check_labeled_bind(bind),
    }
}

fn show_service(matches: &ArgMatches) -> CommandResult<()> {
    let mut paths = matches.get_many::<PathBuf>("config").into_iter().flatten();
    let (path, more) = (paths.next(), paths.next());
    if more.is_some() {
        return Err(CliError::usage("a service has one configuration file"));
    }
    let file = path.map(|path| config::read_file(path)).transpose().map_err(CliError::usage)?;
    let loaded = settings::with_sources(matches, &Vec::from_iter(file), config::load_config);
    print_table(setting_rows(SECTIONS, &loaded.map_err(settings::report_problems)?));
    Ok(())
}

fn show_agent(matches: &ArgMatches) -> CommandResult<()> {
    let loaded = load_config(matches)?;
    let tables = [&loaded.config.tunnels, &loaded.config.mocks];
    let entries =
        tables.iter().flat_map(|table| table.values()).flat_map(NamedEntry::masked_fields);
    print_table(setting_rows(AGENT_SECTIONS, &loaded).chain(entries));
    Ok(())
}

/// The key of each setting, the value, and where it comes from. What has no effect is left out.
fn setting_rows<C>(
    sections: &'static [SettingSection<C>],
    resolved: &ResolvedSettings<C>,
) -> impl Iterator<Item = [String; 3]> {
    let settings = sections.iter().flat_map(SettingSection::settings);
    settings.filter(|setting| setting.field.kind != ValueKind::Unused).map(|setting| {
        let value = setting.display_value(&resolved.config).unwrap_or_else(|| "-".to_owned());
        [setting.key.to_owned(), value, resolved.setting_origin(setting.key).to_string()]
    })
}

/// Prints a table.
fn print_table(rows: impl Iterator<Item = [String; 3]>) {
    let rows: Vec<_> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let (keys, values) = (width(0).unwrap_or(0), width(1).unwrap_or(0));
    for [key, value, origin] in &rows {
        print_line(&format!("{key:keys$}  {value:values$}  {origin}"));
    }
}
