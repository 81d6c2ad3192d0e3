//! `config`: secrets in the configuration file, and its version.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};

use ginnel_agent::config::{self, AgentConfig, read_text};
use ginnel_api::mask;
use ginnel_api::yaml_tree::{TextPlace, YamlKey, YamlNode, YamlValue, read_tree};
use ginnel_base::files;
use ginnel_settings::{ResolvedSettings, SettingSources};

use super::places::{config_paths, default_config_path};
use crate::config::find_problems;
use crate::error::{CliError, CommandResult, Exit};
use crate::output::print_line;
use crate::settings;

/// What `config add-…` stores: the command, the key of the file, and what is said of it.
const ADDED: [(&str, &str, &str); 4] = [
    ("add-authtoken", "authtoken", "Authtoken"),
    ("add-api-key", "api_key", "API key"),
    ("add-connect-url", "connect_url", "Connect URL"),
    ("add-server-addr", "server_addr", "Server address"),
];
/// The keys of which a file has one alone: they say the same.
const SERVICE_KEYS: [&str; 2] = ["connect_url", "server_addr"];
/// The key below which version 3 has the settings of the agent.
const AGENT: &str = "agent";
/// What stays where it is when a file gets version 3.
const OUTSIDE_OF_AGENT: [&str; 3] = ["version", "tunnels", "mocks"];
/// What a file holds that does not exist yet.
const EMPTY_FILE: &str = "version: \"3\"\n";
/// The editors that are looked for in the environment.
const EDITOR_VARIABLES: [&str; 2] = ["VISUAL", "EDITOR"];
/// The argument of the commands that store a secret.
pub(super) const SECRET: &str = "secret";
const VERSION: &str = "to-version";
const DRY_RUN: &str = "dry-run";
const RELOCATE: &str = "relocate";

pub(super) fn command() -> Command {
    let added = ADDED.map(|(name, key, _)| {
        let value = Arg::new(SECRET)
            .required(true)
            .value_name(key.to_uppercase())
            .help("The value to store");
        Command::new(name).about(format!("Save {key} in the configuration file")).arg(value)
    });
    Command::new("config")
        .about("Commands for the configuration file")
        .subcommand_required(true)
        .subcommands(
            added.into_iter().chain([
                Command::new("check").about("Check the configuration file"),
                Command::new("upgrade")
                    .about("Write the configuration file anew as version 3")
                    .arg(
                        Arg::new(VERSION)
                            .value_name("VERSION")
                            .value_parser(["3"])
                            .help("3, the latest"),
                    )
                    .arg(switch_argument(DRY_RUN, "Print what would be written, and write nothing"))
                    .arg(switch_argument(
                        RELOCATE,
                        "Move the file to where it is looked for by default",
                    )),
                Command::new("edit").about("Open the configuration file in $VISUAL or $EDITOR"),
            ]),
        )
}

