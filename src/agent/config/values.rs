//! Types of the agent as settings.

use std::ffi::OsStr;

use crate::agent::capture::CaptureLimit;
use crate::agent::options::WebAddress;
use crate::settings::{Bounds, SettingValue, ValueKind};

/// The version of the file: there is one.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConfigVersion;

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
        match text.to_string_lossy() {
            version if version == "2" => Ok(()),
            other => Err(format!("is '{}', not 2", other.escape_debug())),
        }
    }

    fn text(&self) -> Option<String> {
        Some("2".to_owned())
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
        let choice = choices.into_iter().find(|choice| text == choice.name());
        *self = choice.ok_or_else(|| {
            let text = text.to_string_lossy();
            format!("'{}' is none of {}", text.escape_debug(), Self::CHOICES.join(", "))
        })?;
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
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                Self::At(format!("127.0.0.1:{port}"))
            }
            Some(address) => Self::At(address.to_owned()),
        };
        Ok(())
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Default => None,
            Self::At(address) => Some(address.clone()),
            Self::Off => Some("false".to_owned()),
        }
    }
}

/// A number of bytes; 0 is the default, and -1 is nothing.
impl SettingValue for CaptureLimit {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let size = text.to_str().and_then(|text| text.parse().ok());
        *self = size.and_then(Self::of_setting).ok_or_else(|| {
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
