//! From which level on something is told, for each folder of the code.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use tracing::Level;
use tracing::level_filters::LevelFilter;

/// The parts of the code that log, each with a level of its own.
pub const TARGETS: [&str; 12] = [
    "agent", "cli", "client", "gateway", "http1", "logging", "metrics", "mux", "net", "policy",
    "python", "service",
];

/// Targets of earlier versions, and the targets that have their events now.
const FORMER_TARGETS: [(&str, &str); 4] =
    [("api", "service"), ("coding", "http1"), ("protocol", "mux"), ("reuse", "http1")];

/// Returns the place in [`TARGETS`] of the code in a module: `ginnel_agent::session` belongs to `agent`. Other crates
/// have no target, because their events may contain header values.
pub(super) fn target_of_module(module: &str) -> Option<usize> {
    let name = match module.split("::").next()? {
        "ginnel" => "python",
        "ginnel_base" => "logging",
        "ginnel_api" | "ginnel_sessions" | "ginnel_store" => "service",
        name => name.strip_prefix("ginnel_")?,
    };
    TARGETS.iter().position(|target| *target == name)
}

/// From which level on something is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum LogLevel {
    /// Nothing is told.
    #[default]
    Off,
    /// Something was lost, or does not work.
    Error,
    /// Somebody should look at it.
    Warn,
    /// What a person does or has done.
    Info,
    /// Each request, and each cause of a failure.
    Debug,
    /// Each connection and each step.
    Trace,
}

impl LogLevel {
    /// What it is called where people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "OFF",
            Self::Error => "ERROR",
            Self::Warn => "WARNING",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
            Self::Trace => "TRACE",
        }
    }

    /// What it is called in lines for programs, and by those who choose it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
        let word = if word.eq_ignore_ascii_case("warning") { "warn" } else { word };
        all.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(word))
    }

    /// The level of an event.
    pub(super) fn from_level(level: Level) -> Self {
        match level {
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warn,
            Level::INFO => Self::Info,
            Level::DEBUG => Self::Debug,
            Level::TRACE => Self::Trace,
        }
    }

    pub(super) fn to_filter(self) -> LevelFilter {
        match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }

    fn from_number(number: u8) -> Self {
        [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug]
            .into_iter()
            .find(|level| *level as u8 == number)
            .unwrap_or(Self::Trace)
    }
}

/// From which level on each target is logged, in the order of [`TARGETS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevels(pub [LogLevel; TARGETS.len()]);

impl LogLevels {
    /// The same level for all.
    pub fn for_all(level: LogLevel) -> Self {
        Self([level; TARGETS.len()])
    }
}

impl fmt::Display for LogLevels {
    /// As it is read: the lowest level for all, and those of other targets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = self.0.iter().min().copied().unwrap_or_default();
        f.write_str(base.as_str())?;
        for (target, level) in TARGETS.iter().zip(self.0).filter(|(_, level)| *level != base) {
            write!(f, ",{target}={}", level.as_str())?;
        }
        Ok(())
    }
}

impl FromStr for LogLevels {
    type Err = String;

    /// Reads `info,gateway=debug`: a level for all, and those of targets; what comes later counts.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut levels = Self::for_all(LogLevel::Off);
        for part in text.split(',').map(str::trim) {
            let (target, word) =
                part.split_once('=').map_or((None, part), |(it, level)| (Some(it), level));
            let level = LogLevel::from_word(word).ok_or_else(|| {
                format!("{word:?} is none of off, error, warn, info, debug, trace")
            })?;
            match target {
                None => levels = Self::for_all(level),
                Some(target) => levels.0[place_of(target)?] = level,
            }
        }
        Ok(levels)
    }
}

/// The place of a target, which may be called by the name of its logger.
fn place_of(target: &str) -> Result<usize, String> {
    let name = target.trim_start_matches("ginnel").trim_start_matches(['.', ':']);
    let former = FORMER_TARGETS.iter().find(|(former, _)| *former == name);
    let name = former.map_or(name, |(_, now)| *now);
    let place = TARGETS.iter().position(|known| *known == name);
    place.ok_or_else(|| format!("{target:?} is no target; there are {}", TARGETS.join(", ")))
}

/// The levels of `N` targets.
pub(super) struct TargetLevels<const N: usize>([AtomicU8; N]);

impl<const N: usize> TargetLevels<N> {
    /// Nothing is told.
    pub(super) const fn off() -> Self {
        Self([const { AtomicU8::new(LogLevel::Off as u8) }; N])
    }

    pub(super) fn get(&self, target: usize) -> LogLevel {
        self.0.get(target).map_or(LogLevel::Off, |level| LogLevel::from_number(level.load(Relaxed)))
    }

    /// Sets the levels; true when that changes one.
    pub(super) fn set(&self, levels: &[LogLevel; N]) -> bool {
        let set = self.0.iter().zip(levels);
        set.fold(false, |changed, (known, level)| {
            (known.swap(*level as u8, Relaxed) != *level as u8) | changed
        })
    }

    /// The lowest level that is told for any target.
    pub(super) fn max(&self) -> LogLevel {
        let levels = self.0.iter().map(|level| LogLevel::from_number(level.load(Relaxed)));
        levels.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(text: &str, target: &str) -> LogLevel {
        text.parse::<LogLevels>().unwrap().0[place_of(target).unwrap()]
    }

    #[test]
    fn levels_are_for_all_or_for_a_target() {
        assert_eq!(level("debug", "agent"), LogLevel::Debug);
        assert_eq!(level("WARNING", "agent"), LogLevel::Warn);
        for name in ["gateway", "ginnel.gateway", "ginnel::gateway"] {
            let text = format!("info, {name}=trace");
            assert_eq!(level(&text, "gateway"), LogLevel::Trace);
            assert_eq!(level(&text, "agent"), LogLevel::Info);
        }
        assert_eq!(level("gateway=debug", "agent"), LogLevel::Off);
        assert_eq!(level("coding=debug", "http1"), LogLevel::Debug);
        for text in ["off", "info,gateway=trace,service=debug"] {
            assert_eq!(text.parse::<LogLevels>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_level_and_no_target_is_named() {
        let problem = |text: &str| text.parse::<LogLevels>().unwrap_err();
        assert_eq!(problem("loud"), "\"loud\" is none of off, error, warn, info, debug, trace");
        assert!(problem("door=info").starts_with("\"door\" is no target; there are agent, cli"));
        assert!(problem("").starts_with("\"\" is none of"));
    }
}
