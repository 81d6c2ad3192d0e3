//! Help texts: the usual options with `--help`, all of them with `--help-all`.
//!
//! Each option declares its group (clap's `help_heading`) and, if few users need it, that it is rare.
//! [`arrange_help`] derives the rest from these declarations.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// Prefix of the identifier of an option that can replace a positional argument.
const TWIN: &str = "--";
/// Group of the help flags in commands whose options are all in groups.
const HEADING: &str = "Help";
/// The flag that lists all options.
const ALL_FLAG: &str = "help-all";

/// How often an option is needed.
pub(super) trait HelpRank {
    /// Lists the option with `--help-all` only.
    fn rare(self) -> Self;
}

impl HelpRank for Arg {
    fn rare(self) -> Self {
        self.hide_short_help(true)
    }
}

/// The options that the help lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HelpScope {
    /// The usual ones.
    Usual,
    /// All of them.
    All,
}

impl HelpScope {
    /// Returns the scope that a command line asks for.
    pub fn from_arguments(arguments: &[OsString]) -> Self {
        let mut options = arguments.iter().take_while(|argument| *argument != "--");
        match options.any(|argument| *argument == "--help-all") {
            true => Self::All,
            false => Self::Usual,
        }
    }
}

/// Returns an option that can replace the positional argument `name`. The help of the positional argument
/// mentions it.
pub(super) fn twin_option(name: &'static str, long: String) -> Arg {
    let value = name.to_uppercase();
    let twin = Arg::new(twin_id(name)).long(long).help(format!("Same as <{value}>"));
    twin.value_name(value).hide(true)
}

/// Returns true for an option that can replace a positional argument.
pub(super) fn is_twin(arg: &Arg) -> bool {
    arg.get_id().as_str().starts_with(TWIN)
}

/// Returns the identifier of the option that can replace the positional argument `name`.
pub(super) fn twin_id(name: &str) -> String {
    format!("{TWIN}{name}")
}

/// Returns true if the argument must be present, by position or as an option.
pub(super) fn is_needed(command: &Command, arg: &Arg) -> bool {
    let twin = twin_id(arg.get_id().as_str());
    arg.is_required_set() || command.get_arguments().any(|other| other.get_id() == twin.as_str())
}

/// Makes the help of a command and of those below it list the options in `scope`.
pub(super) fn arrange_help(command: Command, scope: HelpScope) -> Command {
    let path = command.get_name().to_owned();
    arrange_below(command, &path, scope, 0)
}

/// Lists all options, for a program that has no `--help-all`.
pub(super) fn list_all(command: Command) -> Command {
    let path = command.get_name().to_owned();
    list_all_below(command, &path)
}

fn list_all_below(command: Command, path: &str) -> Command {
    let command = name_needed(command, path).mut_args(|arg| arg.hide_short_help(false));
    command.mut_subcommands(|inner| {
        let path = format!("{path} {}", inner.get_name());
        list_all_below(inner, &path)
    })
}

/// `inherited` is the number of rare options that commands above share with this one.
fn arrange_below(command: Command, path: &str, scope: HelpScope, inherited: usize) -> Command {
    let count = |is_counted: fn(&Arg) -> bool| {
        command.get_arguments().filter(|arg| is_rare(arg) && is_counted(arg)).count()
    };
    let (own, shared) = (count(|_| true), count(Arg::is_global_set));
    let rare = own + inherited;
    let help = help_flags(&command, rare > 0);
    let command = name_needed(command, path).disable_help_flag(true).mut_args(|arg| {
        let is_left_out = is_rare(&arg) && scope == HelpScope::Usual;
        let is_hidden = arg.is_hide_set() || is_left_out;
        arg.hide_short_help(false).hide(is_hidden)
    });
    let command = match scope {
        HelpScope::Usual if rare > 0 => with_note(command, path, rare),
        HelpScope::Usual | HelpScope::All => command,
    };
    command.args(help).mut_subcommands(|inner| {
        let path = format!("{path} {}", inner.get_name());
        arrange_below(inner, &path, scope, inherited + shared)
    })
}

fn is_rare(arg: &Arg) -> bool {
    arg.is_hide_short_help_set() && !arg.is_hide_set()
}