fn switch_argument(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// `authtoken TOKEN`, the older name of `config add-authtoken`.
pub(super) fn authtoken_command() -> Command {
    Command::new("authtoken")
        .about("The older name of config add-authtoken")
        .arg(Arg::new(SECRET).required(true).value_name("AUTHTOKEN").help("The value to store"))
}

pub(super) fn run(matches: &ArgMatches) -> CommandResult<()> {
    match matches.subcommand() {
        Some(("check", matches)) => check_file(matches),
        Some(("upgrade", matches)) => upgrade_file(&config_path(matches)?, matches),
        Some(("edit", matches)) => edit_file(&config_path(matches)?),
        Some((name, matches)) => add_secret(name, matches),
        None => Err(CliError::usage("no command given; try `config --help`")),
    }
}

pub(super) fn run_authtoken(matches: &ArgMatches) -> CommandResult<()> {
    add_secret("add-authtoken", matches)
}

/// The file that is changed: the last one that is named, or the usual one.
fn config_path(matches: &ArgMatches) -> CommandResult<PathBuf> {
    let unknown = || CliError::usage("no configuration file: pass --config");
    config_paths(matches).pop().ok_or_else(unknown)
}

fn check_file(matches: &ArgMatches) -> CommandResult<()> {
    let path = config_path(matches)?;
    let text = read_config_text(&path)?;
    let loaded = load_text(&path, &text).map_err(settings::report_problems)?;
    let problems = find_problems(&loaded);
    if !problems.is_empty() {
        return Err(settings::report_problems(problems));
    }
    print_line(&format!("Valid configuration file at {}", mask::path(&path)));
    Ok(())
}

fn load_text(path: &Path, text: &str) -> Result<ResolvedSettings<AgentConfig>, Vec<String>> {
    let files = [read_text(path, text)];
    let (flags, environment) = (&|_: &str| None, &|_: &str| None);
    config::load_config(&SettingSources { flags, environment, files: &files })
}

/// Everything that is wrong with a file.
fn check_text(path: &Path, text: &str) -> Result<(), Vec<String>> {
    let loaded = load_text(path, text)?;
    let problems: Vec<_> = loaded.config.find_problems().iter().map(ToString::to_string).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn add_secret(command: &str, matches: &ArgMatches) -> CommandResult<()> {
    let known = ADDED.iter().find(|(name, _, _)| *name == command);
    let (Some((_, key, title)), Some(secret)) = (known, matches.get_one::<String>(SECRET)) else {
        return Err(CliError::usage("no command given; try `config --help`"));
    };
    let path = config_path(matches)?;
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| path_error(&path, &error))?,
    };
    let key = existing_key(&text, key);
    let changed =
        with_secret(&text, key, secret).map_err(|problem| manual_edit_error(&path, problem))?;
    if SERVICE_KEYS.contains(&key) {
        check_text(&path, &changed).map_err(settings::report_problems)?;
    }
    write_secret_file(&path, &changed)?;
    print_line(&format!("{title} saved to configuration file: {}", mask::path(&path)));
    Ok(())
}

/// The key that a file has for the same, or this one.
fn existing_key<'k>(text: &str, key: &'k str) -> &'k str {
    let Some(root) = read_tree(text).ok().filter(|_| SERVICE_KEYS.contains(&key)) else {
        return key;
    };
    let holder = if is_version_3(&root) { value_of(&root, AGENT) } else { Some(&root) };
    let has = |known: &&str| holder.is_some_and(|holder| value_of(holder, known).is_some());
    SERVICE_KEYS.into_iter().find(has).unwrap_or(key)
}

/// The text of a file in which a key of the agent has this value; everything else stays as it is.
fn with_secret(text: &str, key: &str, secret: &str) -> Result<String, &'static str> {
    let root = read_tree(text).map_err(|_| "it is no YAML")?;
    if root.value == YamlValue::Null {
        return with_secret(&append_lines(text, EMPTY_FILE), key, secret);
    }
    let section = is_version_3(&root).then_some(AGENT);
    let quoted = serde_json::Value::from(secret).to_string();
    let line = format!("{key}: {quoted}");
    let holder = match section {
        Some(section) => value_of(&root, section),
        None => Some(&root),
    };
    let changed = match holder.and_then(|holder| key_place(holder, key)) {
        Some(place) => replace_line(text, place, &line),
        None => match holder.and_then(first_key) {
            Some(place) => insert_line(text, place, &line),
            None => match section {
                Some(section) => append_lines(text, &format!("{section}:\n  {line}\n")),
                None => append_lines(text, &format!("{line}\n")),
            },
        },
    };
    let stored = read_tree(&changed).ok().and_then(|root| {
        let holder = section.map_or(Some(&root), |section| value_of(&root, section))?;
        value_of(holder, key)?.scalar_text()
    });
    // A value of several lines, or a map in braces.
    let is_stored = stored.as_deref() == Some(secret);
    let keeps_others = read_tree(&changed).is_ok_and(|new| {
        let without = |root: &YamlNode| match section {
            Some(section) => node_to_json(root, &[section, key]),
            None => node_to_json(root, &[key]),
        };
        without(&root) == without(&new)
    });
    if is_stored && keeps_others { Ok(changed) } else { Err("its form is unusual") }
}

