//! Checks the requests of agents without a running service.

use ginnel_gateway::Gateway;
use ginnel_mux::protocol::message::{Bind, BindLabeled};

use super::{bind_request, limits};

/// Checks a bind in the way that a service does.
///
/// # Errors
/// If every service refuses it, whatever its settings and the rights of the agent are.
pub fn check_bind(bind: &Bind) -> Result<(), String> {
    limits::check_bind(bind)?;
    let asked = bind_request::decode_bind(bind).map_err(|refusal| refusal.0)?;
    Gateway::check_spec(asked.spec).map_err(|error| error.to_string())
}

/// Checks a bind with labels in the way that a service does.
///
/// # Errors
/// If every service refuses it.
pub fn check_labeled_bind(bind: &BindLabeled) -> Result<(), String> {
    limits::check_labeled(bind)?;
    bind_request::parse_app_protocol(&bind.forwards_proto).map(drop)
}

/// Returns the public address that a bind asks for, in words that are equal for equal addresses.
/// Gives `None` if the service chooses the address.
pub fn requested_address(bind: &Bind) -> Option<String> {
    let asked = bind_request::decode_bind(bind).ok()?;
    Gateway::requested_address(&asked.spec)
}
