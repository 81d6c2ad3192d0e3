//! The `ginnel` command: one file per subcommand.
//!
//! # One command
//!
//! `ginnel api api-keys list` is parsed by `usage` and `operations`, which take the command's arguments from the same
//! table as the Python clients. `ginnel serve` reads its settings (`settings`), starts a service and waits for signals;
//! `ginnel http 8080` starts an agent.
//!
//! # Invariants
//!
//! - The command uses no Python: the package passes the arguments and receives an exit code.

mod access_log;
mod admin;
mod admin_key;
mod agent;
mod backup;
mod completion;
mod config;
mod dashes;
mod doctor;
mod download;
mod error;
mod grace;
mod help;
mod lines;
mod log_file;
mod logging;
mod marks;
mod ngrok;
mod notify;
mod operations;
mod output;
mod policy;
mod reference;
mod runtime;
mod serve;
mod serve_reload;
mod settings;
mod signals;
mod store;
mod usage;
mod variables;

use std::ffi::OsString;

use clap::{ArgMatches, Command};

pub use error::Exit;
pub use ngrok::set_interpreter;

use error::{CliError, CommandResult};
use help::HelpScope;

use ginnel_net::secret_file::take_readable_files;

/// A subcommand: its declaration, and the function that runs it.
struct Subcommand {
    command: fn() -> Command,
    run: fn(&ArgMatches) -> CommandResult<()>,
}

/// Subcommands for one task, under a title.
struct CommandTask {
    title: &'static str,
    subcommands: &'static [Subcommand],
}

/// All subcommands, in the order of the help.
const TASKS: &[CommandTask] = &[
    CommandTask {
        title: "Share a port",
        subcommands: &[
            Subcommand { command: agent::dev_command, run: agent::run_dev },
            Subcommand { command: agent::http_command, run: agent::run_http },
            Subcommand { command: agent::tcp_command, run: agent::run_tcp },
            Subcommand { command: agent::tls_command, run: agent::run_tls },
            Subcommand { command: agent::start_command, run: agent::run_start },
            Subcommand { command: agent::agent_command, run: agent::run_agent },
        ],
    },
    CommandTask {
        title: "Host a service",
        subcommands: &[
            Subcommand { command: serve::command, run: serve::run },
            Subcommand { command: operations::reload_command, run: operations::run_reload },
            Subcommand { command: operations::cluster_command, run: operations::run_cluster },
            Subcommand { command: admin_key::command, run: admin_key::run },
        ],
    },
    CommandTask {
        title: "Automate",
        subcommands: &[
            Subcommand { command: operations::api_command, run: operations::run_api },
            Subcommand { command: operations::local_command, run: operations::run_local },
            Subcommand { command: policy::command, run: policy::run },
            Subcommand { command: ngrok::compat, run: ngrok::run_compat },
            Subcommand { command: completion::command, run: completion::run },
            Subcommand { command: reference::command, run: reference::run },
        ],
    },
    CommandTask {
        title: "Look after",
        subcommands: &[
            Subcommand { command: doctor::command, run: doctor::run },
            Subcommand { command: config::command, run: config::run },
            Subcommand { command: backup::backup_command, run: backup::run_backup },
            Subcommand { command: backup::restore_command, run: backup::run_restore },
            Subcommand { command: store::command, run: store::run },
        ],
    },
];

const EXAMPLES: &str = "\
Examples:
  ginnel dev http 8080                                     # local URL
  ginnel http 8080 --server-addr tunnels.example.com:4443  # public URL
  ginnel serve --path ginnel.db --base-domain example.com  # your own service";

const AFTER_HELP: &str = "\
Exit codes: 0 success, 1 failure, 2 wrong usage or configuration,
3 address in use, 4 unusable database, 5 key or authtoken refused,
6 not found, 7 request refused, 8 server error, 9 no response.";

/// Runs the command; `arguments` start with the name of the program. Gives the exit code.
///
/// By the name of `ngrok` it is a program with the grammar of that one, of which each failure is code 1.
///
/// What it has to say goes to standard output, and why it failed to standard error, in one line.
/// Blocks until the work is done; a service that it serves ends with SIGTERM or SIGINT.
pub fn main(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    if ngrok::is_called(&arguments) {
        return ngrok::main(arguments);
    }
    let done = run(arguments).and_then(|()| output::check_written());
    // Commands that run for long have printed theirs at the start.
    take_readable_files().iter().for_each(|warning| output::eprint_line(warning));
    let exit = match done {
        Ok(()) => Exit::Clean,
        Err(failure) => {
            output::eprint_line(&failure.message);
            failure.exit
        }
    };
    exit as u8
}

fn run(arguments: Vec<OsString>) -> CommandResult<()> {
    let mut command = help::arrange_help(command(), HelpScope::from_arguments(&arguments));
    dashes::refuse_single_dashes(&command, &arguments)?;
    let matches = match command.try_get_matches_from_mut(arguments) {
        Ok(matches) => matches,
        Err(error) => return usage::explain_usage_error(&error),
    };
    let Some((name, matches)) = matches.subcommand() else {
        output::print_line(command.render_help().to_string().trim_end());
        return Err(CliError::usage("no command given"));
    };
    let known = all_subcommands().find(|known| (known.command)().get_name() == name);
    // The log of the service is a setting, which may be in a file.
    let log = (name != "serve").then(|| logging::LogOptions::from_flags(matches));
    let _log = log.map(|options| logging::LogWriter::start(&options)).transpose()?;
    known.map_or(Ok(()), |known| (known.run)(matches))
}

