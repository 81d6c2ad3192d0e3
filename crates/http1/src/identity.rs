//! The fields that tell upstreams who has logged in.

use http::{HeaderMap, HeaderName};

use super::names::starts_same_for_cgi;

/// What their names begin with.
const PREFIX: &[u8] = b"ngrok-auth-";

/// Whether a field tells an upstream who has logged in, in any spelling that an upstream may take for it.
pub fn is_identity(name: &[u8]) -> bool {
    starts_same_for_cgi(name, PREFIX)
}

/// Removes the fields that tell upstreams who has logged in.
pub fn strip_identity(headers: &mut HeaderMap) {
    let is_claim = |name: &&HeaderName| is_identity(name.as_str().as_bytes());
    let claims: Vec<HeaderName> = headers.keys().filter(is_claim).cloned().collect();
    for name in claims {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_identities_are_known_in_every_spelling() {
        for name in ["ngrok-auth-user-email", "Ngrok_Auth_User_Id", "NGROK-AUTH_x"] {
            assert!(is_identity(name.as_bytes()), "{name}");
        }
        for name in ["", "ngrok-auth", "ngrok-skip-browser-warning", "x-ngrok-auth-user"] {
            assert!(!is_identity(name.as_bytes()), "{name}");
        }
    }
}
