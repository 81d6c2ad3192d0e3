//! From which level on something is told, for each folder of the code.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use tracing::Level;
use tracing::level_filters::LevelFilter;

/// From which level on something is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub(crate) enum LogLevel {
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
    #[cfg(feature = "service")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "OFF",
            Self::Error => "ERROR",
            Self::Warn => "WARNING",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
            Self::Trace => "TRACE",
        }
    }

    /// The level of an event.
    pub(super) fn of(level: Level) -> Self {
        match level {
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warn,
            Level::INFO => Self::Info,
            Level::DEBUG => Self::Debug,
            Level::TRACE => Self::Trace,
        }
    }

    pub(super) fn filter(self) -> LevelFilter {
        match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }

    fn of_number(number: u8) -> Self {
        [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug]
            .into_iter()
            .find(|level| *level as u8 == number)
            .unwrap_or(Self::Trace)
    }
}

/// The levels of `N` targets.
pub(super) struct TargetLevels<const N: usize>([AtomicU8; N]);

impl<const N: usize> TargetLevels<N> {
    /// Nothing is told.
    pub(super) const fn off() -> Self {
        Self([const { AtomicU8::new(LogLevel::Off as u8) }; N])
    }

    pub(super) fn get(&self, target: usize) -> LogLevel {
        self.0.get(target).map_or(LogLevel::Off, |level| LogLevel::of_number(level.load(Relaxed)))
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
        let levels = self.0.iter().map(|level| LogLevel::of_number(level.load(Relaxed)));
        levels.max().unwrap_or_default()
    }
}