fn all_subcommands() -> impl Iterator<Item = &'static Subcommand> {
    TASKS.iter().flat_map(|task| task.subcommands)
}

fn command() -> Command {
    Command::new("ginnel")
        .about("Tunnels, their management API and their agent, on your own machine")
        .version(env!("CARGO_PKG_VERSION"))
        .before_help(EXAMPLES)
        .after_help(AFTER_HELP)
        .help_template(format!(
            "{{before-help}}Usage: {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
            commands_by_task()
        ))
        .subcommands(all_subcommands().map(|known| (known.command)()))
}

/// Returns the part of the help that lists the subcommands.
fn commands_by_task() -> String {
    const NAME_COLUMNS: usize = 10;
    let mut text = String::new();
    for task in TASKS {
        text.push_str(&format!("{}:\n", task.title));
        let commands = task.subcommands.iter().map(|known| (known.command)());
        for command in commands.filter(|command| !command.is_hide_set()) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {:<NAME_COLUMNS$}  {about}\n", command.get_name()));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    /// Words that cannot end a text.
    const INCOMPLETE: &[&str] = &[
        "a", "an", "and", "are", "as", "at", "but", "by", "for", "from", "if", "in", "into", "is",
        "of", "on", "or", "other", "than", "that", "the", "their", "to", "when", "which", "whose",
        "with", "without",
    ];

    /// Words that cannot begin the text of an option. Texts of the operation table are not among them.
    const CLAUSES: &[&str] =
        &["How", "What", "When", "Where", "Whether", "Which", "Who", "Whose", "Whom"];

    /// Returns the problem with a help text, if there is one.
    fn problem(text: &str) -> Option<String> {
        let last = text.rsplit(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
        let ends_badly = text.ends_with([',', ':', ';', '.', '-', '(']);
        let is_open = |open, close| text.matches(open).count() != text.matches(close).count();
        match () {
            () if text.is_empty() => Some("is empty".to_owned()),
            () if text.contains("  ") || text.contains('\n') => Some("has a gap".to_owned()),
            () if ends_badly => Some("ends with a mark".to_owned()),
            () if INCOMPLETE.contains(&last) => Some(format!("ends with {last:?}")),
            () if !text.matches('`').count().is_multiple_of(2) || is_open('(', ')') => {
                Some("does not close a bracket".to_owned())
            }
            () => None,
        }
    }

    fn walk(command: &Command, path: &str, visit: &mut impl FnMut(&str, &str)) {
        let text = |styled: Option<&clap::builder::StyledStr>| {
            styled.map(ToString::to_string).unwrap_or_default()
        };
        let path = format!("{path} {}", command.get_name());
        visit(&path, &text(command.get_about()));
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            visit(&format!("{path}: {}", arg.get_id()), &text(arg.get_help()));
        }
        for inner in command.get_subcommands() {
            walk(inner, &path, visit);
        }
    }

    #[test]
    fn every_help_text_is_a_complete_fragment() {
        let (mut count, mut problems) = (0, Vec::new());
        for command in [command(), ngrok::command()] {
            walk(&command, "", &mut |place, text| {
                count += 1;
                // Additions of the command line follow a semicolon.
                let parts = std::iter::once(text).chain(text.split("; "));
                let found = parts.filter_map(problem).next();
                problems.extend(found.map(|problem| format!("{place} {problem}: {text}")));
            });
        }

        assert!(count > 2_000, "{count}");
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn texts_that_break_off_are_found() {
        for text in
            ["", "Hosts other", "The value,", "A list of", "In the `file", "Two  gaps", "End."]
        {
            assert!(problem(text).is_some(), "{text}");
        }
        assert_eq!(problem("File with a traffic policy (JSON or YAML)"), None);
    }

    #[test]
    fn help_texts_begin_with_a_verb_or_a_noun() {
        let mut problems = Vec::new();
        walk(&command(), "", &mut |place, text| {
            let is_of_table =
                place.starts_with(" ginnel api ") || place.starts_with(" ginnel local ");
            let first = text.split(' ').next().unwrap_or_default();
            if !is_of_table && CLAUSES.contains(&first) {
                problems.push(format!("{place}: {text}"));
            }
        });

        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn commands_with_many_options_list_the_usual_ones() {
        fn check(command: &Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let options =
                || command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
            let usual = options().filter(|arg: &&Arg| !arg.is_hide_short_help_set()).count();
            assert!(
                options().count() <= 15 || usual < 40 && usual < options().count(),
                "{path}: {usual}"
            );
            command.get_subcommands().for_each(|inner| check(inner, &path));
        }

        let mut command = command();
        command.build();
        check(&command, "");
    }

    #[test]
    fn the_list_of_commands_fits_80_columns() {
        let listed = format!("{EXAMPLES}\n{}", commands_by_task());
        let wide: Vec<_> = listed.lines().filter(|line| line.chars().count() > 80).collect();

        assert!(wide.is_empty(), "{wide:?}");
    }

    #[test]
    fn the_grammar_is_sound() {
        for scope in [HelpScope::Usual, HelpScope::All] {
            let mut command = help::arrange_help(command(), scope);
            command.build();
            command.debug_assert();
        }
    }
}

/// The blocks of code in the documentation, so that they run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/rust.md")]
mod documentation {}
