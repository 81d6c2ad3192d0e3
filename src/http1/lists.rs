//! Lists in the values of fields (RFC 9110, section 5.6.1).

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderValue};

/// The elements of a list; those between two commas are empty.
pub fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// The elements of all lists with that name, in their order.
pub fn elements_of(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &[u8]> {
    headers.get_all(name).into_iter().map(HeaderValue::as_bytes).flat_map(elements)
}

/// Whether a word is in the lists with that name, in any case.
pub fn has_token(headers: &HeaderMap, name: impl AsHeaderName, token: &str) -> bool {
    elements_of(headers, name).any(|one| one.eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use http::header::TE;

    use super::*;

    #[test]
    fn all_lines_of_a_field_are_one_list() {
        let lines = ["gzip ,\tTrailers", "", "deflate;q=0.5"];
        let headers: HeaderMap =
            lines.into_iter().map(|line| (TE, HeaderValue::from_static(line))).collect();
        let all: [&[u8]; 4] = [b"gzip", b"Trailers", b"", b"deflate;q=0.5"];

        assert_eq!(elements_of(&headers, TE).collect::<Vec<_>>(), all);
        assert!(has_token(&headers, TE, "trailers") && has_token(&headers, "te", "GZIP"));
        assert!(!has_token(&headers, TE, "deflate") && !has_token(&headers, "trailer", "gzip"));
    }
}
