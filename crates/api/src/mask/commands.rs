//! Options of commands with credentials: in lines of a shell, in lists of words, and in items of YAML.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{MASK, work};
use crate::secrets::{is_secret, is_visible_scalar};

/// An option at the beginning of a word.
const OPTION: &str = r#"(?:^|[\s"'`(\[,=|>])(--?[A-Za-z][^\s"'`=,;|&<>()\[\]{}\\]*)"#;
/// Commands that send HTTP requests.
const HTTP_COMMANDS: [&str; 4] = ["curl", "http ", "https ", "xh "];
/// Their options that have a user and a password.
const LOGIN_OPTIONS: [&str; 6] = ["-u", "-U", "-a", "--user", "--proxy-user", "--auth"];
/// Their option for cookies. Without an equals sign, it names a file.
const COOKIE_OPTIONS: [&str; 2] = ["-b", "--cookie"];
/// Their other options that have only a secret.
const HTTP_SECRETS: [&str; 3] = ["--oauth2-bearer", "--pass", "--proxy-pass"];
/// Options of one letter that have a secret.
const SHORT_OPTIONS: [ShortOption; 5] = [
    ShortOption { option: "-p", commands: &[("mysql", ""), ("mariadb", "")], is_separate: false },
    ShortOption {
        option: "-p",
        commands: &[
            ("sshpass", ""),
            ("docker", "login"),
            ("podman", "login"),
            ("nerdctl", "login"),
            ("buildah", "login"),
            ("skopeo", "login"),
            ("helm", "login"),
            ("crane", "login"),
            ("oc ", "login"),
            ("az ", "login"),
            ("mongo ", ""),
            ("mongosh", ""),
            ("mongodump", ""),
        ],
        is_separate: true,
    },
    ShortOption { option: "-a", commands: &[("redis-cli", "")], is_separate: true },
    ShortOption {
        option: "-w",
        commands: &[("ldapsearch", ""), ("ldapmodify", "")],
        is_separate: true,
    },
    ShortOption { option: "-P", commands: &[("sqlcmd", ""), ("unzip ", "")], is_separate: true },
];
/// First and last words of options that have no value, or whose value is not a secret.
const SWITCH_STARTS: [&str; 5] = ["no-", "skip-", "without-", "disable-", "enable-"];
const SWITCH_ENDS: [&str; 3] = ["-stdin", "-prompt", "-only"];
/// Words behind an option in a sentence.
const SENTENCE_WORDS: [&str; 14] =
    ["a", "an", "and", "are", "as", "for", "from", "in", "is", "of", "or", "the", "to", "with"];
/// Options of one letter have at least so many bytes with the hyphen.
const SHORT_BYTES: usize = 2;
/// At most so many blanks are between an option and its value.
const MAX_BLANKS: usize = 64;

/// An option of one letter that has a secret, if a text has one of these commands.
struct ShortOption {
    option: &'static str,
    /// Words of the command: the text must have both.
    commands: &'static [(&'static str, &'static str)],
    /// If true, the value may be the next word. It may always follow in the same word.
    is_separate: bool,
}

/// The commands in a text, which decide about the meaning of its options.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Commands {
    is_http: bool,
    short: [bool; SHORT_OPTIONS.len()],
}

impl Commands {
    /// Finds the commands in a text.
    pub fn find_in(text: &str) -> Self {
        let has = |word: &str| word.is_empty() || text.contains(word.trim_end());
        let mut commands =
            Self { is_http: HTTP_COMMANDS.iter().any(|it| text.contains(it)), ..Self::default() };
        for (is_known, option) in commands.short.iter_mut().zip(&SHORT_OPTIONS) {
            *is_known = option.commands.iter().any(|(first, second)| {
                !second.is_empty() && has(second) && has(first)
                    || second.is_empty() && text.contains(first)
            });
        }
        commands
    }

    /// Returns a word of a list without its secret, if it has one. The word before it may be its option.
    pub fn hidden_word(&self, before: Option<&str>, word: &str) -> Option<String> {
        let option = before.filter(|before| is_option(before) && !is_option(word));
        match option {
            Some(option) => self.masked_value(option, word),
            None => self.masked_word(word),
        }
    }

    /// Returns the value of an option without its secret; `None` if it has none.
    fn masked_value(&self, option: &str, value: &str) -> Option<String> {
        let shown = self.masked_option(option, value).filter(|_| !value.is_empty())?;
        (shown != value).then_some(shown)
    }

