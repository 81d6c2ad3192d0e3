//! What was typed as the arguments of an operation.

use std::io::Read;
use std::path::Path;

use clap::ArgMatches;
use serde_json::{Map, Value};

use super::tree::{holds_secret, is_plain};
use super::{FILE_ARG, dashed};
use crate::api::{Field, Info, Kind, Output, ParameterLocation, mask};
use crate::cli::error::CliError;

/// The arguments: those of the file, then those of the command line, which win.
pub(super) fn read(info: &Info, matches: &ArgMatches) -> Result<Map<String, Value>, CliError> {
    let mut arguments = match matches.try_get_one::<std::path::PathBuf>(FILE_ARG) {
        Ok(Some(path)) => from_file(info, path)?,
        _ => Map::new(),
    };
    for parameter in info.parameters {
        if let Some(value) = typed(info, parameter, matches)? {
            arguments.insert(parameter.name.to_owned(), value);
        }
    }
    Ok(arguments)
}

/// The arguments in a file. What only answers hold, such as `uri`, is left out: so what was printed
/// can be edited and given back.
fn from_file(info: &Info, path: &Path) -> Result<Map<String, Value>, CliError> {
    let shown = mask::path(path);
    let Value::Object(fields) = json(&text(path)?, &shown)? else {
        return Err(CliError::usage(format!("{shown} does not hold a JSON object")));
    };
    let answered = match info.output {
        Output::One(shape) => shape.fields,
        _ => &[],
    };
    let mut arguments = Map::new();
    for (name, value) in fields {
        if info.parameters.iter().any(|parameter| parameter.name == name) {
            if info.place(&name) != ParameterLocation::Path {
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
fn typed(info: &Info, parameter: &Field, matches: &ArgMatches) -> Result<Option<Value>, CliError> {
    let name = parameter.name;
    let option = format!("--{}", dashed(name));
    let one = || matches.get_one::<String>(name);
    let many = || matches.get_many::<String>(name).map(|values| values.collect::<Vec<_>>());
    Ok(match &parameter.kind {
        _ if info.place(name) == ParameterLocation::Path => one().map(|text| text.as_str().into()),
        Kind::Secret => match matches.get_one::<std::path::PathBuf>(name) {
            Some(path) => Some(text(path)?.trim_end_matches(['\r', '\n']).into()),
            None => None,
        },
        Kind::Bool => one().map(|text| (text == "true").into()),
        Kind::Integer => matches.get_one::<i64>(name).map(|number| (*number).into()),
        Kind::Number => matches.get_one::<f64>(name).map(|number| (*number).into()),
        Kind::Text { .. } | Kind::TextOrNumber | Kind::Time | Kind::Bytes => {
            one().map(|text| text.as_str().into())
        }
        // A port is a number and an address is text, both without quotes.
        Kind::Json => one()
            .map(|text| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()))),
        Kind::List(item) if is_plain(item) => match many().as_deref() {
            Some([only]) if *only == "[]" => Some(Value::Array(Vec::new())),
            Some(texts) => {
                let items = texts.iter().map(|text| plain(item, text, &option));
                Some(Value::Array(items.collect::<Result<_, _>>()?))
            }
            None => None,
        },
        Kind::Map(item) if is_plain(item) => match many().as_deref() {
            Some([only]) if *only == "{}" => Some(Value::Object(Map::new())),
            Some(texts) => {
                let pairs = texts.iter().map(|text| pair(item, text, &option));
                Some(Value::Object(pairs.collect::<Result<_, _>>()?))
            }
            None => None,
        },
        _ => match one() {
            Some(text) if holds_secret(&parameter.kind) && !text.starts_with('@') => {
                return Err(CliError::usage(format!(
                    "{option} holds secrets, and command lines are visible to other users: use @FILE"
                )));
            }
            Some(text) => Some(structured(text, &option)?),
            None => None,
        },
    })
}

fn pair(item: &Kind, text: &str, option: &str) -> Result<(String, Value), CliError> {
    let Some((key, value)) = text.split_once('=') else {
        let text = mask::text(text);
        return Err(CliError::usage(format!("{option}: {text} is not of the form KEY=VALUE")));
    };
    Ok((key.to_owned(), plain(item, value, option)?))
}

fn plain(kind: &Kind, text: &str, option: &str) -> Result<Value, CliError> {
    match kind {
        Kind::Bool | Kind::Integer | Kind::Number => json(text, option),
        _ => Ok(text.into()),
    }
}

fn structured(value: &str, option: &str) -> Result<Value, CliError> {
    match value.strip_prefix('@') {
        Some(path) => json(&text(Path::new(path))?, path),
        None => json(value, option),
    }
}

fn json(text: &str, place: &str) -> Result<Value, CliError> {
    serde_json::from_str(text)
        .map_err(|error| CliError::usage(format!("{place} does not hold JSON: {error}")))
}

fn text(path: &Path) -> Result<String, CliError> {
    let mut read = String::new();
    let done = if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut read).map(drop)
    } else {
        std::fs::read_to_string(path).map(|text| read = text)
    };
    done.map_err(|error| CliError::usage(format!("{}: {error}", mask::path(path))))?;
    Ok(read)
}
