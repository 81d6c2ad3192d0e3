//! Static backends over TLS whose certificates are not verified.

use serde::Deserialize;

use ginnel_api::remote::backends::static_::{List, StaticBackend};

use super::edges::for_each_item;
use super::finding::Finding;

/// The number of items that are fetched at once.
const PAGE_ITEMS: i64 = 100;

/// Examines the static backends that the management API lists.
pub(super) fn examine_backends(url: &str) -> Option<Finding> {
    let mut backends: Vec<StaticBackend> = Vec::new();
    let limit = Some(PAGE_ITEMS);
    let listed = for_each_item(url, |before_id| List { before_id, limit }, &mut |backend| {
        let backend = StaticBackend::deserialize(backend).ok();
        backends.extend(backend.filter(StaticBackend::has_tls));
        true
    });
    if let Err(problem) = listed {
        return Some(Finding::warning("backends", format!("cannot be listed: {problem}")));
    }
    if backends.is_empty() {
        return None;
    }
    Some(unverified_names(&backends).map_or_else(
        || {
            let number = backends.len();
            let message = format!("the certificates of all {number} static backends are verified");
            Finding::ok("backends", message)
        },
        |names| unverified_warning(&names),
    ))
}

/// Returns the names of backends whose certificates are not verified, if there are any.
pub(super) fn unverified_names(backends: &[StaticBackend]) -> Option<Vec<String>> {
    let unverified = backends.iter().filter(|backend| backend.is_unverified());
    let names: Vec<_> = unverified.map(StaticBackend::display_name).collect();
    (!names.is_empty()).then_some(names)
}

/// The warning about static backends whose certificates are not verified.
pub(super) fn unverified_warning(unverified: &[String]) -> Finding {
    let listed = unverified.join(", ");
    let message = format!("the certificates of static backends are not verified: {listed}");
    let remedy = "set tls.verify to true, and tls.ca if no authority of the system has signed the certificate";
    Finding::warning("backends", message).with_remedy(remedy)
}
