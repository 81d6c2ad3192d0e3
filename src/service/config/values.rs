//! Types of the service as settings.

use std::ffi::OsStr;

use crate::gateway::TrustedProxies;
use crate::logging::{LogFormat, LogLevels};
use crate::policy::Cidr;
use crate::policy::path::AmbiguousPaths;
use crate::service::AcmeChallenge;
use crate::service::store::PostgresOptions;
use crate::settings::{Bounds, SettingValue, ValueKind};

impl SettingValue for TrustedProxies {
    const KIND: ValueKind = ValueKind::List;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let text = text.to_string_lossy();
        let range = text.parse::<Cidr>().map_err(|error| error.to_string())?;
        *self = self.ranges().iter().copied().chain([range]).collect();
        Ok(())
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn text(&self) -> Option<String> {
        let ranges: Vec<_> = self.ranges().iter().map(ToString::to_string).collect();
        (!ranges.is_empty()).then(|| ranges.join(","))
    }
}

impl SettingValue for AmbiguousPaths {
    const CHOICES: &'static [&'static str] = &AmbiguousPaths::WORDS;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let text = text.to_string_lossy();
        let parsed = text.parse();
        *self = parsed
            .map_err(|_| format!("'{text}' is neither auto, reject, normalize nor preserve"))?;
        Ok(())
    }

    fn text(&self) -> Option<String> {
        Some(self.word().to_owned())
    }
}

impl SettingValue for Option<PostgresOptions> {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let options = text.to_string_lossy().parse::<PostgresOptions>();
        *self = Some(options.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.as_ref().map(ToString::to_string)
    }
}

impl SettingValue for Option<LogLevels> {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        *self = Some(text.to_string_lossy().parse()?);
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.map(|levels| levels.to_string())
    }
}

impl SettingValue for Option<LogFormat> {
    const CHOICES: &'static [&'static str] = &LogFormat::NAMES;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let text = text.to_string_lossy();
        let format = LogFormat::of_name(&text);
        let choices = LogFormat::NAMES.join(", ");
        *self = Some(format.ok_or_else(|| format!("'{text}' is none of {choices}"))?);
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.map(|format| format.name().to_owned())
    }
}

impl SettingValue for Vec<AcmeChallenge> {
    const KIND: ValueKind = ValueKind::List;
    const CHOICES: &'static [&'static str] = &["http-01", "tls-alpn-01"];

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let known = [AcmeChallenge::Http01, AcmeChallenge::TlsAlpn01];
        match known.into_iter().find(|known| text == known.name()) {
            Some(challenge) => self.push(challenge),
            None => return Err("is neither http-01 nor tls-alpn-01".to_owned()),
        }
        Ok(())
    }

    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn text(&self) -> Option<String> {
        let names: Vec<_> = self.iter().map(|challenge| challenge.name()).collect();
        (!names.is_empty()).then(|| names.join(","))
    }
}
