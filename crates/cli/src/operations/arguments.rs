//! What was typed as the arguments of an operation.

use std::io::Read;
use std::path::Path;

use clap::ArgMatches;
use serde_json::{Map, Value};

use ginnel_api::{Field, Info, Kind, Output, ParameterLocation, json, mask};
use ginnel_net::secret_file::{read_secret_lines, secret_text};

use super::tree::{is_plain, names_file};
use super::{FILE_ARG, to_kebab_case};
use crate::error::{CliError, CommandResult};
use crate::help;

/// Fields that are a document of JSON or YAML, or its text.
const POLICIES: [&str; 2] = ["policy", "traffic_policy"];
/// The field that is JSON and nothing else.
const JSON: &str = "json";

/// The arguments: those of the file, then those of the command line, which win.
pub(super) fn read_arguments(
    info: &Info,
    matches: &ArgMatches,
) -> CommandResult<Map<String, Value>> {
    let mut arguments = match matches.try_get_one::<std::path::PathBuf>(FILE_ARG) {
        Ok(Some(path)) => from_file(info, path)?,
        _ => Map::new(),
    };
    let is_identifier = |name| info.identifiers().any(|identifier| identifier == name);
    for parameter in info.parameters.iter().filter(|parameter| !is_identifier(parameter.name)) {
        if let Some(value) = read_parameter(info, parameter, matches)? {
            arguments.insert(parameter.name.to_owned(), value);
        }
    }
    arguments.extend(read_identifiers(info, matches)?);
    match info.identifiers().find(|name| !arguments.contains_key(*name)) {
        Some(missing) => Err(missing_identifier(info, missing)),
        None => Ok(arguments),
    }
}

/// Returns the identifiers on the command line. Each is a positional argument or an option; positional
/// arguments fill the places that options leave, in their order.
fn read_identifiers(info: &Info, matches: &ArgMatches) -> CommandResult<Map<String, Value>> {
    let typed = |id: &str| matches.try_get_one::<String>(id).ok().flatten().cloned();
    let mut positional = info.identifiers().filter_map(&typed);
    let mut found = Map::new();
    let mut by_option = "";
    for name in info.identifiers() {
        let option = typed(&help::twin_id(name));
        by_option = if option.is_some() { name } else { by_option };
        if let Some(value) = option.or_else(|| positional.next()) {
            found.insert(name.to_owned(), value.into());
        }
    }
    match positional.next() {
        Some(_) => Err(CliError::usage(format!(
            "{} is given twice, as an argument and as --{}; remove one of them",
            by_option.to_uppercase(),
            to_kebab_case(by_option)
        ))),
        None => Ok(found),
    }
}

fn missing_identifier(info: &Info, name: &str) -> CliError {
    let (command, option) = (to_kebab_case(info.name), to_kebab_case(name));
    let name = name.to_uppercase();
    CliError::usage(format!(
        "{name} is missing; add it after {command:?}, or pass --{option} {name}"
    ))
}

/// The arguments in a file. What only answers hold, such as `uri`, is left out: so what was printed
/// can be edited and given back.
fn from_file(info: &Info, path: &Path) -> CommandResult<Map<String, Value>> {
    let shown = mask::path(path);
    let Value::Object(fields) = parse_json(&read_text(path)?, &shown)? else {
        return Err(CliError::usage(format!("{shown} does not hold a JSON object")));
    };
    let answered = match info.output {
        Output::One(shape) => shape.fields,
        _ => &[],
    };
    let mut arguments = Map::new();
    for (name, value) in fields {
        if info.parameters.iter().any(|parameter| parameter.name == name) {
            if info.parameter_location(&name) != ParameterLocation::Path {
                arguments.insert(name, value);
            }
        } else if !answered.iter().any(|field| field.name == name) {
            return Err(CliError::usage(format!(
                "{shown}: {name} is not an argument of this operation"
            )));
        }
    }
    Ok(arguments)
}

