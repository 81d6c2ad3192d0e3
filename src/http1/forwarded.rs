//! The fields in which proxies say whom they come for, and which services a request went through.

use http::HeaderName;

pub const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// The services that a request went through (RFC 8586), for circles to be seen.
pub const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// Whether only proxies have something to say in this field.
///
/// An underscore is as good as a hyphen, because gateway interfaces such as CGI and WSGI cannot tell
/// them apart.
pub fn is_forwarded(name: &[u8]) -> bool {
    match name.first() {
        Some(b'f' | b'F') => is(name, b"forwarded"),
        Some(b'x' | b'X') => {
            is(name, b"x-forwarded")
                || is(name, b"x-real-ip")
                || is(name, b"x-original-host")
                || name.get(..12).is_some_and(|start| is(start, b"x-forwarded-"))
        }
        _ => false,
    }
}

fn is(name: &[u8], known: &[u8]) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == known.len() && name.iter().zip(known).all(|(one, other)| plain(*one) == *other)
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
