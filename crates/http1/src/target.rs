//! The targets of requests that a URI cannot hold.

use http::{Extensions, Uri};

/// The path and the query of a request as they came, if [`Uri`] cannot hold them: an extension of the
/// request, whose URI has the same with more escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawTarget(pub String);

/// Reads the target of a request. The second value is forwarded instead of the URI, if they differ.
pub fn read_target(target: &str) -> Option<(Uri, Option<RawTarget>)> {
    if let Ok(uri) = target.parse() {
        return Some((uri, None));
    }
    let target = target.split('#').next().unwrap_or_default();
    let uri = escape_target(target).parse().ok()?;
    let raw =
        if target.starts_with('/') { target.to_owned() } else { path_after_authority(target)? };
    Some((uri, Some(RawTarget(raw))))
}

/// The path and the query of a request as they came.
pub fn request_target<'r>(uri: &'r Uri, extensions: &'r Extensions) -> &'r str {
    match extensions.get::<RawTarget>() {
        Some(RawTarget(target)) => target,
        None => uri.path_and_query().map_or("/", |target| target.as_str()),
    }
}

/// The query of a request as it came, if it has one.
pub fn request_query<'r>(uri: &'r Uri, extensions: &'r Extensions) -> Option<&'r str> {
    match extensions.get::<RawTarget>() {
        Some(RawTarget(target)) => target.split_once('?').map(|(_, query)| query),
        None => uri.query(),
    }
}

/// The target with an escape for each byte that clients send as it is and a URI cannot hold there.
fn escape_target(target: &str) -> String {
    let (path, query) = target.split_once('?').map_or((target, None), |(p, q)| (p, Some(q)));
    let path = path.replace('`', "%60");
    match query {
        Some(query) => format!("{path}?{}", query.replace('"', "%22")),
        None => path,
    }
}

/// Path and query of a target in absolute form (RFC 9112, section 3.2.2).
fn path_after_authority(target: &str) -> Option<String> {
    let (_, rest) = target.split_once("://")?;
    let rest = rest.get(rest.find(['/', '?'])?..)?;
    Some(if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_target_stays_as_it_came() {
        for (target, uri) in [
            ("/q?name=\"ada\"", "/q?name=%22ada%22"),
            ("/a`b?c`d\"", "/a%60b?c`d%22"),
            ("/a|b/{c}^\"?d=[]|{}^", "/a|b/{c}^\"?d=[]|{}^"),
            ("/é?q=東", "/é?q=東"),
            ("/é?q=\"東\"", "/é?q=%22東%22"),
            ("/%zz?100%", "/%zz?100%"),
        ] {
            let (read, raw) = read_target(target).unwrap();
            assert_eq!(read.to_string(), uri, "{target}");
            assert_eq!(raw.is_some(), uri != target, "{target}");
            let mut extensions = Extensions::new();
            raw.map(|raw| extensions.insert(raw));
            assert_eq!(request_target(&read, &extensions), target);
            assert_eq!(request_query(&read, &extensions), target.split_once('?').map(|it| it.1));
        }
        for target in ["/<", "/a b", "/\u{7f}", "/?<", "x"] {
            assert!(read_target(target).is_none_or(|(_, raw)| raw.is_none()), "{target}");
        }
    }

    #[test]
    fn a_target_in_absolute_form_has_a_path() {
        for (target, raw) in [
            ("http://a.test/q?\"", "/q?\""),
            ("http://a.test?\"", "/?\""),
            ("http://a.test/`#x\"", "/`"),
        ] {
            assert_eq!(read_target(target).unwrap().1, Some(RawTarget(raw.to_owned())), "{target}");
        }
    }
}
