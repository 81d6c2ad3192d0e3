//! Tells requests that deliver events of this service from those of visitors. A destination may be behind
//! the service's own gateway; an event of its delivery would be delivered as well, without end.
//!
//! A mark is worth nothing to who receives it: it holds for one URL, that of the receiver itself.

use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::HOST;
use http::{HeaderName, HeaderValue, Request};
use ring::hmac;

use ginnel_base::address::WebUrl;
use ginnel_http1::request_target;

/// The header that has the mark.
const MARK: HeaderName = HeaderName::from_static("ginnel-event-delivery");

/// Makes and verifies marks, with a key that the nodes of a cluster share.
#[derive(Default)]
pub struct DeliveryMark(ArcSwapOption<hmac::Key>);

impl DeliveryMark {
    /// Uses this key from now on.
    pub fn set_key(&self, key: &[u8]) {
        self.0.store(Some(hmac::Key::new(hmac::HMAC_SHA256, key).into()));
    }

    /// The header of a request that delivers an event to a URL; none without a key.
    pub fn header_for_url(&self, url: &WebUrl) -> Option<(HeaderName, HeaderValue)> {
        let key = self.0.load_full()?;
        // As in the `Host` header, which the HTTP library derives from the same URL.
        let host = url.as_url().host_str()?;
        let port = url.as_url().port().map(|port| format!(":{port}")).unwrap_or_default();
        let tag =
            hmac::sign(&key, &signed_content(&format!("{host}{port}"), &url.request_target()));
        let mark = BASE64_URL_SAFE_NO_PAD.encode(tag);
        Some((MARK, HeaderValue::try_from(mark).ok()?))
    }

    /// Whether a request delivers an event of this service.
    pub fn is_on<B>(&self, request: &Request<B>) -> bool {
        let Some(mark) = request.headers().get(MARK) else { return false };
        let Some(key) = self.0.load_full() else { return false };
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
        let path = request_target(request.uri(), request.extensions());
        let (Some(host), Ok(tag)) = (host, BASE64_URL_SAFE_NO_PAD.decode(mark)) else {
            return false;
        };
        hmac::verify(&key, &signed_content(&host.to_ascii_lowercase(), path), &tag).is_ok()
    }
}

fn signed_content(authority: &str, path: &str) -> Vec<u8> {
    format!("{authority} {path}").into_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn request(host: &str, path: &str, mark: &HeaderValue) -> Request<()> {
        Request::builder().uri(path).header(HOST, host).header(MARK, mark).body(()).unwrap()
    }

    #[test]
    fn a_mark_holds_for_its_url_and_its_key() {
        let (mark, other) = (DeliveryMark::default(), DeliveryMark::default());
        let url = |text: &str| WebUrl::parse(text).unwrap();
        assert!(mark.header_for_url(&url("https://a.test/")).is_none());
        mark.set_key(b"one");
        other.set_key(b"two");
        let (_, value) = mark.header_for_url(&url("https://A.test:443/events?x=1")).unwrap();
        let (_, ported) = mark.header_for_url(&url("http://127.0.0.1:8080")).unwrap();

        assert!(mark.is_on(&request("a.test", "/events?x=1", &value)));
        assert!(mark.is_on(&request("127.0.0.1:8080", "/", &ported)));
        assert!(!mark.is_on(&request("a.test", "/events", &value)));
        assert!(!mark.is_on(&request("b.test", "/events?x=1", &value)));
        assert!(!mark.is_on(&request("a.test", "/events?x=1", &ported)));
        assert!(!other.is_on(&request("a.test", "/events?x=1", &value)));
    }
}
