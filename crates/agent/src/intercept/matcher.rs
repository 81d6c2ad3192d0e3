//! Which requests a rule is for.

use serde::Deserialize;

use ginnel_api::local::match_fields::match_fields;
use ginnel_api::mask;
use ginnel_base::address::HostName;
use ginnel_http1::{after_first_line, fields_in};

use crate::edits::is_token;

/// What rules see of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestView<'a> {
    /// The tunnel that received it.
    pub tunnel_name: &'a str,
    /// The host that the visitor named.
    pub host: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The head, as it is sent to the local service.
    pub head: &'a [u8],
}

impl<'a> RequestView<'a> {
    /// The method.
    pub fn method(&self) -> &'a str {
        let end = self.head.iter().position(|byte| *byte == b' ').unwrap_or_default();
        std::str::from_utf8(&self.head[..end]).unwrap_or_default()
    }

    /// The path without the query.
    pub fn path(&self) -> &'a str {
        self.target.split_once('?').map_or(self.target, |(path, _)| path)
    }

    /// The query without the question mark.
    pub fn query(&self) -> &'a str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// The values of a header that are text.
    pub fn header_values(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let fields = fields_in(after_first_line(self.head));
        let own = fields.filter(move |(own, _)| own.eq_ignore_ascii_case(name.as_bytes()));
        own.filter_map(|(_, value)| std::str::from_utf8(value).ok())
    }
}

