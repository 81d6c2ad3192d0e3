//! `circuit-breaker`: give a failing upstream time to recover.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use ginnel_api::policy_document::{
    ENFORCE, ERROR_THRESHOLD, ERROR_THRESHOLD_PERCENTAGE, NUM_BUCKETS, VOLUME_THRESHOLD,
};

use super::super::action::Action;
use super::super::action_error::ActionError;
use super::super::config::Config;
use super::super::problem::code;
use super::super::state::breaker::BreakerLimits;
use super::super::turn::{Flow, Turn};
use super::super::verdict::{LocalResponse, Verdict};

/// Turns requests away while too many of them fail.
#[derive(Debug)]
pub struct CircuitBreakerAction {
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

impl Action for CircuitBreakerAction {
    fn run(&self, turn: &mut Turn<'_>) -> Result<Flow, ActionError> {
        let breaker = turn.world.state().breaker(turn.rule, turn.action, self.limits());
        let attempt = breaker.try_once(turn.instant());
        turn.result(json!({"tripped": attempt.is_none()}));
        match attempt {
            Some(attempt) => turn.exchange.attempts.push(attempt),
            None if self.enforce => return Ok(Flow::End(Verdict::Respond(tripped()))),
            None => {}
        }
        Ok(Flow::Continue)
    }
}

impl CircuitBreakerAction {
    fn limits(&self) -> BreakerLimits {
        BreakerLimits {
            tripped: self.tripped_duration,
            window: self.window_duration,
            buckets: 10,
            volume: self.volume_threshold,
            share: self.error_threshold,
        }
    }
}

/// What visitors get while the circuit is open.
fn tripped() -> LocalResponse {
    let sentence = "The circuit breaker is open: the backend failed too often.";
    LocalResponse::refusal(StatusCode::SERVICE_UNAVAILABLE, 3202, sentence)
}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    // The window has ten buckets; the field exists so that a document may say so.
    config.integer(NUM_BUCKETS, Some(10), 10..=10);
    Box::new(CircuitBreakerAction {
        error_threshold: error_threshold(config),
        volume_threshold: config.integer(VOLUME_THRESHOLD, Some(10), 1..=u32::MAX.into()),
        window_duration: window_duration(config),
        tripped_duration: duration(config, "tripped_duration"),
        enforce: config.truth(ENFORCE, true),
    })
}

/// The name that the module has for `window_duration`, which the action had before.
const OLD_WINDOW: &str = "rolling_window";

fn error_threshold(config: &mut Config<'_>) -> f64 {
    let (new, old) = (ERROR_THRESHOLD, ERROR_THRESHOLD_PERCENTAGE);
    let field = if either(config, new.name(), old.name()) == old.name() { old } else { new };
    config.number(field, 0.5, 0.0..=1.0)
}

fn window_duration(config: &mut Config<'_>) -> Duration {
    let name = either(config, "window_duration", OLD_WINDOW);
    duration(config, name)
}

/// The one of two names that is there.
fn either(config: &mut Config<'_>, name: &'static str, old: &'static str) -> &'static str {
    let has = config.value(name).is_some();
    if config.value(old).is_none() {
        return name;
    }
    if has {
        config.refuse(old, code::DUPLICATE, format!("{old} is the older name of {name}"));
    }
    old
}

fn duration(config: &mut Config<'_>, name: &'static str) -> Duration {
    let limits = Duration::from_secs(1)..=Duration::from_secs(120);
    config.duration(name, Duration::from_secs(10), limits)
}
