//! `close-connection`: drop the connection without an answer.

use super::super::action::Action;
use super::super::action_error::ActionError;
use super::super::config::Config;
use super::super::turn::{Flow, Turn};
use super::super::verdict::Verdict;

/// Drops the TCP connection, with all other requests on it.
#[derive(Debug)]
pub struct CloseConnection;

impl Action for CloseConnection {
    fn run(&self, _: &mut Turn<'_>) -> Result<Flow, ActionError> {
        Ok(Flow::End(Verdict::Close))
    }
}

pub(in super::super) fn parse_config(_: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(CloseConnection)
}