macro_rules! declare {
    (shown { $($shown:tt)* } parameters { $( $(#[doc = $doc:literal])+ $name:ident : $type:ty, )* }) => {
        /// What a request must be like; what is empty matches any.
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        pub(super) struct RequestMatcher {
            $( $(#[doc = $doc])+ $name: $type, )*
        }
    };
}

match_fields!(declare);

impl RequestMatcher {
    /// What is wrong with it: values that no request has.
    pub fn find_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.method.bytes().all(is_token) {
            problems.push(format!("method: {:?} is not a method", self.method));
        }
        let is_path = self.path.is_empty() || self.path.starts_with(['/', '*']);
        if !is_path || self.path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            problems.push(format!("path: {:?} is not a path, which begins with / or *", self.path));
        }
        if self.host.contains(['/', ' ']) {
            problems.push(format!("host: {:?} is not a host", mask::url(&self.host)));
        }
        for name in self.match_headers.keys() {
            if name.is_empty() || !name.bytes().all(is_token) {
                problems.push(format!("match_headers: {name:?} is not a name"));
            }
        }
        problems
    }

    pub fn matches_request(&self, request: &RequestView<'_>) -> bool {
        let is_any_or = |text: &str, matches: &dyn Fn() -> bool| text.is_empty() || matches();
        is_any_or(&self.tunnel_name, &|| self.tunnel_name == request.tunnel_name)
            && is_any_or(&self.method, &|| self.method.eq_ignore_ascii_case(request.method()))
            && is_any_or(&self.host, &|| self.matches_host(request.host))
            && is_any_or(&self.path, &|| self.matches_path(request))
            && self.match_headers.iter().all(|(name, pattern)| {
                request
                    .header_values(name)
                    .any(|value| is_like(pattern.as_bytes(), value.as_bytes()))
            })
    }

    fn matches_host(&self, host: &str) -> bool {
        let (pattern, host) = (self.host.to_ascii_lowercase(), host.to_ascii_lowercase());
        let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
        [name, &host].iter().any(|host| is_like(pattern.as_bytes(), host.as_bytes()))
    }

    fn matches_path(&self, request: &RequestView<'_>) -> bool {
        let text = if self.path.contains('?') { request.target } else { request.path() };
        is_like(self.path.as_bytes(), text.as_bytes())
    }
}

/// Returns the pattern of a host with its labels in the `xn--` form, as requests name them.
///
/// # Errors
/// If a label has letters outside ASCII and no such form.
pub(super) fn ascii_host(pattern: &str) -> Result<String, String> {
    if pattern.is_ascii() {
        return Ok(pattern.to_owned());
    }
    let (host, port) = pattern.split_at(pattern.find(':').unwrap_or(pattern.len()));
    let label = |label: &str| match label.is_ascii() {
        true => Ok(label.to_owned()),
        false if label.contains('*') => {
            let problem = "has `*` in a label with letters outside ASCII; write its xn-- form";
            Err(format!("host: {:?} {problem}", mask::url(pattern)))
        }
        false => {
            let name = HostName::parse(label).map(|name| name.to_string());
            name.map_err(|problem| format!("host: {:?} {problem}", mask::url(pattern)))
        }
    };
    let labels: Vec<_> = host.split('.').map(label).collect::<Result<_, _>>()?;
    Ok(labels.join(".") + port)
}

/// Whether all of a text is like a pattern, in which `*` stands for anything.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where the last `*` is, and how much of the text it stands for so far.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, read));
            at += 1;
        } else if pattern.get(at) == text.get(read) {
            at += 1;
            read += 1;
        } else if let Some((begin, covered)) = star {
            star = Some((begin, covered + 1));
            (at, read) = (begin + 1, covered + 1);
        } else {
            return false;
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn hosts_are_compared_in_their_ascii_form() {
        for (pattern, expected) in [
            ("*.b\u{fc}cher.test:8080", Some("*.xn--bcher-kva.test:8080")),
            ("A*.test", Some("A*.test")),
            ("b\u{fc}*.test", None),
            ("\u{ff41}.test", None),
        ] {
            assert_eq!(ascii_host(pattern).ok().as_deref(), expected, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_is_the_whole_text_but_for_stars() {
        for (pattern, text, expected) in [
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/a*", "/ab", true),
            ("*b", "/ab", true),
            ("/*/c", "/a/b/c", true),
            ("/*/d", "/a/b/c", false),
            ("*", "", true),
            ("**a*", "bab", true),
            ("a*ab", "aaab", true),
            ("", "a", false),
        ] {
            assert_eq!(is_like(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn what_no_request_has_is_refused() {
        let problems = |fields: Value| {
            serde_json::from_value::<RequestMatcher>(fields).unwrap().find_problems().join("\n")
        };

        for (fields, problem) in [
            (json!({"method": "BAD METHOD"}), "method: \"BAD METHOD\" is not a method"),
            (json!({"path": "noslash"}), "path: \"noslash\" is not a path"),
            (json!({"path": "/a b"}), "path: \"/a b\" is not a path"),
            (json!({"host": "http://shop.test"}), "host: \"http://shop.test\" is not a host"),
            (json!({"match_headers": {"x y": "*"}}), "match_headers: \"x y\" is not a name"),
        ] {
            assert!(problems(fields).starts_with(problem), "{problem}");
        }
        for fields in [
            json!({}),
            json!({"method": "post", "path": "/hook/*?a=*", "host": "*.test:80"}),
            json!({"path": "*/hook", "match_headers": {"X-Kind": "paid order"}}),
        ] {
            assert_eq!(problems(fields), "");
        }
    }

    #[test]
    fn all_that_is_named_must_match() {
        let request = RequestView {
            tunnel_name: "web",
            host: "Shop.test:8443",
            target: "/hook/a?x=1",
            head: b"POST /hook/a?x=1 HTTP/1.1\r\nX-Kind: paid order\r\n\r\n",
        };
        let matches = |fields: Value| {
            serde_json::from_value::<RequestMatcher>(fields).unwrap().matches_request(&request)
        };

        for (yes, no) in [
            (json!({}), json!({"tunnel_name": "other"})),
            (json!({"tunnel_name": "web"}), json!({"method": "GET"})),
            (json!({"method": "post"}), json!({"method": "post", "path": "/"})),
            (json!({"host": "shop.test"}), json!({"host": "test"})),
            (json!({"host": "*.test:8443"}), json!({"host": "shop.test:80"})),
            (json!({"path": "/hook/*"}), json!({"path": "/hook"})),
            (json!({"path": "/hook/a"}), json!({"path": "/hook/a?x=2"})),
            (json!({"path": "/hook/*?*x=1"}), json!({"path": "/HOOK/a"})),
            (
                json!({"match_headers": {"x-kind": "paid*"}}),
                json!({"match_headers": {"x-no": "*"}}),
            ),
        ] {
            assert!(matches(yes.clone()), "{yes}");
            assert!(!matches(no.clone()), "{no}");
        }
    }
}
