//! The targets of requests, also those that a URI cannot hold.

use http::Extensions;

use crate::http1::{query_of, read_target, target_of};
use crate::policy::path::RequestPath;

/// A target is forwarded as it came, and rules look at the same path and query.
pub fn target(data: &[u8]) {
    let Ok(target) = std::str::from_utf8(data) else { return };
    let Some((uri, raw)) = read_target(target) else { return };
    let is_raw = raw.is_some();
    let mut extensions = Extensions::new();
    raw.map(|raw| extensions.insert(raw));
    let (sent, query) = (target_of(&uri, &extensions), query_of(&uri, &extensions));
    if !target.starts_with('/') {
        return;
    }
    let whole = target.split('#').next().unwrap_or_default();
    assert_eq!(sent, whole, "the target changes");
    let (path, own_query) = whole.split_once('?').map_or((whole, None), |it| (it.0, Some(it.1)));
    assert_eq!(query, own_query, "the query changes");
    let (seen, own) = (RequestPath::new(uri.path()), RequestPath::new(path));
    assert_eq!(seen.normal(), own.normal(), "rules look at another path");
    assert_eq!(seen.ambiguity(), own.ambiguity());
    assert!(seen.raw() == path || is_raw, "a path changes without a reason");
}
