//! Signatures of webhooks, as the specification of Standard Webhooks has them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use chrono::Utc;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use ring::hmac;

use ginnel_api::Secret;

use super::delivery::DeliveryError;
use super::payload::OutgoingEvent;
use super::secret::{DestinationSecret, key_of};

/// The identifier of the event; receivers tell by it what they have seen before.
const ID: HeaderName = HeaderName::from_static("webhook-id");
/// When this attempt was made, in seconds since the Unix epoch.
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
/// `v1,` and base64 of the HMAC-SHA256 of identifier, timestamp and body, with dots between; one for each secret
/// that counts, with spaces between.
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// The headers of a request that delivers an event now. Receivers compare the time with that of their own
/// clocks, so it is the real one, whatever clock resources have. Secrets that were replaced count if they last at
/// `age_second`, by the clock of the store.
pub(super) fn signed_headers(
    event: &OutgoingEvent,
    secret: Option<&DestinationSecret>,
    age_second: i64,
) -> Result<HeaderMap, DeliveryError> {
    let (now, secret) = (Utc::now().timestamp(), secret.ok_or(DeliveryError::Secret)?);
    sign_event(event, secret.valid_at(age_second), now).ok_or(DeliveryError::Secret)
}

fn sign_event<'s>(
    event: &OutgoingEvent,
    secrets: impl Iterator<Item = &'s Secret>,
    at: i64,
) -> Option<HeaderMap> {
    let id = event.header.event_id.as_str();
    let content = format!("{id}.{at}.{}", event.body);
    let sign = |secret: &Secret| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key_of(secret)?);
        Some(format!("v1,{}", BASE64_STANDARD.encode(hmac::sign(&key, content.as_bytes()))))
    };
    let signature = secrets.map(sign).collect::<Option<Vec<_>>>()?.join(" ");
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let agent = concat!("ginnel/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    headers.insert(ID, HeaderValue::try_from(id).ok()?);
    headers.insert(TIMESTAMP, HeaderValue::from(at));
    headers.insert(SIGNATURE, HeaderValue::try_from(signature).ok()?);
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::payload::EventHeader;

    #[test]
    fn the_signature_is_that_of_the_specification() {
        // The example of the specification.
        let secret = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let header = EventHeader {
            event_id: "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned(),
            event_type: String::new(),
            event_timestamp: Default::default(),
        };
        let event = OutgoingEvent { header, body: "{\"test\": 2432232314}".to_owned() };

        let headers = sign_event(&event, [&secret].into_iter(), 1_614_265_330).unwrap();

        assert_eq!(headers[SIGNATURE], "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(headers[ID], "msg_p5jXN8AQM9LWM0D4loKWxJek");
        assert_eq!(headers[TIMESTAMP], "1614265330");
    }
}
