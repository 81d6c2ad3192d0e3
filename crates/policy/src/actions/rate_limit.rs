//! `rate-limit`: let only so many requests in.

use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;
use serde_json::json;

use ginnel_api::policy_document::{CAPACITY, ENFORCE};

use super::super::expression::{Expression, value};
use super::super::facts::{Facts, TextFact};
use super::prelude::*;

/// How long a name may be, in characters.
const NAME: usize = 1023;

/// The step of a rate: the window moves in tenths of it.
const STEP: Duration = Duration::from_secs(10);

/// Turns requests away when there are too many like them.
#[derive(Debug)]
pub struct RateLimitAction {
    /// What the limit is called.
    pub name: String,
    /// How many requests are let in during each `rate`.
    pub capacity: u64,
    /// How long the window is that slides over the requests.
    pub rate: Duration,
    /// What requests have in common that are counted together.
    pub bucket_key: Vec<Expression>,
    /// Whether requests are turned away; without, it is only recorded.
    pub enforce: bool,
}

impl Action for RateLimitAction {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let key = self.evaluate_key(&turn.facts());
        let bucket = json!([self.name, key]).to_string();
        let limits = &turn.world.state().rate_limits;
        let admitted = limits.admit(&bucket, self.capacity, self.rate, turn.instant());
        turn.set_result(json!({"bucket_key": key, "limited": admitted.is_err()}));
        match admitted {
            Err(wait) if self.enforce => Ok(Flow::End(Verdict::Respond(limited_response(wait)))),
            _ => Ok(Flow::Continue),
        }
    }
}

impl RateLimitAction {
    /// Returns the values of the key; one that cannot be evaluated is empty. `conn.client_ip` is the network,
    /// because a visitor with IPv6 has all addresses of one.
    fn evaluate_key(&self, facts: &Facts<'_>) -> Vec<String> {
        let text = |expression: &Expression| {
            if expression.variable() == Some(TextFact::ClientIp) {
                return facts.exchange().client_network();
            }
            let value = expression.evaluate(facts).and_then(|value| value::value_to_text(&value));
            value.unwrap_or_default()
        };
        self.bucket_key.iter().map(text).collect()
    }
}

fn limited_response(wait: Duration) -> LocalResponse {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut answer = LocalResponse::empty(StatusCode::TOO_MANY_REQUESTS);
    answer.headers.insert(RETRY_AFTER, seconds.max(1).into());
    answer
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    check_algorithm(config);
    Box::new(RateLimitAction {
        name: read_name(config),
        capacity: config.integer_field(CAPACITY, None, 1..=2_000_000_000),
        rate: read_rate(config),
        bucket_key: read_bucket_key(config),
        enforce: config.bool_field(ENFORCE, true),
    })
}

/// There is only one algorithm, but it has to be named.
fn check_algorithm(config: &mut Config<'_>) {
    if config.required_field("algorithm").is_some() {
        config.choice_field("algorithm", code::ALGORITHM, &[("sliding_window", ())]);
    }
}

fn read_name(config: &mut Config<'_>) -> String {
    if config.required_field("name").is_none() {
        return String::new();
    }
    let name = config.text_field("name").unwrap_or("?");
    if name.is_empty() {
        config.record_problem("name", code::EMPTY, "name must not be empty");
    }
    if name.chars().count() > NAME {
        config.record_problem(
            "name",
            code::LENGTH,
            format!("name is longer than {NAME} characters"),
        );
    }
    name.to_owned()
}

fn read_rate(config: &mut Config<'_>) -> Duration {
    let (least, most) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));
    if config.required_field("rate").is_none() {
        return least;
    }
    let rate = config.duration_field("rate", least, least..=most);
    if !rate.as_nanos().is_multiple_of(STEP.as_nanos()) {
        config.record_problem("rate", code::RANGE, "rate must be a multiple of 10s");
    }
    rate
}

fn read_bucket_key(config: &mut Config<'_>) -> Vec<Expression> {
    let sources = config.text_entries("bucket_key", 1..=10);
    let checker = config.checker();
    sources.iter().filter_map(|(place, source)| checker.compile_expression(place, source)).collect()
}
