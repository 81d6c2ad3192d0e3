//! Which requests a rule is for.

use std::collections::BTreeMap;

use serde::Deserialize;

use ginnel_api::local::match_fields::match_fields;
use ginnel_api::mask;
use ginnel_base::address::HostName;
use ginnel_http1::{after_first_line, fields_in};

use super::pattern::{TargetPattern, TextPattern};
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
        /// The conditions of a rule as they are written. An empty one matches any request.
        #[derive(Debug, Default, Deserialize)]
        #[serde(default)]
        struct MatchFields {
            $( $(#[doc = $doc])+ $name: $type, )*
        }
    };
}

match_fields!(declare);

/// The conditions of a rule.
#[derive(Debug, Deserialize)]
#[serde(from = "MatchFields")]
pub(super) struct RequestMatcher {
    host: TextPattern,
    target: TargetPattern,
    query: Vec<(String, TextPattern)>,
    headers: Vec<(String, TextPattern)>,
    fields: MatchFields,
}

impl From<MatchFields> for RequestMatcher {
    fn from(fields: MatchFields) -> Self {
        let patterns = |map: &BTreeMap<String, String>| {
            let pattern =
                |(name, value): (&String, &String)| (name.clone(), TextPattern::of_text(value));
            map.iter().map(pattern).collect()
        };
        Self {
            host: TextPattern::of_text(&fields.host.to_ascii_lowercase()),
            target: TargetPattern::new(&fields.path),
            query: patterns(&fields.match_query),
            headers: patterns(&fields.match_headers),
            fields,
        }
    }
}

impl RequestMatcher {
    /// What is wrong with it: values that no request has.
    pub fn find_problems(&self) -> Vec<String> {
        let MatchFields { method, path, host, match_headers, match_query, .. } = &self.fields;
        let mut problems = Vec::new();
        if !method.bytes().all(is_token) {
            problems.push(format!("method: {method:?} is not a method"));
        }
        let is_path = path.is_empty() || path.starts_with(['/', '*']);
        if !is_path {
            problems.push(format!("path: {path:?} is not a path, which begins with / or *"));
        } else if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            let problem =
                "is not a path: it has blanks or control characters; write a blank as %20";
            problems.push(format!("path: {path:?} {problem}"));
        }
        if host.contains(['/', ' ']) {
            problems.push(format!("host: {:?} is not a host", mask::url(host)));
        }
        for name in match_headers.keys() {
            if name.is_empty() || !name.bytes().all(is_token) {
                problems.push(format!("match_headers: {name:?} is not a name"));
            }
        }
        if match_query.contains_key("") {
            problems.push("match_query: a parameter has no name".to_owned());
        }
        problems
    }

    pub fn matches_request(&self, request: &RequestView<'_>) -> bool {
        let is_any_or = |text: &str, matches: &dyn Fn() -> bool| text.is_empty() || matches();
        let MatchFields { tunnel_name, method, path, host, .. } = &self.fields;
        is_any_or(tunnel_name, &|| tunnel_name == request.tunnel_name)
            && is_any_or(method, &|| method.eq_ignore_ascii_case(request.method()))
            && is_any_or(host, &|| self.matches_host(request.host))
            && is_any_or(path, &|| self.target.matches_target(request.target))
            && (self.query.is_empty() || self.matches_query(request.query()))
            && self.headers.iter().all(|(name, pattern)| {
                request.header_values(name).any(|value| pattern.matches_text(value))
            })
    }

    fn matches_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
        [name, &host].iter().any(|host| self.host.matches_text(host))
    }

    fn matches_query(&self, query: &str) -> bool {
        let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).collect();
        self.query.iter().all(|(name, pattern)| {
            pairs.iter().any(|(known, value)| known == name && pattern.matches_text(value))
        })
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
            (json!({"match_query": {"": "*"}}), "match_query: a parameter has no name"),
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
            (json!({"match_query": {"x": "1"}}), json!({"match_query": {"x": "1", "y": "*"}})),
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
