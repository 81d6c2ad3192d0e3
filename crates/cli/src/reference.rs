//! `ginnel reference`: all commands as a page of Markdown; the documentation shows it.

use clap::{Arg, ArgAction, ArgMatches, Command};

use ginnel_agent::config::SECTIONS as AGENT_SECTIONS;
use ginnel_service::config::SECTIONS;
use ginnel_settings::{Reload, Setting, SettingSection, ValueKind};

use super::error::CommandResult;
use super::help;
use super::output::print_line;

const HEAD: &str = "\
# Command line

Written by `ginnel reference` from the commands themselves. `--help` lists the usual options of a command,
and `--help-all` lists all of them. Each command of a group also takes the options of the group. `ginnel`
without a command prints the same text as `ginnel --help` and exits with code 2.
[The shell](../guides/shell.md) describes arguments, output and keys.";

pub(super) fn command() -> Command {
    let switch = |name, help| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let whose = "Print the settings of `ginnel serve` in place of the commands";
    Command::new("reference")
        .about("Print all commands as Markdown")
        .hide(true)
        .arg(switch("settings", whose))
        .arg(switch("agent-settings", "Print the settings of an agent in place of the commands"))
}

pub(super) fn run(matches: &ArgMatches) -> CommandResult<()> {
    let is_asked = |name| matches.get_flag(name);
    let page = match (is_asked("settings"), is_asked("agent-settings")) {
        (true, _) => settings_table(
            SECTIONS,
            &[
                ("What it is", setting_meaning),
                ("Default", setting_default),
                ("At a reload", setting_reload),
            ],
        ),
        (_, true) => settings_table(
            AGENT_SECTIONS,
            &[
                ("What it is", setting_meaning),
                ("Default", setting_default),
                ("Elsewhere", setting_elsewhere),
            ],
        ),
        _ => reference_page(&super::command()),
    };
    print_line(page.trim_end());
    Ok(())
}

