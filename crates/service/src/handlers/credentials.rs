//! Credentials: authtokens of agents, kept as API keys are.

use ginnel_api::remote::credentials::{Create, Credential, Update};
use ginnel_base::address::{HostPattern, HostPortPattern};

use crate::accounts;
use crate::handlers::prelude::*;

/// The longest entry of an access list, in bytes.
const LONGEST_ENTRY: usize = 512;
/// How many entries an access list has at most.
const MAX_ACL_ENTRIES: usize = 256;

resource! { Credential }

usual_handlers! { credentials }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let acl = check_acl(params.acl.unwrap_or_default())?;
    let caller = service.caller.clone();
    let create = service.write_resource(move |change| {
        let owner_id = accounts::resolve_owner(change, &caller, params.owner_id)?;
        let mut credential = new_item!(change, params => Credential {
            acl: Some(acl),
            owner_id: Some(owner_id.clone()),
        });
        change.put_document(&credential)?;
        credential.token = Some(accounts::issue_token(change, &credential.id, &owner_id)?);
        Ok(credential)
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let acl = params.acl.map(check_acl).transpose()?;
    let update = service.write_resource(move |change| {
        let mut credential = changed_item!(change, params => Credential { description, metadata });
        credential.acl = acl.or(credential.acl);
        stored(change, credential)
    });
    update.await
}

fn check_acl(acl: Vec<String>) -> Result<Vec<String>> {
    if acl.len() > MAX_ACL_ENTRIES {
        let message = format!("acl: has {} entries, the limit is {MAX_ACL_ENTRIES}", acl.len());
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    let read = acl.iter().enumerate().map(|(index, entry)| {
        acl_entry(entry).ok_or_else(|| {
            let shown: String = entry.chars().take(60).collect();
            let message = format!(
                "acl[{index}]: {shown:?} is neither * nor bind: with a domain, address or label"
            );
            Refusal::new(code::ACL_ENTRY, message)
        })
    });
    read.collect()
}

/// Parses `*`, or `bind:` and a domain, an address or a label (remote API sheet, section 6). Returns the entry with its
/// domain as endpoints have it: in lower case, and in the `xn--` form.
fn acl_entry(entry: &str) -> Option<String> {
    let Some(bound) = entry.strip_prefix("bind:") else {
        return (entry == "*").then(|| entry.to_owned());
    };
    if bound.len() > LONGEST_ENTRY {
        return None;
    }
    if let Some((key, value)) = bound.split_once('=') {
        let is_label = !key.is_empty() && !value.is_empty() && !value.contains('=');
        return is_label.then(|| entry.to_owned());
    }
    let place = HostPortPattern::parse(bound).map(|it| it.to_string());
    let host = || HostPattern::parse(bound).map(|it| it.to_string());
    if let Ok(normal) = place.or_else(|_| host()) {
        return Some(format!("bind:{normal}"));
    }
    let is_domain = match bound.rsplit_once(':') {
        Some((host, port)) => is_domain(host) && port.parse::<u16>().is_ok_and(|port| port > 0),
        None => is_domain(bound),
    };
    is_domain.then(|| entry.to_owned())
}

/// A host name, perhaps with `*` for everything below it.
fn is_domain(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    name.split('.').all(|label| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::acl_entry;

    #[test]
    fn access_lists_have_three_forms_and_a_star() {
        for good in ["*", "bind:a.example", "bind:*.example", "bind:1.tcp.x:2000", "bind:app=*"] {
            assert_eq!(acl_entry(good).as_deref(), Some(good));
        }
        for bad in ["", "bind:", "a.example", "bind:*", "bind:a..b", "bind:a:x", "bind:=v"] {
            assert_eq!(acl_entry(bad), None, "{bad}");
        }
    }

    #[test]
    fn domains_of_access_lists_have_one_form() {
        for (written, stored) in [
            ("bind:b\u{fc}cher.a.test", "bind:xn--bcher-kva.a.test"),
            ("bind:*.B\u{fc}cher.a.test", "bind:*.xn--bcher-kva.a.test"),
            ("bind:ABC.a.test", "bind:abc.a.test"),
            ("bind:a.test.", "bind:a.test"),
            ("bind:A.test:22", "bind:a.test:22"),
            ("bind:127.0.0.1", "bind:127.0.0.1"),
            ("bind:127.0.0.1:2000", "bind:127.0.0.1:2000"),
        ] {
            assert_eq!(acl_entry(written).as_deref(), Some(stored));
        }
    }
}
