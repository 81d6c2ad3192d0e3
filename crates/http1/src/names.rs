//! Names of fields, as gateway interfaces see them.

use http::header::{self, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The values of a request field in all spellings that CGI and WSGI give one name: first those of the spelling that was
/// asked for, in order, then the others.
#[derive(Debug)]
pub struct SpelledValues<'h, 'n> {
    exact: header::ValueIter<'h, HeaderValue>,
    fields: header::Iter<'h, HeaderValue>,
    name: &'n [u8],
}

impl<'h, 'n> SpelledValues<'h, 'n> {
    /// Returns the values that an application behind CGI or WSGI may read under `name`.
    pub fn new(headers: &'h HeaderMap, name: &'n str) -> Self {
        let exact = headers.get_all(name).iter();
        Self { exact, fields: headers.iter(), name: name.as_bytes() }
    }
}

impl<'h> Iterator for SpelledValues<'h, '_> {
    type Item = &'h HeaderValue;

    fn next(&mut self) -> Option<&'h HeaderValue> {
        let name = self.name;
        self.exact.next().or_else(|| {
            let is_other = |field: &(&HeaderName, _)| {
                let known = field.0.as_str().as_bytes();
                is_same_for_cgi(known, name) && !known.eq_ignore_ascii_case(name)
            };
            self.fields.find(is_other).map(|(_, value)| value)
        })
    }
}

/// Returns true if CGI and WSGI give two fields one name: `X_User` and `x-user` are both `HTTP_X_USER`.
///
/// Every byte but a letter or a digit becomes an underscore there (RFC 3875, section 4.1.18, names the
/// hyphen only; lighttpd and older versions of Apache replace the others as well).
pub fn is_same_for_cgi(name: &[u8], other: &[u8]) -> bool {
    name.len() == other.len()
        && name.iter().zip(other).all(|(one, other)| cgi_byte(*one) == cgi_byte(*other))
}

/// Returns true if a name begins like another one for CGI and WSGI.
pub fn starts_same_for_cgi(name: &[u8], start: &[u8]) -> bool {
    name.get(..start.len()).is_some_and(|begin| is_same_for_cgi(begin, start))
}

/// Returns true if CGI and WSGI give two fields one name, although they are spelled differently. The fields
/// that frame a message have one spelling: `Content-Length` stays if `content_length` goes.
pub fn is_cgi_twin(name: &[u8], other: &[u8]) -> bool {
    let framing = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING];
    let frames = framing.iter().any(|it| name.eq_ignore_ascii_case(it.as_str().as_bytes()));
    !frames && is_same_for_cgi(name, other) && !name.eq_ignore_ascii_case(other)
}

fn cgi_byte(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_spelling_that_was_asked_for_come_first() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x_a", "1"), ("x-a", "2"), ("xa", "3"), ("x.a", "4"), ("x-a", "5")] {
            headers.append(name, HeaderValue::from_static(value));
        }

        for (name, expected) in [
            ("X-A", ["2", "5", "1", "4"]),
            ("x_a", ["1", "2", "5", "4"]),
            ("x~a", ["1", "2", "5", "4"]),
        ] {
            let values: Vec<_> = SpelledValues::new(&headers, name).collect();
            assert_eq!(values, expected, "{name}");
        }
    }

    #[test]
    fn cgi_does_not_tell_signs_apart() {
        for name in ["X_User", "x-user", "X-USER", "x.user", "x~user"] {
            assert!(is_same_for_cgi(name.as_bytes(), b"x-user"), "{name}");
        }
        for name in ["xuser", "x-user-", "x-users", "x--user", ""] {
            assert!(!is_same_for_cgi(name.as_bytes(), b"x-user"), "{name}");
        }
        assert!(is_cgi_twin(b"X_User", b"x-user") && !is_cgi_twin(b"X-User", b"x-user"));
        assert!(!is_cgi_twin(b"Content-Length", b"content_length"));
        assert!(is_cgi_twin(b"content_length", b"content-length"));
        assert!(starts_same_for_cgi(b"X_Forwarded_For", b"x-forwarded-"));
        assert!(!starts_same_for_cgi(b"x-forward", b"x-forwarded-"));
    }
}
