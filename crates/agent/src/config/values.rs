//! Types of the agent as settings.

use std::ffi::OsStr;

use ginnel_api::mask;
use ginnel_base::address::HostPort;
use ginnel_settings::{Bounds, SettingValue, ValueKind};

use crate::capture::CaptureLimit;
use crate::options::WebAddress;

/// The version of the file.
#[derive(Debug, Clone, Copy, Default)]
pub enum ConfigVersion {
    /// Settings stand alone, tunnels have names.
    #[default]
    Two,
    /// Settings are below `agent`, and there may be endpoints.
    Three,
}

/// How a program called `ngrok` writes its log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NgrokLogFormat {
    /// For people at a terminal, and as `Logfmt` elsewhere.
    #[default]
    Term,
    /// `t=… lvl=… msg=…`.
    Logfmt,
    /// An object each.
    Json,
}

/// How much something in that log matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NgrokLogLevel {
    /// Details.
    Debug,
    /// What happens.
    #[default]
    Info,
    /// What has no effect, or not the one that was meant.
    Warn,
    /// What went wrong.
    Error,
    /// What ends the program.
    Critical,
}

/// Where and how a program called `ngrok` writes its log.
#[derive(Debug, Clone, Default)]
pub struct NgrokLogConfig {
    /// `stdout`, `stderr`, `false` or the name of a file.
    pub output: Option<String>,
    /// The form of the lines.
    pub format: NgrokLogFormat,
    /// From which level on there are lines.
    pub level: NgrokLogLevel,
}

/// The value of a key that changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct Unused;

/// Whether the view is shown that lives on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConsoleChoice {
    /// Where there is a terminal.
    #[default]
    IfTerminal,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl SettingValue for ConfigVersion {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        *self = match text.to_str() {
            Some("2") => Self::Two,
            Some("3") => Self::Three,
            _ => {
                let text = text.to_string_lossy();
                return Err(format!("is '{}', neither 2 nor 3", text.escape_debug()));
            }
        };
        Ok(())
    }

    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Two => "2".to_owned(),
            Self::Three => "3".to_owned(),
        })
    }
}

impl NgrokLogFormat {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Term, Self::Logfmt, Self::Json];
    /// The words for them.
    pub const NAMES: [&str; 3] = ["term", "logfmt", "json"];
}

impl NgrokLogLevel {
    /// Each of them.
    pub const ALL: [Self; 5] = [Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Critical];
    /// The words for them in files and on the command line.
    pub const NAMES: [&str; 5] = ["debug", "info", "warn", "error", "crit"];

    /// The word for it in a log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Debug => "dbug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "eror",
            Self::Critical => "crit",
        }
    }
}

/// Reads one of a few words.
fn read_word<T: Copy>(text: &OsStr, names: &[&str], values: &[T]) -> Result<T, String> {
    let known = names.iter().zip(values).find(|(name, _)| text == **name);
    known.map(|(_, value)| *value).ok_or_else(|| {
        let text = text.to_string_lossy();
        format!("'{}' is none of {}", text.escape_debug(), names.join(", "))
    })
}

impl SettingValue for NgrokLogFormat {
    const CHOICES: &'static [&'static str] = &Self::NAMES;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        *self = read_word(text, &Self::NAMES, &Self::ALL)?;
        Ok(())
    }

    fn text(&self) -> Option<String> {
        Some(Self::NAMES[*self as usize].to_owned())
    }
}

impl SettingValue for NgrokLogLevel {
    const CHOICES: &'static [&'static str] = &Self::NAMES;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        *self = read_word(text, &Self::NAMES, &Self::ALL)?;
        Ok(())
    }

    fn text(&self) -> Option<String> {
        Some(Self::NAMES[*self as usize].to_owned())
    }
}

impl SettingValue for Unused {
    const KIND: ValueKind = ValueKind::Unused;

    fn read(&mut self, _: &OsStr, _: Bounds) -> Result<(), String> {
        Ok(())
    }

    fn text(&self) -> Option<String> {
        None
    }
}

impl SettingValue for ConsoleChoice {
    const CHOICES: &'static [&'static str] = &["true", "false", "iftty"];

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let choices = [Self::Always, Self::Never, Self::IfTerminal];
        *self = read_word(text, Self::CHOICES, &choices)?;
        Ok(())
    }

    fn text(&self) -> Option<String> {
        Some(self.name().to_owned())
    }
}

impl ConsoleChoice {
    fn name(self) -> &'static str {
        match self {
            Self::Always => "true",
            Self::Never => "false",
            Self::IfTerminal => "iftty",
        }
    }

    /// Whether it is shown; none where that is for the terminal to say.
    pub fn is_shown(self) -> Option<bool> {
        match self {
            Self::Always => Some(true),
            Self::Never => Some(false),
            Self::IfTerminal => None,
        }
    }
}

/// `false`, a port on this machine, or `host:port`.
impl SettingValue for WebAddress {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        *self = match text.to_str() {
            Some("false") => Self::Off,
            Some("" | "true") | None => return Err("must be host:port or false".to_owned()),
            Some(text) => {
                let is_port = text.bytes().all(|byte| byte.is_ascii_digit());
                if !is_port && !text.contains(':') {
                    let text = mask::url(text);
                    return Err(format!("{text:?} is not a port, host:port or false"));
                }
                let text = if is_port { format!("127.0.0.1:{text}") } else { text.to_owned() };
                let address = HostPort::parse_to_listen(&text);
                Self::At(address.map_err(|problem| format!("{:?} {problem}", mask::url(&text)))?)
            }
        };
        Ok(())
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Default => None,
            Self::At(address) => Some(address.to_string()),
            Self::Off => Some("false".to_owned()),
        }
    }
}

/// A number of bytes; 0 is the default, and -1 is nothing.
impl SettingValue for CaptureLimit {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let size = text.to_str().and_then(|text| text.parse().ok());
        *self = size.and_then(Self::from_setting).ok_or_else(|| {
            let text = text.to_string_lossy();
            format!("'{}' is neither -1, 0 nor a number of bytes", text.escape_debug())
        })?;
        Ok(())
    }

    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Nothing => "-1".to_owned(),
            Self::Bytes(bytes) => bytes.to_string(),
        })
    }
}
