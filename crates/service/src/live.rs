//! What of the management API may change while it runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::request;

use ginnel_http1::{MAX_HEAD_BYTES, MAX_HEAD_FIELDS, head_size};
use ginnel_net::ApiTimeouts;
use ginnel_settings::ByteSize;

use super::rate_limit::RateLimit;
use super::{Options, Refusal, TrustedProxies};

/// How long clients of the management API may take, and how much they may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiLimits {
    /// How long a client may be silent at first.
    pub first_byte: Duration,
    /// How long the head of a request may take, and the time between two requests.
    pub head: Duration,
    /// How long a body may take.
    pub body: Duration,
    /// The largest body (remote API sheet, section 1).
    pub max_body: ByteSize,
    /// The largest head of a request.
    pub max_head: ByteSize,
    /// The most fields that it may have; more than a hundred are refused by hyper, without a text.
    pub max_header_fields: usize,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self {
            first_byte: Duration::from_secs(5),
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            max_body: ByteSize(1 << 20),
            max_head: ByteSize(MAX_HEAD_BYTES),
            max_header_fields: MAX_HEAD_FIELDS,
        }
    }
}

impl ApiLimits {
    /// Refuses a request whose head is too large.
    pub(super) fn check_head(&self, head: &request::Parts) -> Result<(), Refusal> {
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
    pub fn of(options: &Options) -> Self {
        let rate = options.rate_limit;
        Self {
            limits: options.api,
            trusted_proxies: options.trusted_proxies.clone(),
            drain_delay: options.drain_delay,
            rate,
            rate_limit: rate.map(|(requests, window)| Arc::new(RateLimit::new(requests, window))),
        }
    }

    /// The same for new options; what was counted of a rate that stays is kept.
    pub fn changed(&self, options: &Options) -> Self {
        let mut settings = Self::of(options);
        if settings.rate == self.rate {
            settings.rate_limit.clone_from(&self.rate_limit);
        }
        settings
    }

    /// Counts a request, or refuses it.
    pub fn count(&self, now: Instant) -> Result<(), Refusal> {
        self.rate_limit.as_ref().map_or(Ok(()), |limit| limit.take(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(requests: u32) -> Options {
        Options { rate_limit: Some((requests, Duration::from_secs(60))), ..Options::default() }
    }

    #[test]
    fn a_rate_that_stays_keeps_its_count_and_a_new_one_begins_anew() {
        let now = Instant::now();
        let settings = ApiSettings::of(&options(1));
        assert!(settings.count(now).is_ok());

        let same = settings.changed(&options(1));
        let other = settings.changed(&options(2));
        let none = settings.changed(&Options::default());

        assert!(same.count(now).is_err());
        assert!(other.count(now).is_ok());
        assert!(none.count(now).is_ok() && none.count(now).is_ok());
    }
}
