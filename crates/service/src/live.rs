//! What of the management API may change while it runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::request;

use ginnel_http1::{MAX_HEAD_BYTES, MAX_HEAD_FIELDS, head_size};
use ginnel_net::ApiTimeouts;
use ginnel_settings::{ByteSize, settings};

use super::rate_limit::RateLimit;
use super::{Refusal, Result, TrustedProxies};

settings! {
    /// Limits of one connection to the management API. More than a hundred header fields are refused by hyper, without a text.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ApiLimits {
    }

    /// The limits, under `api`.
    rows {
        first_byte: Duration = Duration::from_secs(5),
            "api.first_byte_timeout", "DURATION",
            "Maximum time until a client of the management API sends its first byte",
            with_time_bounds(), live();
        head: Duration = Duration::from_secs(30),
            "api.head_timeout", "DURATION",
            "Maximum duration of a request's head, and of the pause between two requests",
            with_time_bounds(), live();
        body: Duration = Duration::from_secs(30),
            "api.body_timeout", "DURATION",
            "Maximum duration of a request's body",
            with_time_bounds(), live();
        max_body: ByteSize = ByteSize(1 << 20),
            "api.max_body_size", "SIZE",
            "The largest body of a request",
            with_bounds(1 << 10, 64 << 20), live();
        max_head: ByteSize = ByteSize(MAX_HEAD_BYTES),
            "api.max_head_size", "SIZE",
            "The largest head of a request; larger ones get 431",
            with_bounds(4 << 10, 128 << 10), live();
        max_header_fields: usize = MAX_HEAD_FIELDS,
            "api.max_header_fields", "N",
            "The most header fields of a request; with more it gets 431",
            with_bounds(20, MAX_HEAD_FIELDS as u64), live();
    }
}

impl ApiLimits {
    /// Refuses a request whose head is too large.
    pub(super) fn check_head(&self, head: &request::Parts) -> Result<()> {
        let fields = head.headers.len();
        if fields > self.max_header_fields {
            let limit = self.max_header_fields;
            let message = format!("the request has {fields} header fields, the limit is {limit}");
            return Err(Refusal::head_too_large(&message));
        }
        let size = head_size(&head.method, &head.uri, &head.headers);
        if size > self.max_head.0 {
            let limit = self.max_head.0;
            let message = format!("the head of the request has {size} bytes, the limit is {limit}");
            return Err(Refusal::head_too_large(&message));
        }
        Ok(())
    }

    pub(super) fn timeouts(&self) -> ApiTimeouts {
        ApiTimeouts { first_byte: self.first_byte, head: self.head }
    }
}

/// The present settings, shared by all that ask for them.
pub(super) type LiveSettings = Arc<ArcSwap<ApiSettings>>;

/// What may change while the management API runs.
pub(super) struct ApiSettings {
    pub limits: ApiLimits,
    pub trusted_proxies: TrustedProxies,
    /// How long the service is not ready before it takes no more connections.
    pub drain_delay: Duration,
    rate: Option<(u32, Duration)>,
    rate_limit: Option<Arc<RateLimit>>,
}

impl ApiSettings {
    pub fn new(
        limits: ApiLimits,
        trusted_proxies: TrustedProxies,
        drain_delay: Duration,
        rate: Option<(u32, Duration)>,
    ) -> Self {
        let rate_limit = rate.map(|(requests, window)| Arc::new(RateLimit::new(requests, window)));
        Self { limits, trusted_proxies, drain_delay, rate, rate_limit }
    }

    /// Returns the new settings. A rate that stays keeps its count.
    pub fn with_options(&self, mut settings: Self) -> Self {
        if settings.rate == self.rate {
            settings.rate_limit.clone_from(&self.rate_limit);
        }
        settings
    }

    /// Counts a request, or refuses it.
    pub fn count_request(&self, now: Instant) -> Result<()> {
        self.rate_limit.as_ref().map_or(Ok(()), |limit| limit.try_take(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(requests: Option<u32>) -> ApiSettings {
        let rate = requests.map(|requests| (requests, Duration::from_secs(60)));
        ApiSettings::new(ApiLimits::default(), TrustedProxies::default(), Duration::ZERO, rate)
    }

    #[test]
    fn a_rate_that_stays_keeps_its_count_and_a_new_one_begins_anew() {
        let now = Instant::now();
        let first = settings(Some(1));
        assert!(first.count_request(now).is_ok());

        let same = first.with_options(settings(Some(1)));
        let other = first.with_options(settings(Some(2)));
        let none = first.with_options(settings(None));

        assert!(same.count_request(now).is_err());
        assert!(other.count_request(now).is_ok());
        assert!(none.count_request(now).is_ok() && none.count_request(now).is_ok());
    }
}