/// A column of a table of settings: its head, and what it says of a setting.
type SettingColumn<C> = (&'static str, fn(&Setting<C>) -> String);

/// All settings, section by section.
fn settings_table<C>(sections: &[SettingSection<C>], columns: &[SettingColumn<C>]) -> String {
    let heads = columns.iter().map(|(head, _)| *head).collect::<Vec<_>>().join(" | ");
    let mut lines =
        vec![format!("| Key | {heads} |"), format!("| ---{} |", " | ---".repeat(columns.len()))];
    for section in sections {
        lines.push(format!("| **{}** |{}", section.title, " |".repeat(columns.len())));
        lines.extend(section.settings().map(|setting| settings_row(setting, columns)));
    }
    lines.join("\n")
}

fn settings_row<C>(setting: &Setting<C>, columns: &[SettingColumn<C>]) -> String {
    let cells: Vec<_> = columns.iter().map(|(_, cell)| cell(setting)).collect();
    format!("| `{}` | {} |", setting.key, cells.join(" | "))
}

fn setting_default<C: Default>(setting: &Setting<C>) -> String {
    match setting.display_value(&C::default()) {
        Some(text) => format!("`{text}`"),
        None => escape_markdown(setting.unset),
    }
}

fn setting_reload<C>(setting: &Setting<C>) -> String {
    if setting.reload == Reload::Live { "yes".to_owned() } else { String::new() }
}

/// The option and the variable.
fn setting_elsewhere<C>(setting: &Setting<C>) -> String {
    let flag = setting.flag_name().map(|flag| format!("`--{flag}`"));
    let variable = setting.variable_name().map(|variable| format!("`{variable}`"));
    flag.into_iter().chain(variable).collect::<Vec<_>>().join(", ")
}

fn setting_meaning<C>(setting: &Setting<C>) -> String {
    let words: Vec<_> = setting.field.choices.iter().map(|word| format!("`{word}`")).collect();
    let words = (!words.is_empty()).then(|| format!("one of {}", words.join(", ")));
    let range = setting.written_bounds().map(|[min, max]| format!("from {min} to {max}"));
    let kind = match setting.field.kind {
        ValueKind::List => Some("a list".to_owned()),
        ValueKind::Secret => setting
            .variable_name()
            .map(|variable| format!("no option, `{variable}` in the environment")),
        ValueKind::Text | ValueKind::Switch | ValueKind::Path | ValueKind::Unused => None,
    };
    let parts = [Some(escape_markdown(setting.doc)), words, range, kind];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn reference_page(root: &Command) -> String {
    let mut page = HEAD.to_owned();
    let root_help = [root.get_before_help(), root.get_after_help()].map(styled_text).join("\n\n");
    page.push_str(&format!("\n\n{}", code_block(&root_help)));
    for command in visible_subcommands(root) {
        describe_command(&mut page, command, "ginnel", 2);
    }
    page
}

/// A command and those below it.
fn describe_command(page: &mut String, command: &Command, above: &str, level: usize) {
    let path = format!("{above} {}", command.get_name());
    let (positionals, options): (Vec<_>, Vec<_>) = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() || help::is_twin(arg))
        .partition(|arg| arg.is_positional());
    let usage = positionals
        .iter()
        .fold(path.clone(), |usage, arg| format!("{usage} {}", argument_name(command, arg)));
    let options_too = if options.is_empty() { "" } else { " [OPTIONS]" };
    let below = if visible_subcommands(command).next().is_some() { " COMMAND" } else { "" };
    // A page has no use for headings below the fourth level.
    let heading = "#".repeat(level.min(4));
    // Writing to a string cannot fail.
    page.push_str(&format!(
        "\n\n{heading} `{path}`\n\n{}",
        escape_markdown(&styled_text(command.get_about()))
    ));
    page.push_str(&format!("\n\n{}", code_block(&format!("{usage}{options_too}{below}"))));
    if !(positionals.is_empty() && options.is_empty()) {
        page.push_str("\n\n| Argument | Meaning |\n| --- | --- |");
        for arg in &positionals {
            push_row(page, command, arg);
        }
        let mut group = None;
        for arg in options {
            if arg.get_help_heading() != group {
                group = arg.get_help_heading();
                page.push_str(&format!("\n| **{}** | |", group.unwrap_or("Options")));
            }
            push_row(page, command, arg);
        }
    }
    let after = styled_text(command.get_after_help());
    if !after.is_empty() {
        page.push_str(&format!("\n\n{}", code_block(&after)));
    }
    for inner in visible_subcommands(command) {
        describe_command(page, inner, &path, level + 1);
    }
}

fn push_row(page: &mut String, command: &Command, arg: &Arg) {
    let name = argument_name(command, arg).replace('|', "\\|");
    page.push_str(&format!("\n| `{name}` | {} |", argument_meaning(arg)));
}

fn visible_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

/// How an argument is written.
fn argument_name(command: &Command, arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let value = values.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
    let value = if value.is_empty() { arg.get_id().as_str().to_uppercase() } else { value };
    if arg.is_positional() {
        let more = if arg.get_action().takes_values() && is_many(arg) { "..." } else { "" };
        return if help::is_needed(command, arg) {
            format!("<{value}>{more}")
        } else {
            format!("[{value}]{more}")
        };
    }
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let flag = [short, long].into_iter().flatten().collect::<Vec<_>>().join(", ");
    match arg.get_num_args().map(|range| range.min_values()) {
        _ if !arg.get_action().takes_values() => flag,
        Some(0) => format!("{flag}[={value}]"),
        _ => format!("{flag} <{value}>"),
    }
}

fn is_many(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|range| range.max_values() > 1)
}

/// What an argument means, with its default and the values that it may have.
fn argument_meaning(arg: &Arg) -> String {
    let mut meaning = escape_markdown(&styled_text(arg.get_help())).replace('\n', " ");
    let list = |values: Vec<String>| values.join(", ");
    let defaults = arg.get_default_values().iter();
    let defaults = list(defaults.map(|value| format!("`{}`", value.to_string_lossy())).collect());
    if arg.get_action().takes_values() && !defaults.is_empty() {
        meaning.push_str(&format!("; {defaults} by default"));
    }
    let possible = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    let possible = list(possible.map(|value| format!("`{}`", value.get_name())).collect());
    if arg.get_action().takes_values() && !possible.is_empty() {
        meaning.push_str(&format!("; one of {possible}"));
    }
    if arg.is_required_set() && !arg.is_positional() {
        meaning.push_str("; required");
    }
    meaning
}

fn styled_text(styled: Option<&clap::builder::StyledStr>) -> String {
    styled.map(ToString::to_string).unwrap_or_default()
}

fn code_block(text: &str) -> String {
    format!("```text\n{}\n```", text.trim())
}

/// The text where Markdown, and a table in it, would take it for something else.
fn escape_markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut is_code = false;
    for letter in text.chars() {
        is_code ^= letter == '`';
        if letter == '|' || (!is_code && matches!(letter, '<' | '*' | '[' | '\\')) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}
