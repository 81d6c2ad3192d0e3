//! `deny`: answer with a status and no body, or close the connection.

use http::StatusCode;

use super::super::Phase;
use super::super::config::FINAL_STATUS;
use super::prelude::*;

/// Turns the visitor away.
#[derive(Debug)]
pub struct Deny {
    /// The status of the answer; 403 unless given. A TCP connection is closed without one.
    pub status_code: u16,
}

impl Action for Deny {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        if turn.phase == Phase::Connect {
            return Ok(Flow::End(Verdict::Close));
        }
        // The configuration allows only such numbers.
        let status = StatusCode::from_u16(self.status_code).unwrap_or(StatusCode::FORBIDDEN);
        Ok(Flow::End(Verdict::Respond(LocalResponse::empty(status))))
    }
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(Deny { status_code: config.status_field(403, FINAL_STATUS) })
}
