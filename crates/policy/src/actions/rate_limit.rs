//! `rate-limit`: let only so many requests in.

use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;
use serde_json::json;

use ginnel_api::policy_document::{CAPACITY, ENFORCE};

use super::super::action::Action;
use super::super::action_error::ActionError;
use super::super::config::Config;
use super::super::expression::{Expression, value};
use super::super::facts::{Facts, TextFact};
use super::super::problem::code;
use super::super::turn::{Flow, Turn};
use super::super::verdict::{LocalResponse, Verdict};

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
    fn run(&self, turn: &mut Turn<'_>) -> Result<Flow, ActionError> {
        let key = self.key(&turn.facts());
        let bucket = json!([self.name, key]).to_string();
        let limits = &turn.world.state().rate_limits;
        let admitted = limits.admit(&bucket, self.capacity, self.rate, turn.instant());
        turn.result(json!({"bucket_key": key, "limited": admitted.is_err()}));
        match admitted {
            Err(wait) if self.enforce => Ok(Flow::End(Verdict::Respond(limited(wait)))),
            _ => Ok(Flow::Continue),
        }
    }
}

impl RateLimitAction {
    /// Returns the values of the key; one that cannot be evaluated is empty. `conn.client_ip` is the network,
    /// because a visitor with IPv6 has all addresses of one.
    fn key(&self, facts: &Facts<'_>) -> Vec<String> {
        let text = |expression: &Expression| {
            if expression.variable() == Some(TextFact::ClientIp) {
                return facts.exchange().client_network();
            }
            let value = expression.evaluate(facts).and_then(|value| value::text(&value));
            value.unwrap_or_default()
        };
        self.bucket_key.iter().map(text).collect()
    }
}

fn limited(wait: Duration) -> LocalResponse {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut answer = LocalResponse::empty(StatusCode::TOO_MANY_REQUESTS);
    answer.headers.insert(RETRY_AFTER, seconds.max(1).into());
    answer
}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    algorithm(config);
    Box::new(RateLimitAction {
        name: name(config),
        capacity: config.integer(CAPACITY, None, 1..=2_000_000_000),
        rate: rate(config),
        bucket_key: bucket_key(config),
        enforce: config.truth(ENFORCE, true),
    })
}

/// There is only one algorithm, but it has to be named.
fn algorithm(config: &mut Config<'_>) {
    if config.required("algorithm").is_some() {
        config.choice("algorithm", code::ALGORITHM, &[("sliding_window", ())]);
    }
}

fn name(config: &mut Config<'_>) -> String {
    if config.required("name").is_none() {
        return String::new();
    }
    let name = config.text("name").unwrap_or("?");
    if name.is_empty() {
        config.refuse("name", code::EMPTY, "name must not be empty");
    }
    if name.chars().count() > NAME {
        config.refuse("name", code::LENGTH, format!("name is longer than {NAME} characters"));
    }
    name.to_owned()
}

fn rate(config: &mut Config<'_>) -> Duration {
    let (least, most) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));
    if config.required("rate").is_none() {
        return least;
    }
    let rate = config.duration("rate", least, least..=most);
    if !rate.as_nanos().is_multiple_of(STEP.as_nanos()) {
        config.refuse("rate", code::RANGE, "rate must be a multiple of 10s");
    }
    rate
}

fn bucket_key(config: &mut Config<'_>) -> Vec<Expression> {
    let sources = config.texts("bucket_key", 1..=10);
    let checker = config.checker();
    sources.iter().filter_map(|(place, source)| checker.expression(place, source)).collect()
}
