//! `close-connection`: drop the connection without an answer.

use super::prelude::*;

/// Drops the TCP connection, with all other requests on it.
#[derive(Debug)]
pub struct CloseConnection;

impl Action for CloseConnection {
    fn run(&self, _: &mut Turn<'_>) -> ActionResult<Flow> {
        Ok(Flow::End(Verdict::Close))
    }
}

pub(in super::super) fn parse_config(_: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(CloseConnection)
}