/// What a node says, wherever it stands in the text, without what this path of keys leads to.
fn node_to_json(node: &YamlNode, path: &[&str]) -> serde_json::Value {
    use serde_json::Value;
    match &node.value {
        YamlValue::Text(text) => Value::from(text.as_str()),
        YamlValue::Number(number) => Value::Number(number.clone()),
        YamlValue::Bool(is_so) => Value::Bool(*is_so),
        YamlValue::Null => Value::Null,
        YamlValue::List(items) => items.iter().map(|item| node_to_json(item, &[])).collect(),
        YamlValue::Map(entries) => {
            let kept = entries.iter().filter(|(key, _)| path != [key.name.as_str()]);
            let inner = |name: &str| match path.split_first() {
                Some((first, rest)) if *first == name => rest,
                _ => &[],
            };
            let kept =
                kept.map(|(key, value)| (key.name.clone(), node_to_json(value, inner(&key.name))));
            // A section that has nothing else is as good as none.
            kept.filter(|(_, value)| *value != Value::Object(Default::default())).collect()
        }
    }
}

/// Whether a file of version 3 says what one of version 2 said.
fn is_equivalent(old: &YamlNode, new: &YamlNode) -> bool {
    let new_settings = value_of(new, AGENT).map(|agent| node_to_json(agent, &[]));
    let (mut settings, mut others) = (serde_json::Map::new(), serde_json::Map::new());
    for (key, value) in map_entries(old).iter().filter(|(key, _)| key.name != "version") {
        let side = match OUTSIDE_OF_AGENT.contains(&key.name.as_str()) {
            true => &mut others,
            false => &mut settings,
        };
        side.insert(key.name.clone(), node_to_json(value, &[]));
    }
    let mut new_others = node_to_json(new, &[AGENT]);
    if let Some(fields) = new_others.as_object_mut() {
        fields.remove("version");
    }
    let keeps = |value: &serde_json::Value| *value != serde_json::Value::Object(Default::default());
    settings.retain(|_, value| keeps(value));
    others.retain(|_, value| keeps(value));
    serde_json::Value::Object(others) == new_others
        && serde_json::Value::Object(settings)
            == new_settings.unwrap_or_else(|| serde_json::json!({}))
}

fn is_version_3(root: &YamlNode) -> bool {
    let version = value_of(root, "version").and_then(YamlNode::scalar_text);
    version.as_deref() == Some("3")
}

fn map_entries(node: &YamlNode) -> &[(YamlKey, YamlNode)] {
    match &node.value {
        YamlValue::Map(entries) => entries,
        _ => &[],
    }
}

fn value_of<'n>(node: &'n YamlNode, key: &str) -> Option<&'n YamlNode> {
    map_entries(node).iter().find(|(name, _)| name.name == key).map(|(_, value)| value)
}

fn key_place(node: &YamlNode, key: &str) -> Option<TextPlace> {
    map_entries(node).iter().find(|(name, _)| name.name == key).map(|(name, _)| name.place)
}

fn first_key(node: &YamlNode) -> Option<TextPlace> {
    map_entries(node).first().map(|(name, _)| name.place)
}

/// The text with another line in place of the one at `place`, which is indented as it was.
fn replace_line(text: &str, place: TextPlace, line: &str) -> String {
    with_lines(text, |number, old| match number == place.line {
        true => format!("{}{line}\n", indentation_at(place)),
        false => old.to_owned(),
    })
}

/// The text with a line before the one at `place`, which is indented as that one.
fn insert_line(text: &str, place: TextPlace, line: &str) -> String {
    with_lines(text, |number, old| match number == place.line {
        true => format!("{}{line}\n{old}", indentation_at(place)),
        false => old.to_owned(),
    })
}

fn append_lines(text: &str, lines: &str) -> String {
    let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{separator}{lines}")
}

fn indentation_at(place: TextPlace) -> String {
    " ".repeat(usize::try_from(place.column.saturating_sub(1)).unwrap_or_default())
}

/// The text with each line, numbered from 1, as `change` makes it.
fn with_lines(text: &str, change: impl Fn(u64, &str) -> String) -> String {
    (1..).zip(text.split_inclusive('\n')).map(|(number, line)| change(number, line)).collect()
}

