//! Stored addresses that this version refuses: an earlier one may have accepted them.

use serde_json::Value;

use ginnel_api::mask::MASK;
use ginnel_api::remote::{backends, event_destinations};
use ginnel_base::address::{AddressError, HostPort, WebUrl};

use super::edges::for_each_item;
use super::finding::Finding;

/// The number of items that are fetched at once.
const PAGE_ITEMS: i64 = 100;

/// Examines the addresses of all static backends and event destinations that the management API lists.
pub(super) fn examine_addresses(url: &str) -> Vec<Finding> {
    let mut refused = Vec::new();
    match collect_refused(url, &mut refused) {
        Ok(0) => Vec::new(),
        Ok(number) if refused.is_empty() => {
            vec![Finding::ok("addresses", format!("all {number} stored addresses are valid"))]
        }
        Ok(_) => refused,
        Err(problem) => {
            vec![Finding::warning("addresses", format!("cannot be listed: {problem}"))]
        }
    }
}

/// Adds a finding for each address that is refused; returns the number of addresses.
fn collect_refused(url: &str, refused: &mut Vec<Finding>) -> Result<usize, String> {
    let limit = Some(PAGE_ITEMS);
    let mut number = 0;
    let mut examine = |owner: &Value| {
        if let Some((address, problem)) = address_of(owner) {
            number += 1;
            refused.extend(problem.map(|problem| address_finding(owner, address, &problem)));
        }
        true
    };
    for_each_item(url, |before_id| backends::static_::List { before_id, limit }, &mut examine)?;
    for_each_item(url, |before_id| event_destinations::List { before_id, limit }, &mut examine)?;
    Ok(number)
}

/// The address of a backend or a destination, with the reason if it is refused.
fn address_of(owner: &Value) -> Option<(&str, Option<AddressError>)> {
    if let Some(address) = owner["address"].as_str() {
        return Some((address, HostPort::parse(address).err()));
    }
    let url = ["webhook", "otlp"].iter().find_map(|kind| owner["target"][kind]["url"].as_str())?;
    Some((url, WebUrl::parse(url).err()))
}

fn address_finding(owner: &Value, address: &str, problem: &AddressError) -> Finding {
    let id = owner["id"].as_str().unwrap_or_default();
    let effect = match owner["target"].is_null() {
        true => "visitors get a 503 until then",
        false => "no events are delivered until then",
    };
    Finding::problem("addresses", format!("{:?} of {id} {problem}", place_of(address)))
        .with_remedy(format!("correct the address; {effect}"))
}

/// Returns an address without its login, its path and its query, which are the secrets of some receivers of events.
fn place_of(address: &str) -> String {
    let scheme_end = address.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = address.split_at(scheme_end);
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let host = rest.get(..end).unwrap_or_default();
    let (login, place) = host.rsplit_once('@').unwrap_or(("", host));
    // The password of a malformed address may contain a slash.
    let is_in_login = login.is_empty() && host.contains(':') && rest.contains('@');
    format!("{scheme}{}", if is_in_login { MASK } else { place })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_is_found_in_each_of_its_places() {
        for (owner, is_refused) in [
            (json!({"id": "a", "address": "127.1:80"}), Some(true)),
            (json!({"id": "a", "address": "127.0.0.1:80"}), Some(false)),
            (json!({"target": {"webhook": {"url": "http://0x7f.1/"}}}), Some(true)),
            (json!({"target": {"otlp": {"url": "https://a.test/v1/logs"}}}), Some(false)),
            (json!({"target": {"file": {"name": "events"}}}), None),
        ] {
            let found = address_of(&owner).map(|(_, problem)| problem.is_some());

            assert_eq!(found, is_refused, "{owner}");
        }
    }

    #[test]
    fn a_finding_contains_only_the_identifier_the_scheme_and_the_host() {
        for (address, expected) in [
            ("https://chat.1/services/T0/swordfish", "https://chat.1"),
            ("https://chat.1?swordfish", "https://chat.1"),
            ("https://ada:swordfish@chat.1:443/x", "https://chat.1:443"),
            ("https://ada:12/swordfish@chat.1/x", "https://••••••"),
            ("https:\\\\chat.1/swordfish", "https:"),
            ("https://chat.1/@swordfish", "https://chat.1"),
            ("127.1:80", "127.1:80"),
            ("", ""),
        ] {
            let owner = json!({"id": "evd_1", "target": {"webhook": {"url": address}}});

            let found = address_finding(&owner, address, &AddressError::Number);

            let start = format!("{expected:?} of evd_1 is not");
            assert!(found.message.starts_with(&start), "{}", found.message);
            assert!(!format!("{found:?}").contains("swordfish"));
        }
    }
}
