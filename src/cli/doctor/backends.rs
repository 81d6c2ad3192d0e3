//! Static backends over TLS whose certificates are not verified.

use serde_json::Value;

use super::edges::each;
use super::finding::Finding;
use crate::api::remote::backends::static_::List;

/// The number of items that are fetched at once.
const PAGE_ITEMS: i64 = 100;

/// Examines the static backends that the management API lists.
pub(super) fn examine(url: &str) -> Option<Finding> {
    let (mut number, mut unverified) = (0, Vec::new());
    let limit = Some(PAGE_ITEMS);
    let listed = each(url, |before_id| List { before_id, limit }, &mut |backend| {
        if backend["tls"]["enabled"] == true {
            number += 1;
            unverified.extend((backend["tls"]["verify"] != true).then(|| name(backend)));
        }
        true
    });
    match listed {
        Err(problem) => Some(Finding::warning("backends", format!("cannot be listed: {problem}"))),
        Ok(()) if number == 0 => None,
        Ok(()) if unverified.is_empty() => {
            let message = format!("the certificates of all {number} static backends are verified");
            Some(Finding::ok("backends", message))
        }
        Ok(()) => Some(warn(&unverified)),
    }
}

/// The warning about static backends whose certificates are not verified.
pub(super) fn warn(unverified: &[String]) -> Finding {
    let listed = unverified.join(", ");
    let message = format!("the certificates of static backends are not verified: {listed}");
    let remedy = "set tls.verify to true, and tls.ca if no authority of the system has signed the certificate";
    Finding::warning("backends", message).remedy(remedy)
}

fn name(backend: &Value) -> String {
    let text = |field: &str| backend[field].as_str().unwrap_or_default();
    format!("{} ({})", text("id"), text("address"))
}
