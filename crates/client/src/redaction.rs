//! Keeps what a client sends in confidence out of its errors, even where a server sends it back.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use regex::bytes::Regex;

use ginnel_api::mask::MASK;
use ginnel_api::secrets::is_secret;

use crate::headers::SERVICE_VERSION;

/// How long a credential is at least, in bytes. What is shorter is no key of a service, and to mask
/// each `k` of a text for the key `k` would leave nothing to read.
const MIN_CREDENTIAL_BYTES: usize = 8;

/// The key of a client, and what else its headers hold that is secret.
#[derive(Clone, Default)]
pub(super) struct RedactedValues(Arc<[RedactedValue]>);

struct RedactedValue {
    text: String,
    /// Made when first needed: most calls succeed, and show nothing.
    pattern: OnceLock<Option<Regex>>,
}

impl RedactedValues {
    /// The credentials in the headers of a request.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let secret = headers.iter().filter(|(name, _)| is_secret_header(name));
        let values = secret.filter_map(|(_, value)| value.to_str().ok());
        // Without its scheme, which may be written in another way or be left out.
        let values =
            values.map(|value| value.split_once(' ').map_or(value, |(_, rest)| rest.trim()));
        let long = values.filter(|value| value.len() >= MIN_CREDENTIAL_BYTES);
        let made = |text: &str| RedactedValue { text: text.to_owned(), pattern: OnceLock::new() };
        Self(long.map(made).collect())
    }

    /// The bytes without the credentials.
    pub fn mask_bytes(&self, bytes: &Bytes) -> Bytes {
        let mut masked = bytes.clone();
        for pattern in self.0.iter().filter_map(RedactedValue::pattern) {
            if pattern.is_match(&masked) {
                masked = pattern.replace_all(&masked, MASK.as_bytes()).into_owned().into();
            }
        }
        masked
    }

    /// The text without the credentials.
    pub fn mask_text(&self, text: &str) -> String {
        let masked = self.mask_bytes(&Bytes::copy_from_slice(text.as_bytes()));
        String::from_utf8_lossy(&masked).into_owned()
    }

    /// The headers without the credentials.
    pub fn mask_headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let masked = self.mask_bytes(&Bytes::copy_from_slice(value.as_bytes()));
            // The mask is made of bytes that headers may carry.
            if let Ok(masked) = HeaderValue::from_bytes(&masked) {
                *value = masked;
            }
        }
    }
}

/// Returns true if a header holds a secret. The headers that clients have by default are decided here: to make the table
/// of names takes 2.5 ms, more than a first call.
fn is_secret_header(name: &HeaderName) -> bool {
    const PLAIN: [HeaderName; 5] = [ACCEPT, ACCEPT_ENCODING, HOST, SERVICE_VERSION, USER_AGENT];
    *name == AUTHORIZATION || !PLAIN.contains(name) && is_secret(name.as_str())
}

impl RedactedValue {
    fn pattern(&self) -> Option<&Regex> {
        self.pattern.get_or_init(|| credential_pattern(&self.text)).as_ref()
    }
}

/// Finds a credential as it is, and with any of its characters escaped for an address or in JSON.
fn credential_pattern(secret: &str) -> Option<Regex> {
    let any = |letter: char| {
        let (literal, code) = (regex::escape(letter.encode_utf8(&mut [0; 4])), u32::from(letter));
        format!(r"(?:\\?{literal}|(?i:%{code:02x}|\\u{code:04x}))")
    };
    Regex::new(&secret.chars().map(any).collect::<String>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(authorization: &str) -> RedactedValues {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", authorization.try_into().unwrap());
        headers.insert("x-request-id", "not-a-secret".try_into().unwrap());
        RedactedValues::from_headers(&headers)
    }

    #[test]
    fn a_key_is_found_in_every_spelling() {
        let credentials = credentials("Bearer ab/cd_ef+\"h");
        for text in [
            r#"ab/cd_ef+"h"#,
            "ab%2Fcd%5Fef%2B%22h",
            "ab%2fcd_ef%2b%22h",
            r#"ab\/cd_ef+\"h"#,
            r"\u0061\u0062\u002fcd_ef\u002B\u0022h",
        ] {
            assert_eq!(credentials.mask_text(&format!("<{text}>")), format!("<{MASK}>"), "{text}");
        }
        assert_eq!(credentials.mask_text("not-a-secret"), "not-a-secret");
    }

    #[test]
    fn what_is_short_is_no_key() {
        assert_eq!(credentials("Bearer k").mask_text("ok"), "ok");
        assert_eq!(credentials("Bearer 1234567").mask_text("1234567"), "1234567");
        assert_eq!(credentials("12345678").mask_text("12345678"), MASK);
    }
}
