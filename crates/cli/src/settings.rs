//! Flags that are made from settings, and what they say.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, ValueHint};

use ginnel_settings::{ConfigFile, Setting, SettingSection, SettingSources, ValueKind};

use super::error::CliError;
use super::help::HelpRank;
use super::output::eprint_line;

/// The flags of settings, with the titles of their sections.
pub(super) fn setting_arguments<C: Default + 'static>(
    sections: &'static [SettingSection<C>],
) -> impl Iterator<Item = Arg> {
    sections.iter().flat_map(|section| {
        let flags = section.settings().filter_map(setting_argument);
        flags.map(|argument| argument.help_heading(section.title))
    })
}

/// The flag of one setting, for a command that takes a few.
pub(super) fn single_argument<C: Default + 'static>(
    sections: &'static [SettingSection<C>],
    key: &str,
) -> Option<Arg> {
    sections.iter().find_map(|section| {
        let setting = section.settings().find(|setting| setting.key == key)?;
        Some(setting_argument(setting)?.help_heading(section.title))
    })
}

fn setting_argument<C: Default + 'static>(setting: &'static Setting<C>) -> Option<Arg> {
    let flag = setting.flag_name()?;
    let argument = Arg::new(flag.clone()).long(flag).help(setting.doc);
    let argument = argument.value_name(setting.value_name).value_parser(setting_parser(setting));
    let argument = if setting.is_usual { argument } else { argument.rare() };
    Some(match setting.field.kind {
        ValueKind::Switch => argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .hide_possible_values(true),
        ValueKind::Path => argument.value_hint(ValueHint::AnyPath),
        ValueKind::List => argument.action(ArgAction::Append).value_delimiter(','),
        ValueKind::Text | ValueKind::Secret | ValueKind::Unused => {
            match setting.display_value(&C::default()) {
                Some(default) => argument.default_value(default),
                None => argument,
            }
        }
    })
}

/// Checks a value; what it means is for whoever puts the sources together.
fn setting_parser<C: Default + 'static>(setting: &'static Setting<C>) -> ValueParser {
    if !setting.field.choices.is_empty() {
        return PossibleValuesParser::new(setting.field.choices).map(OsString::from).into();
    }
    let checked = OsStringValueParser::new().try_map(move |value: OsString| {
        (setting.field.read)(&mut C::default(), &value, setting.bounds).map(|()| value)
    });
    checked.into()
}

/// Hands over what flags, environment and file say.
pub(super) fn with_sources<T>(
    matches: &ArgMatches,
    files: &[ConfigFile],
    work: impl FnOnce(&SettingSources<'_>) -> T,
) -> T {
    let flags = |name: &str| values_of(matches, name);
    work(&SettingSources { flags: &flags, environment: &|name| std::env::var_os(name), files })
}

/// The same for a command that reads neither files nor the environment.
pub(super) fn flags_alone<T>(
    matches: &ArgMatches,
    work: impl FnOnce(&SettingSources<'_>) -> T,
) -> T {
    let flags = |name: &str| values_of(matches, name);
    work(&SettingSources { flags: &flags, environment: &|_| None, files: &[] })
}

/// The values of a flag on the command line; its default is none of them.
fn values_of(matches: &ArgMatches, name: &str) -> Option<Vec<OsString>> {
    let on_command_line = clap::parser::ValueSource::CommandLine;
    if matches.try_contains_id(name).is_err() || matches.value_source(name) != Some(on_command_line)
    {
        return None;
    }
    Some(matches.get_many::<OsString>(name)?.cloned().collect())
}

/// Why nothing is started: all problems are printed, the last as the error of the command.
pub(super) fn report_problems(mut problems: Vec<String>) -> CliError {
    let last = problems.pop().unwrap_or_default();
    problems.iter().for_each(|problem| eprint_line(problem));
    CliError::usage(last)
}

/// `--config`: the file that the settings are read from.
pub(super) fn config_argument() -> Arg {
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(clap::value_parser!(std::path::PathBuf))
        .help("Configuration file")
}
