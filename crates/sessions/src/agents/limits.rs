//! How much an agent may say of itself and of its tunnels: the database, other nodes and readers of the
//! management API get all of it.

use ginnel_api::remote::backends::tunnel_group::{MAX_LABEL_BYTES, MOST_LABELS};
use ginnel_api::{Description, Metadata};
use ginnel_mux::protocol::message::{Auth, Bind, BindLabeled};

/// The longest text that agents say, beside metadata, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Says what of a login is too long.
pub(super) fn check_login(auth: &Auth) -> Result<(), String> {
    let said = &auth.extra;
    check_length("client_id", &auth.client_id, MAX_TEXT_BYTES)?;
    check_length("metadata", &said.metadata, Metadata::MAX)?;
    check_length("version", &said.version, MAX_TEXT_BYTES)?;
    check_length("os", &said.os, MAX_TEXT_BYTES)?;
    for (what, error) in [
        ("stop_unsupported_error", &said.stop_unsupported_error),
        ("restart_unsupported_error", &said.restart_unsupported_error),
        ("update_unsupported_error", &said.update_unsupported_error),
    ] {
        check_length(what, error.as_deref().unwrap_or_default(), MAX_TEXT_BYTES)?;
    }
    Ok(())
}

/// Says what of a bind is too long.
pub(super) fn check_bind(bind: &Bind) -> Result<(), String> {
    check_length("id", &bind.id, MAX_TEXT_BYTES)?;
    check_length("metadata", &bind.extra.metadata, Metadata::MAX)?;
    check_length("description", &bind.extra.description, Description::MAX)?;
    check_length("forwards_to", &bind.forwards_to, MAX_TEXT_BYTES)
}

/// Says what of a bind with labels is too long, or too much.
pub(super) fn check_labeled(bind: &BindLabeled) -> Result<(), String> {
    check_length("metadata", &bind.metadata, Metadata::MAX)?;
    check_length("forwards_to", &bind.forwards_to, MAX_TEXT_BYTES)?;
    if bind.labels.len() > MOST_LABELS {
        let count = bind.labels.len();
        return Err(format!("labels: has {count} entries, the limit is {MOST_LABELS}"));
    }
    for text in bind.labels.iter().flat_map(|(key, value)| [key, value]) {
        check_length("labels", text, MAX_LABEL_BYTES)?;
    }
    Ok(())
}

fn check_length(what: &str, text: &str, most: usize) -> Result<(), String> {
    match text.len() {
        length if length > most => Err(format!("{what}: has {length} bytes, the limit is {most}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_says_has_a_limit() {
        let mut bind = Bind { forwards_to: "f".repeat(1024), ..Bind::default() };
        bind.extra.metadata = "m".repeat(4096);
        assert_eq!(check_bind(&bind), Ok(()));
        bind.extra.metadata.push('m');
        let problem = "metadata: has 4097 bytes, the limit is 4096";
        assert_eq!(check_bind(&bind), Err(problem.to_owned()));
        bind.extra.metadata.clear();
        bind.extra.description = "d".repeat(256);
        let problem = "description: has 256 bytes, the limit is 255";
        assert_eq!(check_bind(&bind), Err(problem.to_owned()));

        let labels = |count| (0..count).map(|number| (format!("k{number}"), "v".repeat(255)));
        let mut bind = BindLabeled { labels: labels(32).collect(), ..BindLabeled::default() };
        assert_eq!(check_labeled(&bind), Ok(()));
        bind.labels = labels(33).collect();
        let problem = "labels: has 33 entries, the limit is 32";
        assert_eq!(check_labeled(&bind), Err(problem.to_owned()));
        bind.labels = [("k".to_owned(), "v".repeat(256))].into();
        let problem = "labels: has 256 bytes, the limit is 255";
        assert_eq!(check_labeled(&bind), Err(problem.to_owned()));
    }
}
