//! Long options with one dash, which older programs and scripts write: `-host-header=rewrite`.
//!
//! clap reads such an argument as the short options `-h`, `-o`, `-s` and so on, and would print the help.

use std::ffi::OsString;

use clap::{Arg, Command};

use super::error::{CliError, CommandResult};

/// Returns the arguments with two dashes in front of each long option that has one.
///
/// # Errors
/// If an argument with one dash has no meaning with two.
pub(super) fn lengthen_dashes(
    command: &Command,
    arguments: Vec<OsString>,
) -> CommandResult<Vec<OsString>> {
    let mut scope = OptionScope::new(command);
    let lengthen = |argument: OsString| match scope.read_argument(&argument) {
        Dashes::AsWritten => Ok(argument),
        Dashes::OneOfTwo(name) if scope.has_long(&name) => {
            let mut lengthened = OsString::from("-");
            lengthened.push(argument);
            Ok(lengthened)
        }
        Dashes::OneOfTwo(name) => Err(unknown_option(&name)),
    };
    arguments.into_iter().map(lengthen).collect()
}

/// Checks that no long option is written with one dash.
///
/// # Errors
/// With the option as it has to be written.
pub(super) fn refuse_single_dashes(command: &Command, arguments: &[OsString]) -> CommandResult<()> {
    let mut scope = OptionScope::new(command);
    for argument in arguments {
        match scope.read_argument(argument) {
            Dashes::AsWritten => {}
            Dashes::OneOfTwo(name) if scope.has_long(&name) => {
                let problem = format!("-{name}: long options have two dashes; use --{name}");
                return Err(CliError::usage(problem));
            }
            Dashes::OneOfTwo(name) => return Err(unknown_option(&name)),
        }
    }
    Ok(())
}

fn unknown_option(name: &str) -> CliError {
    CliError::usage(format!("unexpected argument \"-{name}\"; long options have two dashes"))
}

/// The dashes of an argument.
enum Dashes {
    /// The argument is right, or clap reports the problem.
    AsWritten,
    /// The argument is a word of this name with one dash.
    OneOfTwo(String),
}

/// The options that an argument may be.
struct OptionScope<'c> {
    /// The command and the subcommands so far.
    path: Vec<&'c Command>,
    /// If true, the next argument is the value of an option.
    expects_value: bool,
    /// If true, no argument is an option any more.
    is_over: bool,
}

impl<'c> OptionScope<'c> {
    fn new(command: &'c Command) -> Self {
        Self { path: vec![command], expects_value: false, is_over: false }
    }

    fn read_argument(&mut self, argument: &OsString) -> Dashes {
        let text = argument.to_string_lossy();
        if std::mem::take(&mut self.expects_value) || self.is_over {
            return Dashes::AsWritten;
        }
        if text == "--" {
            self.is_over = true;
        } else if let Some(long) = text.strip_prefix("--") {
            self.expects_value = self.takes_next(long);
        } else if let Some(short) = text.strip_prefix('-') {
            return self.read_short(short);
        } else if let Some(inner) = self.path.last().and_then(|it| it.find_subcommand(&*text)) {
            self.path.push(inner);
        }
        Dashes::AsWritten
    }

    fn read_short(&mut self, text: &str) -> Dashes {
        let name = text.split('=').next().unwrap_or_default();
        let mut letters = name.chars();
        let first = letters.next().and_then(|letter| self.find_short(letter));
        let is_word = name.len() > 1 && name.starts_with(|first: char| first.is_ascii_alphabetic());
        match first {
            Some(arg) if takes_value(arg) => self.expects_value = text.len() == 1,
            // `-hV` is two options.
            _ if !is_word || name.chars().all(|letter| self.find_short(letter).is_some()) => {}
            _ => {
                self.expects_value = self.takes_next(text);
                return Dashes::OneOfTwo(name.to_owned());
            }
        }
        Dashes::AsWritten
    }

    /// Returns the options of the present command, and those that it shares with commands above.
    fn options(&self) -> impl Iterator<Item = &'c Arg> {
        let innermost = self.path.len().saturating_sub(1);
        let of_command = move |(at, command): (usize, &&'c Command)| {
            command.get_arguments().filter(move |arg| at == innermost || arg.is_global_set())
        };
        self.path.iter().enumerate().flat_map(of_command)
    }

    fn find_long(&self, name: &str) -> Option<&'c Arg> {
        self.options().find(|arg| {
            arg.get_long() == Some(name)
                || arg.get_all_aliases().is_some_and(|others| others.contains(&name))
        })
    }

    fn has_long(&self, name: &str) -> bool {
        matches!(name, "help" | "version") || self.find_long(name).is_some()
    }

    fn find_short(&self, letter: char) -> Option<&'c Arg> {
        self.options().find(|arg| arg.get_short() == Some(letter))
    }

    /// Returns true if the long option of this text takes the next argument as its value.
    fn takes_next(&self, text: &str) -> bool {
        !text.contains('=') && self.find_long(text).is_some_and(takes_value)
    }
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{command, ngrok};

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn lengthen(line: &str) -> Result<String, String> {
        let lengthened = lengthen_dashes(&ngrok::command(), words(line));
        let text = |words: Vec<OsString>| words.join(" ".as_ref()).to_string_lossy().into_owned();
        lengthened.map(text).map_err(|error| error.message)
    }

    #[test]
    fn known_options_get_their_second_dash() {
        for (line, wanted) in [
            ("ngrok http -host-header=rewrite 80", "ngrok http --host-header=rewrite 80"),
            ("ngrok http -hostname a.test 80", "ngrok http --hostname a.test 80"),
            ("ngrok -config=a.yml start -all", "ngrok --config=a.yml start --all"),
            ("ngrok start -none -log stdout", "ngrok start --none --log stdout"),
            ("ngrok http 80 -inspect=false", "ngrok http 80 --inspect=false"),
            ("ngrok -help", "ngrok --help"),
        ] {
            assert_eq!(lengthen(line).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn other_arguments_stay_as_they_are() {
        for line in [
            "ngrok http 80 --name -hostname",
            "ngrok http -h",
            "ngrok diagnose -6",
            "ngrok http 80 --metadata=-host -- -host-header=x",
            "ngrok api ip-policies list -o json",
        ] {
            assert_eq!(lengthen(line).as_deref(), Ok(line));
        }
    }

    #[test]
    fn unknown_words_with_one_dash_are_refused_without_their_value() {
        for line in ["ngrok start -hello=secret --all", "ngrok http -remote-addr=secret 80"] {
            let problem = lengthen(line).unwrap_err();

            assert!(problem.starts_with("unexpected argument \"-"), "{problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
    }

    #[test]
    fn our_own_command_names_the_option_with_two_dashes() {
        let check = |line| refuse_single_dashes(&command(), &words(line)).map_err(|it| it.message);

        assert_eq!(
            check("ginnel http 80 -host-header=rewrite"),
            Err("-host-header: long options have two dashes; use --host-header".to_owned())
        );
        assert!(check("ginnel http 80 -hello").is_err());
        assert_eq!(check("ginnel http 80 -h"), Ok(()));
        assert_eq!(check("ginnel policy test p.yml -HX-A:b -dx"), Ok(()));
        assert_eq!(check("ginnel api ip-policies list -ojson"), Ok(()));
    }
}