/// What the command line says of a parameter.
fn read_parameter(
    info: &Info,
    parameter: &Field,
    matches: &ArgMatches,
) -> CommandResult<Option<Value>> {
    let name = parameter.name;
    let option = format!("--{}", to_kebab_case(name));
    let one = || matches.get_one::<String>(name);
    let many = || matches.get_many::<String>(name).map(|values| values.collect::<Vec<_>>());
    Ok(match &parameter.kind {
        Kind::Secret if names_file(info, parameter) => one().map(|text| text.as_str().into()),
        Kind::Secret => match matches.get_one::<std::path::PathBuf>(name) {
            Some(path) => Some(read_secret_file(path)?.into()),
            None => None,
        },
        Kind::Bool => one().map(|text| (text == "true").into()),
        Kind::Integer => matches.get_one::<i64>(name).map(|number| (*number).into()),
        Kind::Number => matches.get_one::<f64>(name).map(|number| (*number).into()),
        Kind::Text { .. } | Kind::TextOrNumber | Kind::Time | Kind::Bytes => {
            one().map(|text| text.as_str().into())
        }
        Kind::Json => one().map(|text| parse_value(name, text, &option)).transpose()?,
        Kind::List(item) if is_plain(item) => match many().as_deref() {
            Some([only]) if *only == "[]" => Some(Value::Array(Vec::new())),
            Some(texts) => {
                let items = texts.iter().map(|text| parse_scalar(item, text, &option));
                Some(Value::Array(items.collect::<Result<_, _>>()?))
            }
            None => None,
        },
        Kind::Map(item) if is_plain(item) => match many().as_deref() {
            Some([only]) if *only == "{}" => Some(Value::Object(Map::new())),
            Some(texts) => {
                let pairs = texts.iter().map(|text| parse_pair(item, text, &option));
                Some(Value::Object(pairs.collect::<Result<_, _>>()?))
            }
            None => None,
        },
        _ => match one() {
            Some(text) if parameter.kind.has_secrets() && !text.starts_with('@') => {
                return Err(CliError::usage(format!(
                    "{option} holds secrets, and command lines are visible to other users: use @FILE"
                )));
            }
            Some(text) => Some(parse_structured(text, &option)?),
            None => None,
        },
    })
}

/// A value of any form: text needs no quotes, unless the field is JSON by its name.
fn parse_value(name: &str, text: &str, option: &str) -> CommandResult<Value> {
    // Policies are JSON or YAML, which begins with brackets, too.
    let is_document = POLICIES.contains(&name);
    match json::parse_value(text) {
        Ok(value) => Ok(value),
        Err(_)
            if is_document || name != JSON && !text.trim_start().starts_with(['{', '[', '"']) =>
        {
            Ok(text.into())
        }
        Err(error) => Err(CliError::usage(format!("{option} does not hold JSON: {error}"))),
    }
}

fn parse_pair(item: &Kind, text: &str, option: &str) -> CommandResult<(String, Value)> {
    let Some((key, value)) = text.split_once('=') else {
        let text = mask::text(text);
        return Err(CliError::usage(format!("{option}: {text} is not of the form KEY=VALUE")));
    };
    Ok((key.to_owned(), parse_scalar(item, value, option)?))
}

fn parse_scalar(kind: &Kind, text: &str, option: &str) -> CommandResult<Value> {
    match kind {
        Kind::Bool | Kind::Integer | Kind::Number => parse_json(text, option),
        _ => Ok(text.into()),
    }
}

fn parse_structured(value: &str, option: &str) -> CommandResult<Value> {
    match value.strip_prefix('@') {
        Some(path) => parse_json(&read_text(Path::new(path))?, path),
        None => parse_json(value, option),
    }
}

fn parse_json(text: &str, place: &str) -> CommandResult<Value> {
    json::parse_value(text)
        .map_err(|error| CliError::usage(format!("{place} does not hold JSON: {error}")))
}

/// Reads a file of JSON. Programs for Windows put a byte order mark before it, which readers ignore (RFC 8259, section 8.1).
fn read_text(path: &Path) -> CommandResult<String> {
    let mut read = String::new();
    let done = if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut read).map(drop)
    } else {
        std::fs::read_to_string(path).map(|text| read = text)
    };
    done.map_err(|error| CliError::usage(format!("{}: {error}", mask::path(path))))?;
    if read.starts_with('\u{feff}') {
        read.remove(0);
    }
    Ok(read)
}

