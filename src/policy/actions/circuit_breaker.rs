//! `circuit-breaker`: give a failing upstream time to recover.

use std::time::Duration;

use super::super::action::Action;
use super::super::config::Config;
use super::super::problem::code;

/// Turns requests away while too many of them fail.
#[derive(Debug)]
pub struct CircuitBreaker {
    /// The share of failures that opens the circuit, from 0 to 1; 0.5 unless given.
    pub error_threshold: f64,
    /// How many requests a window needs before failures count; 10 unless given.
    pub volume_threshold: u64,
    /// How far back failures count; 10 s unless given.
    pub window_duration: Duration,
    /// How long the circuit stays open before one request may try; 10 s unless given.
    pub tripped_duration: Duration,
    /// Whether requests are turned away; without, it is only recorded.
    pub enforce: bool,
}

impl Action for CircuitBreaker {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    // The window has ten buckets; the field exists so that a document may say so.
    config.integer("num_buckets", Some(10), 10..=10);
    Box::new(CircuitBreaker {
        error_threshold: error_threshold(config),
        volume_threshold: config.integer("volume_threshold", Some(10), 1..=u32::MAX.into()),
        window_duration: duration(config, "window_duration"),
        tripped_duration: duration(config, "tripped_duration"),
        enforce: config.truth("enforce", true),
    })
}

fn error_threshold(config: &mut Config<'_>) -> f64 {
    const NAME: &str = "error_threshold";
    const DEFAULT: f64 = 0.5;
    let Some(value) = config.value(NAME) else { return DEFAULT };
    let Some(share) = value.as_f64() else {
        config.refuse(NAME, code::CONFIG, "error_threshold must be a number");
        return DEFAULT;
    };
    if !(0.0..=1.0).contains(&share) {
        config.refuse(NAME, code::RANGE, "error_threshold must be from 0 to 1");
    }
    share
}

fn duration(config: &mut Config<'_>, name: &'static str) -> Duration {
    let limits = Duration::from_secs(1)..=Duration::from_secs(120);
    config.duration(name, Duration::from_secs(10), limits)
}
