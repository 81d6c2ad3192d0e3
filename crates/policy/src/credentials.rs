//! Who may come, by name and password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};
use subtle::{Choice, ConstantTimeEq};

use super::headers::single_header;

/// Names and passwords, `name:password`.
#[derive(Debug)]
pub struct Passwords(pub Vec<String>);

impl Passwords {
    /// Whether a request carries one of them; takes the same time for right and wrong ones.
    pub fn allows_request(&self, headers: &HeaderMap) -> bool {
        presented_credentials(headers).is_some_and(|presented| is_known(&presented, &self.0))
    }
}

/// The name and the password that a request carries; none where there are several.
pub(super) fn presented_credentials(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = single_header(headers, AUTHORIZATION.as_str())?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    STANDARD.decode(encoded.trim()).ok()
}

/// Whether it is one of those that are known.
///
/// Digests are compared, so that the time says nothing of lengths either.
pub(super) fn is_known(presented: &[u8], known: &[String]) -> bool {
    let presented = digest(&SHA256, presented);
    let found = known.iter().fold(Choice::from(0), |found, known| {
        found | digest(&SHA256, known.as_bytes()).as_ref().ct_eq(presented.as_ref())
    });
    found.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_password_must_both_be_right() {
        let passwords = Passwords(vec!["ada:lovelace:1".into(), "bob:builder".into()]);
        let allows = |value: &str| {
            let headers = [(AUTHORIZATION, value.parse().unwrap())];
            passwords.allows_request(&HeaderMap::from_iter(headers))
        };

        assert!(allows(&format!("basic {}", STANDARD.encode("ada:lovelace:1"))));
        assert!(allows(&format!("Basic {}", STANDARD.encode("bob:builder"))));
        assert!(!allows(&format!("Basic {}", STANDARD.encode("bob:lovelace:1"))));
        assert!(!allows(&format!("Bearer {}", STANDARD.encode("bob:builder"))));
        assert!(!allows("Basic !"));
        assert!(!passwords.allows_request(&HeaderMap::new()));
        let good = format!("Basic {}", STANDARD.encode("bob:builder"));
        let several = [good.as_str(), "Bearer x"].map(|it| (AUTHORIZATION, it.parse().unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in several {
            headers.append(name, value);
        }
        assert!(!passwords.allows_request(&headers), "with two headers");
    }
}