fn upgrade_file(path: &Path, matches: &ArgMatches) -> CommandResult<()> {
    let to = match matches.get_flag(RELOCATE) {
        true => Some(relocation_path(path)?).filter(|to| to != path),
        false => None,
    };
    let text = read_config_text(path)?;
    check_text(path, &text).map_err(settings::report_problems)?;
    let upgraded = upgraded_text(path, &text)?;
    if matches.get_flag(DRY_RUN) {
        print_line(upgraded.as_deref().unwrap_or(&text).trim_end());
        return Ok(());
    }
    match &upgraded {
        None => print_line(&format!("{} has version 3 already", mask::path(path))),
        Some(upgraded) => {
            let backup = files::with_suffix(path, ".v2");
            files::write_atomic(&backup, text.as_bytes(), files::SECRET_MODE)
                .map_err(|error| path_error(&backup, &error))?;
            write_secret_file(path, upgraded)?;
            let (path, backup) = (mask::path(path), mask::path(&backup));
            print_line(&format!("{path} has version 3 now; {backup} is as before"));
        }
    }
    if let Some(to) = to {
        write_secret_file(&to, upgraded.as_deref().unwrap_or(&text))?;
        std::fs::remove_file(path).map_err(|error| path_error(path, &error))?;
        print_line(&format!("{} is at {} now", mask::path(path), mask::path(&to)));
    }
    Ok(())
}

/// Where a file is moved to.
fn relocation_path(path: &Path) -> CommandResult<PathBuf> {
    let unknown = || CliError::usage(format!("--{RELOCATE}: HOME is not set"));
    let to = default_config_path().ok_or_else(unknown)?;
    match to != path && to.exists() {
        true => {
            let problem = "exists, and is not replaced";
            Err(CliError::usage(format!("--{RELOCATE}: {} {problem}", mask::path(&to))))
        }
        false => Ok(to),
    }
}

/// The text of a file as version 3; none where it is that already.
fn upgraded_text(path: &Path, text: &str) -> CommandResult<Option<String>> {
    let root = read_tree(text).map_err(|_| manual_edit_error(path, "it is no YAML"))?;
    if is_version_3(&root) {
        return Ok(None);
    }
    let upgraded = as_version_3(text, &root);
    check_text(path, &upgraded).map_err(|_| manual_edit_error(path, "its form is unusual"))?;
    match read_tree(&upgraded).is_ok_and(|new| is_equivalent(&root, &new)) {
        true => Ok(Some(upgraded)),
        false => Err(manual_edit_error(path, "its form is unusual")),
    }
}

/// The text of a file of version 2 as version 3: its settings below `agent`, comments with what they
/// precede.
fn as_version_3(text: &str, root: &YamlNode) -> String {
    let starts: Vec<_> =
        map_entries(root).iter().map(|(key, _)| (key.place.line, &key.name)).collect();
    let (mut head, mut agent, mut others) = (String::new(), String::new(), String::new());
    let mut blocks: Vec<(Option<&str>, String)> = vec![(None, String::new())];
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        if let Some((_, name)) = starts.iter().find(|(start, _)| *start == number) {
            let comments = comments_before(&mut blocks);
            blocks.push((Some(name), comments));
        }
        if let Some((_, block)) = blocks.last_mut() {
            block.push_str(line);
        }
    }
    for (name, block) in blocks {
        match name {
            None => head.push_str(&block),
            Some("version") => {
                head.extend(block.split_inclusive('\n').filter(|line| line.starts_with('#')));
            }
            Some(name) if !OUTSIDE_OF_AGENT.contains(&name) => {
                agent.push_str(&indent_block(&block))
            }
            _ => others.push_str(&block),
        }
    }
    let agent = if agent.is_empty() { agent } else { format!("{AGENT}:\n{agent}") };
    append_lines(&append_lines(&append_lines(&head, EMPTY_FILE), &agent), &others)
}

