//! `close-connection`: drop the connection without an answer.

use super::super::action::Action;
use super::super::config::Config;

/// Drops the TCP connection, with all other requests on it.
#[derive(Debug)]
pub struct CloseConnection;

impl Action for CloseConnection {}

pub(in super::super) fn parse(_: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(CloseConnection)
}
