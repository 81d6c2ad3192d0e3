//! Which names need a certificate.

use std::collections::BTreeSet;

use ginnel_api::remote::reserved_domains::ReservedDomain;
use ginnel_gateway::Gateway;
use ginnel_store::{StoreResult, View};

/// What no public authority signs for: names that only one machine or network knows (RFC 6761, 6762).
const PRIVATE: [&str; 4] = [".internal", ".local", ".localhost", ".onion"];

/// The names that need a certificate and have no other: those of edges and of agents' endpoints on the
/// HTTPS port, here and at other nodes, reserved domains, and the service's own.
pub(super) fn needed_names(
    view: &View<'_>,
    gateway: &Gateway,
    other_nodes: Vec<String>,
    own: Option<&str>,
) -> StoreResult<BTreeSet<String>> {
    let mut names: BTreeSet<String> = gateway.https_names().into_iter().collect();
    names.extend(other_nodes);
    names.extend(own.map(str::to_ascii_lowercase));
    names.extend(
        view.all_documents::<ReservedDomain>()?.into_iter().filter_map(|domain| domain.domain),
    );
    names.retain(|name| {
        is_public(name) && !gateway.authority().has_other(name) && !gateway.passes_tls(name)
    });
    Ok(names)
}

/// Whether an authority may sign for a name without being asked over DNS.
fn is_public(name: &str) -> bool {
    let labels = || name.split('.');
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    // The last label of an address is a number.
    let is_address = labels().next_back().is_some_and(|it| it.bytes().all(|b| b.is_ascii_digit()));
    let is_private = PRIVATE.iter().any(|suffix| name.ends_with(suffix));
    labels().count() > 1 && labels().all(is_label) && !is_address && !is_private
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_public_dns_are_ordered() {
        for name in ["a.test", "x.y.example.com", "xn--bcher-kva.example"] {
            assert!(is_public(name), "{name}");
        }
        for name in [
            "localhost",
            "a.localhost",
            "printer.local",
            "api.internal",
            "127.0.0.1",
            "[::1]",
            "*.a.test",
            "a_b.test",
            "-a.test",
            "a..test",
        ] {
            assert!(!is_public(name), "{name}");
        }
    }
}
