//! Who may come, by name and password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use subtle::{Choice, ConstantTimeEq};

/// Names and passwords, `name:password`.
#[derive(Debug)]
pub(in crate::service::edge) struct Passwords(pub Vec<String>);

impl Passwords {
    /// Whether a request carries one of them; takes the same time for right and wrong ones.
    pub(in crate::service::edge) fn allow(&self, headers: &HeaderMap) -> bool {
        let Some(presented) = presented(headers) else { return false };
        let found = self
            .0
            .iter()
            .fold(Choice::from(0), |found, known| found | known.as_bytes().ct_eq(&presented));
        found.into()
    }
}

fn presented(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    STANDARD.decode(encoded.trim()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn name_and_password_must_both_be_right() {
        let passwords = Passwords(vec!["ada:lovelace:1".into(), "bob:builder".into()]);
        let allows = |value: &str| {
            let headers = [(AUTHORIZATION, value.parse().unwrap())];
            passwords.allow(&HeaderMap::from_iter(headers))
        };

        assert!(allows(&format!("basic {}", STANDARD.encode("ada:lovelace:1"))));
        assert!(allows(&format!("Basic {}", STANDARD.encode("bob:builder"))));
        assert!(!allows(&format!("Basic {}", STANDARD.encode("bob:lovelace:1"))));
        assert!(!allows(&format!("Bearer {}", STANDARD.encode("bob:builder"))));
        assert!(!allows("Basic !"));
        assert!(!passwords.allow(&HeaderMap::new()));
    }
}
