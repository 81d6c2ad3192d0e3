//! `deny`: answer with a status and no body, or close the connection.

use super::super::action::Action;
use super::super::config::Config;

/// Turns the visitor away.
#[derive(Debug)]
pub struct Deny {
    /// The status of the answer; 403 unless given. A TCP connection is closed without one.
    pub status_code: u16,
}

impl Action for Deny {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(Deny { status_code: config.status("status_code", 403, 100..=599) })
}
