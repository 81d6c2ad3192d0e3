//! The fields in which proxies say whom they come for, and which services a request went through.

use http::HeaderName;

use super::names::{is_same_for_cgi, starts_same_for_cgi};

pub const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// The services that a request went through (RFC 8586), for circles to be seen.
pub const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// Whether only proxies have something to say in this field.
///
/// All spellings count that gateway interfaces such as CGI and WSGI cannot tell apart.
pub fn is_forwarded(name: &[u8]) -> bool {
    match name.first() {
        Some(b'f' | b'F') => is_same_for_cgi(name, b"forwarded"),
        Some(b'x' | b'X') => {
            is_same_for_cgi(name, b"x-forwarded")
                || is_same_for_cgi(name, b"x-real-ip")
                || is_same_for_cgi(name, b"x-original-host")
                || starts_same_for_cgi(name, b"x-forwarded-")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proxies_are_known_in_every_spelling() {
        for name in [
            "x-forwarded-for",
            "X-Forwarded-For",
            "X_Forwarded_For",
            "x-forwarded_proto",
            "X.Forwarded.For",
            "X-FORWARDED-PORT",
            "x-forwarded-",
            "X-Forwarded",
            "Forwarded",
            "X-Real-IP",
            "x_real_ip",
            "X-Original-Host",
        ] {
            assert!(is_forwarded(name.as_bytes()), "{name}");
        }
        for name in ["", "x", "x-forward", "forwarded-by", "xforwarded-for", "from", "x-request-id"]
        {
            assert!(!is_forwarded(name.as_bytes()), "{name}");
        }
    }
}