/// Takes the comments at the end of the last block: they belong to the next key.
fn comments_before(blocks: &mut [(Option<&str>, String)]) -> String {
    let Some((_, block)) = blocks.last_mut() else { return String::new() };
    let is_comment = |line: &&str| line.starts_with('#');
    let length: usize =
        block.split_inclusive('\n').rev().take_while(is_comment).map(str::len).sum();
    block.split_off(block.len() - length)
}

fn indent_block(block: &str) -> String {
    with_lines(block, |_, line| match line.trim().is_empty() {
        true => line.to_owned(),
        false => format!("  {line}"),
    })
}

fn edit_file(path: &Path) -> CommandResult<()> {
    let editor = EDITOR_VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
    let editor = editor.map(|editor| editor.trim().to_owned()).find(|editor| !editor.is_empty());
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let mut words = editor.split_whitespace();
    let mut command = std::process::Command::new(words.next().unwrap_or_default());
    let ended = command.args(words).arg(path).status();
    let ended = ended.map_err(|error| CliError::new(Exit::Failed, format!("{editor}: {error}")))?;
    match ended.success() {
        true => Ok(()),
        false => Err(CliError::new(Exit::Failed, format!("{editor}: {ended}"))),
    }
}

fn read_config_text(path: &Path) -> CommandResult<String> {
    std::fs::read_to_string(path).map_err(|error| path_error(path, &error))
}

/// It holds secrets.
fn write_secret_file(path: &Path, text: &str) -> CommandResult<()> {
    let made = std::fs::create_dir_all(files::parent_folder(path));
    let written =
        made.and_then(|()| files::write_atomic(path, text.as_bytes(), files::SECRET_MODE));
    written.map_err(|error| path_error(path, &error))
}

fn path_error(path: &Path, error: &std::io::Error) -> CliError {
    CliError::new(Exit::Failed, format!("{}: {error}", mask::path(path)))
}

fn manual_edit_error(path: &Path, problem: &str) -> CliError {
    CliError::usage(format!("{}: {problem}; change it by hand", mask::path(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_goes_where_the_version_has_it() {
        for (before, after) in [
            ("version: 2\n", "authtoken: \"x\"\nversion: 2\n"),
            ("version: 2\nauthtoken: old # mine\n", "version: 2\nauthtoken: \"x\"\n"),
            ("version: \"3\"\n", "version: \"3\"\nagent:\n  authtoken: \"x\"\n"),
            (
                "version: 3\nagent:\n    region: eu # here\n",
                "version: 3\nagent:\n    authtoken: \"x\"\n    region: eu # here\n",
            ),
            ("version: 3\nagent:\n  authtoken: o", "version: 3\nagent:\n  authtoken: \"x\"\n"),
            ("", "version: \"3\"\nagent:\n  authtoken: \"x\"\n"),
            ("# c\n", "# c\nversion: \"3\"\nagent:\n  authtoken: \"x\"\n"),
            ("version: 3", "version: 3\nagent:\n  authtoken: \"x\"\n"),
        ] {
            assert_eq!(with_secret(before, "authtoken", "x").as_deref(), Ok(after));
        }
    }

    #[test]
    fn a_file_of_an_unusual_form_is_left_alone() {
        for text in [
            "{version: 2}",
            "version: 3\nagent: {region: eu}\n",
            "version: 3\nagent:\n",
            "a: [\n",
            // All of it would be gone with the line.
            "{\"authtoken\": \"old\", \"version\": \"2\", \"region\": \"eu\"}",
        ] {
            assert!(with_secret(text, "authtoken", "x").is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_of_version_2_becomes_one_of_version_3() {
        let before = "# mine\nversion: 2\nauthtoken: x # secret\n# the address\nserver_addr:\n  - a:1\n\
            tunnels:\n  web: {addr: 80, proto: http}\n\nmetadata: m";

        let after = as_version_3(before, &read_tree(before).unwrap());

        assert_eq!(
            after,
            "# mine\nversion: \"3\"\nagent:\n  authtoken: x # secret\n  # the address\n  server_addr:\n    \
             - a:1\n  metadata: m\ntunnels:\n  web: {addr: 80, proto: http}\n\n"
        );
        assert_eq!(check_text(Path::new("F"), &after), Ok(()));
    }
}
