//! `circuit-breaker`: give a failing upstream time to recover.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use ginnel_api::policy_document::{
    ENFORCE, ERROR_THRESHOLD, ERROR_THRESHOLD_PERCENTAGE, NUM_BUCKETS, VOLUME_THRESHOLD,
};

use super::super::state::breaker::BreakerLimits;
use super::prelude::*;

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
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let breaker = turn.world.state().breaker_for(turn.rule, turn.action, self.breaker_limits());
        let attempt = breaker.try_once(turn.instant());
        turn.set_result(json!({"tripped": attempt.is_none()}));
        match attempt {
            Some(attempt) => turn.exchange.attempts.push(attempt),
            None if self.enforce => return Ok(Flow::End(Verdict::Respond(tripped_response()))),
            None => {}
        }
        Ok(Flow::Continue)
    }
}

impl CircuitBreakerAction {
    fn breaker_limits(&self) -> BreakerLimits {
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
fn tripped_response() -> LocalResponse {
    let sentence = "The circuit breaker is open: the backend failed too often.";
    LocalResponse::refusal(StatusCode::SERVICE_UNAVAILABLE, 3202, sentence)
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    // The window has ten buckets; the field exists so that a document may say so.
    config.integer_field(NUM_BUCKETS, Some(10), 10..=10);
    Box::new(CircuitBreakerAction {
        error_threshold: read_error_threshold(config),
        volume_threshold: config.integer_field(VOLUME_THRESHOLD, Some(10), 1..=u32::MAX.into()),
        window_duration: read_window_duration(config),
        tripped_duration: read_duration(config, "tripped_duration"),
        enforce: config.bool_field(ENFORCE, true),
    })
}

/// The name that the module has for `window_duration`, which the action had before.
const OLD_WINDOW: &str = "rolling_window";

fn read_error_threshold(config: &mut Config<'_>) -> f64 {
    let (new, old) = (ERROR_THRESHOLD, ERROR_THRESHOLD_PERCENTAGE);
    let field = if resolve_alias(config, new.name(), old.name()) == old.name() { old } else { new };
    config.number_field(field, 0.5, 0.0..=1.0)
}

fn read_window_duration(config: &mut Config<'_>) -> Duration {
    let name = resolve_alias(config, "window_duration", OLD_WINDOW);
    read_duration(config, name)
}

/// The one of two names that is there.
fn resolve_alias(config: &mut Config<'_>, name: &'static str, old: &'static str) -> &'static str {
    let has = config.field_value(name).is_some();
    if config.field_value(old).is_none() {
        return name;
    }
    if has {
        config.record_problem(old, code::DUPLICATE, format!("{old} is the older name of {name}"));
    }
    old
}

fn read_duration(config: &mut Config<'_>, name: &'static str) -> Duration {
    let limits = Duration::from_secs(1)..=Duration::from_secs(120);
    config.duration_field(name, Duration::from_secs(10), limits)
}