/// Adds the number of options that are left out to the end of the help.
fn with_note(command: Command, path: &str, rare: usize) -> Command {
    let plural = if rare == 1 { "" } else { "s" };
    let note = format!("{rare} more option{plural}: {path} --{ALL_FLAG}");
    let note = match command.get_after_help() {
        Some(after) => format!("{after}\n\n{note}"),
        None => note,
    };
    command.after_help(note)
}

/// Returns `--help` and `--help-all`, in the group where readers look for them.
fn help_flags(command: &Command, is_longer: bool) -> [Arg; 2] {
    let mut options =
        command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
    let is_grouped = options.next().is_some_and(|first| {
        first.get_help_heading().is_some()
            && options.all(|option| option.get_help_heading().is_some())
    });
    let short = match is_longer {
        true => "Print the usual options",
        false => "Print this help",
    };
    let flag = |name: &'static str, help| {
        let flag = Arg::new(name).long(name).action(ArgAction::HelpShort).help(help);
        flag.help_heading(is_grouped.then_some(HEADING))
    };
    let all = flag(ALL_FLAG, "Print all options");
    [flag("help", short).short('h'), all.hide(!is_longer)]
}

/// Shows arguments that must be present as such in the usage, also if an option can replace them.
fn name_needed(command: Command, path: &str) -> Command {
    if !command.get_arguments().any(is_twin) {
        return command;
    }
    let positional = command.get_arguments().filter(|arg| arg.is_positional());
    let names = positional.map(|arg| format!(" <{}>", arg.get_id().as_str().to_uppercase()));
    let usage = format!("{path} [OPTIONS]{}", names.collect::<String>());
    command.override_usage(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let option = |name: &'static str| Arg::new(name).long(name).help("Something");
        let inner = Command::new("inner").arg(option("own").help_heading("Group").rare());
        Command::new("outer")
            .arg(option("usual").global(true))
            .arg(option("seldom").global(true).rare())
            .subcommand(inner.arg(Arg::new("id").index(1)).arg(twin_option("id", "id".to_owned())))
    }

    fn help(arguments: &[&str]) -> String {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        let command = arrange_help(command(), HelpScope::from_arguments(&arguments));
        let shown = command.try_get_matches_from(arguments).err();
        shown.map(|help| help.to_string()).unwrap_or_default()
    }

    #[test]
    fn help_lists_the_usual_options_and_counts_the_others() {
        let shown = help(&["outer", "--help"]);

        assert!(shown.contains("--usual") && !shown.contains("--seldom"), "{shown}");
        assert!(shown.ends_with("\n1 more option: outer --help-all\n"), "{shown}");
    }

    #[test]
    fn options_of_the_commands_above_count() {
        for arguments in [["outer", "inner", "-h"], ["outer", "help", "inner"]] {
            let shown = help(&arguments);

            assert!(!shown.contains("--own") && !shown.contains("--seldom"), "{shown}");
            assert!(shown.ends_with("\n2 more options: outer inner --help-all\n"), "{shown}");
        }
    }

    #[test]
    fn all_options_are_listed_on_request() {
        let shown = help(&["outer", "inner", "--help-all"]);

        for option in ["--usual", "--seldom", "--own", "--help-all"] {
            assert!(shown.contains(option), "{option}: {shown}");
        }
        assert!(!shown.contains("more option"), "{shown}");
        assert!(shown.contains("Usage: outer inner [OPTIONS] <ID>"), "{shown}");
    }

    #[test]
    fn rare_options_work_as_usual_ones_do() {
        let command = arrange_help(command(), HelpScope::Usual);
        let matches =
            command.try_get_matches_from(["outer", "--seldom", "x", "inner", "--own", "y"]);

        let given = matches.ok().and_then(|it| it.get_one::<String>("seldom").cloned());
        assert_eq!(given.as_deref(), Some("x"));
    }

    #[test]
    fn a_value_after_two_dashes_is_not_the_flag() {
        let arguments = ["ginnel", "--", "--help-all"].map(OsString::from);

        assert_eq!(HelpScope::from_arguments(&arguments), HelpScope::Usual);
    }
}