/// Reads the value of a secret. Blanks in front of it and behind it belong to it.
fn read_secret_file(path: &Path) -> CommandResult<String> {
    let failed = |error| CliError::usage(format!("{}: {error}", mask::path(path)));
    let read = if path == Path::new("-") {
        let mut content = Vec::new();
        let read = std::io::stdin().read_to_end(&mut content);
        read.and_then(|_| secret_text(content))
    } else {
        read_secret_lines(path)
    };
    Ok(read.map_err(failed)?.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::{self, tree};
    use ginnel_api::Resource;
    use serde_json::json;

    /// The arguments of an operation, each by position or, if its bit in `by_option` is set, as an option.
    fn words_of_call(info: &Info, by_option: usize) -> Vec<String> {
        let mut words = vec!["program".to_owned()];
        words.extend(operations::command_words(info));
        for (at, name) in info.identifiers().enumerate() {
            if by_option & (1 << at) != 0 {
                words.push(format!("--{}", to_kebab_case(name)));
            }
            words.push(format!("value-of-{name}"));
        }
        words
    }

    fn identifiers_of(
        command: &clap::Command,
        resources: &[&'static Resource],
        words: Vec<String>,
    ) -> CommandResult<Map<String, Value>> {
        let matches = command.clone().try_get_matches_from(&words).unwrap();
        let (info, matches) = tree::find_operation(resources, &matches).unwrap();
        read_identifiers(info, matches)
    }

    #[test]
    fn identifiers_are_positional_arguments_or_options_in_any_mixture() {
        for (command, resources) in [
            (operations::api_command(), operations::remote_resources()),
            (operations::local_command(), operations::local_resources()),
        ] {
            let calls = resources.iter().flat_map(|resource| resource.operations);
            let mut tried = 0;
            for info in calls.filter(|info| info.identifiers().next().is_some()) {
                let expected = info.identifiers();
                let expected: Map<String, Value> = expected
                    .map(|name| (name.to_owned(), format!("value-of-{name}").into()))
                    .collect();
                for by_option in 0..1 << info.identifiers().count() {
                    let words = words_of_call(info, by_option);

                    let found = identifiers_of(&command, &resources, words.clone());

                    assert_eq!(found.unwrap(), expected, "{words:?}");
                    tried += 1;
                }
            }
            assert!(tried > 20, "{tried}");
        }
    }

    #[test]
    fn wrong_use_of_an_identifier_names_it() {
        let resources = operations::local_resources();
        let command = operations::local_command();
        let replay = ["program", "requests", "replay"];
        let read_call = |more: &[&str]| {
            let matches = command.clone().try_get_matches_from(replay.iter().chain(more)).unwrap();
            let (info, matches) = tree::find_operation(&resources, &matches).unwrap();
            read_arguments(info, matches).unwrap_err().message
        };

        assert_eq!(
            read_call(&["--id", "a", "b"]),
            "ID is given twice, as an argument and as --id; remove one of them"
        );
        assert_eq!(read_call(&[]), "ID is missing; add it after \"replay\", or pass --id ID");
    }

    #[test]
    fn what_begins_like_json_is_json_and_other_text_needs_no_quotes() {
        for (name, text, expected) in [
            ("json", "{\"a\": 1}", json!({"a": 1})),
            ("json", "7", json!(7)),
            ("labels", "app=web", json!("app=web")),
            ("labels", "[\"app=web\"]", json!(["app=web"])),
            ("bind_tls", "true", json!(true)),
            ("traffic_policy", "{on_http_request: []}", json!("{on_http_request: []}")),
        ] {
            assert_eq!(parse_value(name, text, "--x").unwrap(), expected, "{text}");
        }
        for (name, text) in [("json", "{bad"), ("json", "bad"), ("labels", "[app")] {
            let problem = parse_value(name, text, "--x").unwrap_err().message;
            assert!(problem.starts_with("--x does not hold JSON: "), "{problem}");
            assert!(problem.contains("line 1 column"), "{problem}");
        }
    }
}