    fn masked_option(&self, option: &str, value: &str) -> Option<String> {
        let hidden = || Some(MASK.to_owned());
        if self.is_http && LOGIN_OPTIONS.contains(&option) {
            return value.split_once(':').map(|(user, _)| format!("{user}:{MASK}"));
        }
        if self.is_http && COOKIE_OPTIONS.contains(&option) {
            return value.contains('=').then(hidden)?;
        }
        let known = self.short.iter().zip(&SHORT_OPTIONS).filter(|(is_known, _)| **is_known);
        let is_short = known.into_iter().any(|(_, it)| it.is_separate && it.option == option);
        if is_short || self.is_http && HTTP_SECRETS.contains(&option) {
            return hidden();
        }
        let name = option.trim_start_matches('-');
        let is_switch = SWITCH_STARTS.iter().any(|it| name.starts_with(it))
            || SWITCH_ENDS.iter().any(|it| name.ends_with(it));
        let is_other = option.len() <= SHORT_BYTES
            || is_switch
            || SENTENCE_WORDS.contains(&value)
            || is_visible_scalar(name, value, false);
        (!is_other && is_secret(name)).then(hidden)?
    }

    /// Returns the length of the option at the beginning of a word whose rest is its value.
    fn joined_length(&self, word: &str) -> Option<usize> {
        let option = word.get(..SHORT_BYTES).filter(|it| !it.ends_with('-'))?;
        let mut known = self.short.iter().zip(&SHORT_OPTIONS).filter(|(is_known, _)| **is_known);
        let is_login = self.is_http && LOGIN_OPTIONS.contains(&option) && word.contains(':');
        let is_cookie = self.is_http && COOKIE_OPTIONS.contains(&option);
        let is_known = is_login || is_cookie || known.any(|(_, it)| it.option == option);
        is_known.then_some(SHORT_BYTES)
    }

    /// Returns a word that is an option with its value, without the secret; `None` if it has none.
    fn masked_word(&self, word: &str) -> Option<String> {
        let length = self.joined_length(word).filter(|length| *length < word.len())?;
        let (option, value) = word.split_at(length);
        Some(format!("{option}{}", self.joined_value(option, value))).filter(|shown| shown != word)
    }

    fn joined_value(&self, option: &str, value: &str) -> String {
        let is_http = LOGIN_OPTIONS.contains(&option) || COOKIE_OPTIONS.contains(&option);
        match self.is_http && is_http {
            true => self.masked_option(option, value).unwrap_or_else(|| value.to_owned()),
            false => MASK.to_owned(),
        }
    }
}

/// Hides the secrets of a list of words that is a command.
pub(super) fn hide_words(items: &mut [Value]) {
    let is_word = |item: &Value| item.as_str().is_some_and(is_option);
    if !items.iter().any(is_word) {
        return;
    }
    let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    let commands = Commands::find_in(&words.join(" "));
    let mut before: Option<String> = None;
    for item in items {
        let word = item.as_str().map(str::to_owned);
        let hidden = word.as_deref().and_then(|word| commands.hidden_word(before.as_deref(), word));
        if let Some(shown) = hidden {
            *item = shown.into();
        }
        before = word;
    }
}

/// Returns true for a word that is an option, and not the value of one.
fn is_option(word: &str) -> bool {
    word.starts_with('-')
}

/// Returns a text without the secrets that options of commands have.
pub(super) fn mask_commands(text: &str) -> Cow<'_, str> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(OPTION).ok());
    let Some(pattern) = PATTERN.as_ref().filter(|_| text.contains('-')) else {
        return text.into();
    };
    let commands = Commands::find_in(text);
    let mut masked = String::new();
    let mut copied = 0;
    work::count_bytes(text.len());
    for found in pattern.captures_iter(text) {
        let Some(word) = found.get(1).filter(|word| word.start() >= copied) else { continue };
        let Some(value) = commands.value_of(text, word.start(), word.as_str()) else { continue };
        let written = text.get(value.start..value.end).unwrap_or_default();
        let shown = match value.is_joined {
            true => commands.joined_value(value.option, written),
            false => match commands.masked_value(value.option, written) {
                Some(shown) => shown,
                None => continue,
            },
        };
        masked.push_str(text.get(copied..value.start).unwrap_or_default());
        masked.push_str(&shown);
        copied = value.end;
    }
    if copied == 0 {
        return text.into();
    }
    masked.push_str(text.get(copied..).unwrap_or_default());
    masked.into()
}

