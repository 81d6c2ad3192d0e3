//! The table of operations as commands.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use ginnel_api::documentation::first_sentence;
use ginnel_api::local::requests::List;
use ginnel_api::local::tunnels;
use ginnel_api::{Field, Info, Kind, Operation, Output, ParameterLocation, Resource};

use super::{FILE_ARG, FOLLOW_ARG, MAX, command_words, to_kebab_case};
use crate::help::{self, HelpRank};

/// How many parameters an operation may have whose help lists all of them.
const MAX_USUAL_OPTIONS: usize = 15;

/// The commands of these resources, nested as their names are.
pub(super) fn resource_commands(program: &str, resources: &[&'static Resource]) -> Vec<Command> {
    commands_below(program, "", resources)
}

/// The operation that was asked for, with its arguments.
pub(super) fn find_operation<'m>(
    resources: &[&'static Resource],
    matches: &'m ArgMatches,
) -> Option<(&'static Info, &'m ArgMatches)> {
    let (mut asked, mut inner) = (Vec::new(), matches);
    while let Some((word, below)) = inner.subcommand() {
        asked.push(word);
        inner = below;
    }
    let mut operations = resources.iter().flat_map(|resource| resource.operations);
    Some((operations.find(|info| command_words(info) == asked)?, inner))
}

/// The resources whose names begin with `prefix`, by the next word of their names.
fn commands_below(program: &str, prefix: &str, resources: &[&'static Resource]) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for resource in resources {
        let Some(rest) = resource.name.strip_prefix(prefix) else { continue };
        let Some(word) = rest.split('.').next().filter(|word| !word.is_empty()) else { continue };
        if commands.iter().any(|known| known.get_name() == to_kebab_case(word)) {
            continue;
        }
        commands.push(group_command(program, &format!("{prefix}{word}"), resources));
    }
    commands
}

/// The command of a resource, or of what several resources have in common.
fn group_command(program: &str, name: &str, resources: &[&'static Resource]) -> Command {
    let inner = commands_below(program, &format!("{name}."), resources);
    let word = to_kebab_case(name.rsplit('.').next().unwrap_or(name));
    let command = Command::new(word).subcommand_required(true);
    let Some(resource) = resources.iter().find(|resource| resource.name == name) else {
        let names: Vec<_> = inner.iter().map(|command| command.get_name().to_owned()).collect();
        return command.about(names.join(", ")).subcommands(inner);
    };
    let operations = resource.operations.iter().map(|info| operation_command(program, info));
    command.about(first_sentence(resource.doc)).subcommands(operations).subcommands(inner)
}

fn operation_command(program: &str, info: &'static Info) -> Command {
    let mut command =
        Command::new(to_kebab_case(info.name)).about(first_sentence(info.doc)).after_help(format!(
            "{} {}\n\n{}",
            info.method.as_str(),
            info.path,
            usage_example(program, info)
        ));
    for (at, name) in info.identifiers().enumerate() {
        command = command.args(identifier_arguments(info, name, at + 1));
    }
    let is_option = |field: &&Field| !info.identifiers().any(|name| name == field.name);
    let options: Vec<_> = info.parameters.iter().filter(is_option).collect();
    let has_many = options.len() > MAX_USUAL_OPTIONS;
    command = command.args(options.into_iter().map(|parameter| {
        let option = parameter_argument(info, parameter);
        if has_many && !is_usual(parameter) { option.rare() } else { option }
    }));
    if info.method.has_body() {
        command = command.arg(
            Arg::new(FILE_ARG)
                .long("file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help(
                    "A JSON object with the arguments, - for standard input; options take precedence",
                ),
        );
    }
    if is_followed(info) {
        let follow = Arg::new(FOLLOW_ARG).long("follow").action(ArgAction::SetTrue);
        let help = "Print each request when it ends, with its marks, until interrupted";
        command = command.arg(follow.help(help).conflicts_with(MAX));
    }
    if let Output::Page { .. } = info.output {
        command = command.arg(
            Arg::new(MAX)
                .long("max")
                .value_name("N")
                .value_parser(value_parser!(usize))
                .help("Stop after this many items; by default, fetch all pages"),
        );
    }
    command
}

/// Whether what an operation lists goes on coming.
fn is_followed(info: &Info) -> bool {
    (info.resource, info.name) == (List::INFO.resource, List::INFO.name)
}

/// Returns an identifier as a positional argument, and the option that can replace it.
fn identifier_arguments(info: &Info, name: &'static str, index: usize) -> [Arg; 2] {
    let long = to_kebab_case(name);
    let parameter = info.parameters.iter().find(|parameter| parameter.name == name);
    let help = parameter
        .map(|parameter| first_sentence(info.parameter_doc(parameter)))
        .unwrap_or_default();
    let positional = Arg::new(name).value_name(name.to_uppercase()).index(index);
    [positional.help(format!("{help}; or pass --{long}")), help::twin_option(name, long)]
}

/// Returns true if the help of an operation with many parameters lists this one.
fn is_usual(parameter: &Field) -> bool {
    parameter.required || !matches!(parameter.kind, Kind::Record(_) | Kind::Json | Kind::Object)
}

/// A parameter as an option. Secrets are read from a file: command lines are for all to see.
fn parameter_argument(info: &Info, parameter: &'static Field) -> Arg {
    let long = to_kebab_case(parameter.name);
    let arg = Arg::new(parameter.name).value_name(parameter.name.to_uppercase());
    let mut help = first_sentence(info.parameter_doc(parameter));
    if parameter.required {
        help.push_str(" (required)");
    }
    let arg = match parameter.kind {
        Kind::Secret if names_file(info, parameter) => arg,
        Kind::Secret => {
            let file = arg.long(format!("{long}-file")).value_name("FILE");
            return file
                .value_parser(value_parser!(PathBuf))
                .help(format!("A file that holds the value: {help}"));
        }
        _ if parameter.kind.has_secrets() => {
            help.push_str("; as JSON in a file, or @- for standard input");
            arg.value_name("@FILE")
        }
        Kind::Bool => arg.value_parser(["true", "false"]).value_name("BOOL"),
        Kind::Integer => arg.value_parser(value_parser!(i64)).allow_negative_numbers(true),
        Kind::Number => arg.value_parser(value_parser!(f64)).allow_negative_numbers(true),
        Kind::List(item) if is_plain(item) => {
            help.push_str("; repeat it for each item, or give [] for an empty list");
            arg.action(ArgAction::Append)
        }
        Kind::Map(item) if is_plain(item) => {
            help.push_str("; repeat it for each entry, or give {} for no entries");
            arg.action(ArgAction::Append).value_name("KEY=VALUE")
        }
        Kind::Text { .. } | Kind::TextOrNumber | Kind::Time | Kind::Bytes | Kind::Json => arg,
        _ => {
            help.push_str("; as JSON, or @FILE");
            arg.value_name("JSON")
        }
    };
    arg.long(long).help(help)
}

/// The secret whose value is the name of its file, which may be on a command line: the key of a tunnel's certificate.
const FILE_OF_KEY: (&Info, &str) = (&tunnels::Start::INFO, "key");

/// Returns true for a secret whose value is the name of its file, which may be on a command line.
pub(super) fn names_file(info: &Info, parameter: &Field) -> bool {
    let (known, name) = FILE_OF_KEY;
    let is_operation = (info.resource, info.name) == (known.resource, known.name);
    is_operation && parameter.kind == Kind::Secret && parameter.name == name
}

/// True for what is written without JSON.
pub(super) fn is_plain(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Text { .. } | Kind::Time | Kind::Bytes | Kind::Bool | Kind::Integer | Kind::Number
    )
}

/// A command line that shows how an operation is called.
fn usage_example(program: &str, info: &Info) -> String {
    let mut line = format!("Example:\n  {program} {}", command_words(info).join(" "));
    for name in info.identifiers() {
        line.push_str(&format!(" {}", name.to_uppercase()));
    }
    let body =
        |parameter: &&Field| info.parameter_location(parameter.name) == ParameterLocation::Body;
    let shown = |parameter: &&Field| {
        let is_short = is_plain(&parameter.kind) || parameter.kind == Kind::TextOrNumber;
        body(parameter) && is_short
    };
    // Without these a tunnel is a labeled one.
    let helpful = |name| info.name == "start" && ["proto", "name"].contains(&name);
    let is_option = |one: &&Field| !info.identifiers().any(|name| name == one.name);
    let options = || info.parameters.iter().filter(is_option).filter(shown);
    let mut flags: Vec<_> = options().filter(|one| one.required || helpful(one.name)).collect();
    if flags.is_empty()
        && !info.identifiers().any(|name| info.parameter_location(name) == ParameterLocation::Body)
    {
        flags.extend(options().next());
    }
    for parameter in flags {
        let value = match (parameter.name, &parameter.kind) {
            ("addr", _) => "8080",
            ("proto", _) => "http",
            ("cidr", _) => "192.0.2.0/24",
            ("action", _) => "allow",
            ("hostports", _) => "shop.example.com:443",
            (_, Kind::Bool) => "true",
            (_, Kind::Integer) => "1",
            (_, Kind::Number) => "0.5",
            _ => "TEXT",
        };
        line.push_str(&format!(" --{} {value}", to_kebab_case(parameter.name)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::{local_resources, remote_resources};

    const KEY: Field =
        Field { name: "key", doc: "", kind: Kind::Secret, required: false, is_public: false };

    #[test]
    fn secrets_are_read_from_files_whatever_their_names_are() {
        for resource in local_resources().iter().chain(&remote_resources()) {
            for info in resource.operations {
                let is_start = (info.resource, info.name) == ("tunnels", tunnels::Start::INFO.name);

                let arg = parameter_argument(info, &KEY);

                let option = if is_start { "key" } else { "key-file" };
                assert_eq!(arg.get_long(), Some(option), "{} {}", info.resource, info.name);
                assert_eq!(names_file(info, &KEY), is_start);
            }
        }
    }
}
