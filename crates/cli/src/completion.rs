//! `ginnel completion`: what makes a shell complete our commands.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::error::{CliError, CommandResult};
use super::help::{self, HelpScope};
use super::output::write_completion;

pub(super) fn command() -> Command {
    Command::new("completion")
        .about("Print a completion script for a shell")
        .after_help(
            "Examples:\n  ginnel completion bash > ~/.local/share/bash-completion/completions/ginnel\n  \
             ginnel completion zsh > ~/.zfunc/_ginnel\n  \
             ginnel completion fish > ~/.config/fish/completions/ginnel.fish",
        )
        .arg(Arg::new("shell").required(true).value_parser(value_parser!(Shell)).help("The shell"))
}

pub(super) fn run(matches: &ArgMatches) -> CommandResult<()> {
    let Some(shell) = matches.get_one::<Shell>("shell") else {
        return Err(CliError::usage("no shell given"));
    };
    write_completion(*shell, help::arrange_help(super::command(), HelpScope::All), "ginnel");
    Ok(())
}