/// The place of the value of an option, without quotes.
struct OptionValue<'a> {
    option: &'a str,
    start: usize,
    end: usize,
    /// True if the value is in the word of the option.
    is_joined: bool,
}

impl Commands {
    /// Finds the value of an option; `None` if it has none that may be secret.
    fn value_of<'a>(&self, text: &str, start: usize, word: &'a str) -> Option<OptionValue<'a>> {
        let word_end = start + word.len();
        let after = text.get(word_end..)?;
        let is_list = text.get(..start)?.ends_with(['"', '\'']);
        let place = match self.joined_length(word) {
            Some(length) if length < word.len() || after.starts_with(['"', '\'']) && !is_list => {
                let option = word.get(..length)?;
                let value = start + length;
                let place = match length < word.len() {
                    true => value..value + word_length(text.get(value..)?),
                    false => quoted_place(text, word_end)?,
                };
                let (start, end) = (place.start, place.end);
                return Some(OptionValue { option, start, end, is_joined: true });
            }
            _ => self.separate_value(text, start, word)?,
        };
        Some(OptionValue { option: word, start: place.start, end: place.end, is_joined: false })
    }

    /// Finds the value of an option in the next word.
    fn separate_value(&self, text: &str, start: usize, word: &str) -> Option<Range<usize>> {
        // Nearly all options have no secret.
        self.masked_option(word, "a:b=c")?;
        let word_end = start + word.len();
        let after = text.get(word_end..)?;
        let quote = text.get(..start)?.chars().next_back().filter(|it| matches!(it, '"' | '\''));
        let closing = quote.and_then(|quote| closing_length(after, quote));
        let rest = after.get(closing.unwrap_or_default()..)?;
        let at = word_end + after.len() - rest.len();
        let blank = rest.get(..blank_length(rest, b"\\"))?;
        let next = rest.get(blank.len()..)?;
        if closing.is_some() && next.starts_with(',') {
            let begin = 1 + blank_length(next.get(1..)?, b"");
            let place = quoted_place(text, at + blank.len() + begin)?;
            let behind = text.get(place.end..)?.trim_start_matches(['\\', '"', '\'']);
            // In an object, the next text is the name of a member.
            let is_value =
                !behind.trim_start().starts_with(':') && !is_option(text.get(place.clone())?);
            return is_value.then_some(place);
        }
        if blank.contains('\n') && next.starts_with("- ") {
            let begin = 1 + blank_length(next.get(1..)?, b"");
            let item = at + blank.len() + begin;
            let line = text.get(item..)?.lines().next()?;
            return quoted_place(text, item)
                .or_else(|| (!is_option(line)).then(|| item..item + line.trim_end().len()));
        }
        let is_joined = rest.starts_with('=');
        if closing.is_some()
            || !is_joined && (blank.is_empty() || blank.contains('\n') && !blank.contains('\\'))
        {
            return None;
        }
        let value = at + if is_joined { 1 } else { blank.len() };
        quoted_place(text, value).or_else(|| {
            let rest = text.get(value..)?;
            (is_joined || !is_option(rest)).then(|| value..value + word_length(rest))
        })
    }
}

/// Returns the number of blanks, and of the bytes that continue a line, that a text begins with.
fn blank_length(text: &str, others: &[u8]) -> usize {
    let is_blank = |it: &u8| it.is_ascii_whitespace() || others.contains(it);
    text.bytes().take(MAX_BLANKS).take_while(is_blank).count()
}

/// Returns the length of the quote that closes the word before, which may be escaped.
fn closing_length(after: &str, quote: char) -> Option<usize> {
    let rest = after.strip_prefix('\\').unwrap_or(after);
    rest.starts_with(quote).then_some(after.len() - rest.len() + quote.len_utf8())
}

/// Returns the place of a quoted text without its quotes. A text that is cut off ends with its line.
fn quoted_place(text: &str, start: usize) -> Option<Range<usize>> {
    let rest = text.get(start..)?;
    let inner = rest.strip_prefix('\\').unwrap_or(rest);
    let is_escaped = inner.len() < rest.len();
    let quote = inner.bytes().next().filter(|it| matches!(it, b'"' | b'\''))?;
    let begin = text.len() - inner.len() + 1;
    let mut at = begin;
    while let Some(&byte) = text.as_bytes().get(at) {
        match byte {
            b'\\' if is_escaped && text.as_bytes().get(at + 1) == Some(&quote) => break,
            b'\\' => at += 1,
            b'\n' => break,
            byte if byte == quote => break,
            _ => {}
        }
        at += 1;
    }
    work::count_bytes(at - begin);
    let mut end = at.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Some(begin..end)
}

