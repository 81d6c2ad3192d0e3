//! Sparing a backend that fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ginnel_api::remote::edges::modules::CircuitBreaker;
pub use ginnel_policy::state::breaker::{Breaker, BreakerLimits};

use crate::modules::prelude::*;

/// The longest time of a circuit breaker.
const MAX_SECONDS: i64 = 24 * 60 * 60;
/// Into how many buckets the window may be divided.
const MAX_BUCKETS: i64 = 128;

/// Lets requests through as long as the backend answers.
pub struct BackendBreaker(pub Arc<Breaker>);

impl Module for BackendBreaker {
    fn kind(&self) -> ModuleKind {
        ModuleKind::CircuitBreaker
    }

    fn process_input<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            if let ModuleInput::Answer(_) = input {
                return next.run(context, input).await;
            }
            let Some(attempt) = self.0.try_once(Instant::now()) else {
                context.decided_by(self.kind());
                return Err(error_response::TRIPPED.into());
            };
            let answer = next.run(context, input).await;
            if let Some(status) = context.upstream_status {
                attempt.report_outcome(status < 500, Instant::now());
            }
            answer
        })
    }
}

impl BuildModule for CircuitBreaker {
    /// It keeps what it knows as long as its limits stay.
    fn build(self, builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        let limits = breaker_limits(&self);
        let fits = |known: &Breaker| known.limits == limits;
        let breaker =
            builder.reuse_or_create(ModuleKind::CircuitBreaker, fits, || Breaker::new(limits));
        Ok(Some(Box::new(BackendBreaker(breaker))))
    }
}

impl EdgeModule for CircuitBreaker {
    type Change = Self;

    fn check(change: Self, _: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let whole = |name: &str, value: Option<i64>, default: i64, most: i64| match value {
            Some(number) if !(1..=most).contains(&number) => Err(InvalidModule::from_message(
                format!("{name}: {number} is not from 1 to {most}"),
            )),
            value => Ok(Some(value.unwrap_or(default))),
        };
        let share = change.error_threshold_percentage.unwrap_or(0.5);
        if !(0.0..=1.0).contains(&share) {
            let message = format!("error_threshold_percentage: {share} is not from 0 to 1");
            return Err(InvalidModule::from_message(message));
        }
        let module = Self {
            enabled: change.enabled.or(Some(true)),
            tripped_duration: whole("tripped_duration", change.tripped_duration, 10, MAX_SECONDS)?,
            rolling_window: whole("rolling_window", change.rolling_window, 10, MAX_SECONDS)?,
            num_buckets: whole("num_buckets", change.num_buckets, 10, MAX_BUCKETS)?,
            volume_threshold: whole("volume_threshold", change.volume_threshold, 20, i64::MAX)?,
            error_threshold_percentage: Some(share),
        };
        Ok(module.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}

fn breaker_limits(module: &CircuitBreaker) -> BreakerLimits {
    let number = |value: Option<i64>, usual: u64| {
        value.and_then(|value| u64::try_from(value).ok()).unwrap_or(usual)
    };
    BreakerLimits {
        tripped: Duration::from_secs(number(module.tripped_duration, 10)),
        window: Duration::from_secs(number(module.rolling_window, 10)),
        buckets: usize::try_from(number(module.num_buckets, 10)).unwrap_or(10),
        volume: number(module.volume_threshold, 20),
        share: module.error_threshold_percentage.unwrap_or(0.5),
    }
}