/// Returns the length of a word of a shell.
fn word_length(text: &str) -> usize {
    let length = text.find(|it: char| it.is_whitespace() || "\"'`;|<>".contains(it));
    work::count_bytes(length.unwrap_or(text.len()));
    length.unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::{json, text, value};

    #[test]
    fn options_with_secrets_are_hidden() {
        for (shown, expected) in [
            ("run --password fish -v", "run --password $ -v"),
            ("run --password 'sword fish' -v", "run --password '$' -v"),
            ("run --api-key \"sword fish\"", "run --api-key \"$\""),
            ("run --token=fish -v", "run --token=$ -v"),
            ("run -Token fish", "run -Token $"),
            ("run --password \\\n  fish", "run --password \\\n  $"),
            ("run --password 'cut off", "run --password '$"),
            ("docker login -u a -p fish b.test", "docker login -u a -p $ b.test"),
            ("docker run -p 80:80 kept", "docker run -p 80:80 kept"),
            ("mysql -u root -pfish shop", "mysql -u root -p$ shop"),
            ("mysql -p'sword fish' shop", "mysql -p'$' shop"),
            ("mysql -u root -p shop", "mysql -u root -p shop"),
            ("sshpass -p fish ssh a", "sshpass -p $ ssh a"),
            ("sshpass -pfish ssh a", "sshpass -p$ ssh a"),
            ("redis-cli -a fish ping", "redis-cli -a $ ping"),
            ("['run', '--password', 'sword fish', 'b']", "['run', '--password', '$', 'b']"),
            ("log [\\\"--password\\\", \\\"fish\\\"]", "log [\\\"--password\\\", \\\"$\\\"]"),
            ("args:\n- --password\n- sword fish\n- kept\n", "args:\n- --password\n- $\n- kept\n"),
            ("args:\n  - \"--token\"\n  - 'fish'\n", "args:\n  - \"--token\"\n  - '$'\n"),
            ("args: [\"--token\", \"fish\"]\nb: c\n", "args: [\"--token\", \"$\"]\nb: c\n"),
            ("run --max-tokens 4096 --token --kept", "run --max-tokens 4096 --token --kept"),
            ("| --token | a |", "| --token | a |"),
            ("run --token '' a", "run --token '' a"),
            ("use --token to log in", "use --token to log in"),
            ("docker login --password-stdin kept", "docker login --password-stdin kept"),
            ("run --no-session kept", "run --no-session kept"),
            ("curl -u a:fish b.test", "curl -u a:$ b.test"),
            ("curl -ua:fish b.test", "curl -ua:$ b.test"),
            ("curl --user=a:fish b.test", "curl --user=a:$ b.test"),
            ("curl -b 'a=fish' -u kept", "curl -b '$' -u kept"),
        ] {
            let expected = expected.replace('$', MASK);
            assert_eq!(text(shown), expected, "{shown}");
            assert_eq!(text(&expected), expected, "{shown} twice");
        }
    }

    #[test]
    fn lists_of_words_in_json_are_hidden() {
        for (source, expected) in [
            (r#"["docker","login","-p","fish","kept"]"#, r#"["docker","login","-p","$","kept"]"#),
            (r#"["--password","sword fish","kept"]"#, r#"["--password","$","kept"]"#),
            (r#"["--password=fish"]"#, r#"["--password=$"]"#),
            (r#"["mysql","-pfish"]"#, r#"["mysql","-p$"]"#),
            (r#"["curl","-u","me:fish"]"#, r#"["curl","-u","me:$"]"#),
            (
                r#"["--max-tokens","512","--token","-v"]"#,
                r#"["--max-tokens","512","--token","-v"]"#,
            ),
            (r#"{"a":"--password","b":"kept"}"#, r#"{"a":"--password","b":"kept"}"#),
        ] {
            let expected = expected.replace('$', MASK);
            assert_eq!(json(source), expected, "{source}");
            let mut shown = serde_json::from_str(source).unwrap_or_default();
            value(&mut shown);
            assert_eq!(shown.to_string(), expected, "{source}");
        }
    }
}
