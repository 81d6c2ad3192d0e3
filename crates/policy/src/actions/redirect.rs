//! `redirect`: send the visitor to another URL.

use http::header::LOCATION;
use http::{HeaderMap, StatusCode};

use super::super::headers::{self, HeaderTemplate};
use super::change::UrlRewriteRule;
use super::prelude::*;

/// Redirects a request whose URL the change affects; others go on.
#[derive(Debug)]
pub struct Redirect {
    /// What becomes of the URL.
    pub change: UrlRewriteRule,
    /// The status of the answer; 302 unless given.
    pub status_code: u16,
    /// Headers.
    pub headers: Vec<HeaderTemplate>,
}

impl Action for Redirect {
    fn result_of_path(&self, turn: &Turn<'_>) -> Option<bool> {
        self.change.rewrite_url(turn).map(|changed| changed.is_change).ok()
    }

    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let changed = self.change.rewrite_url(turn)?;
        turn.set_result(changed.result_json());
        if !changed.is_change {
            return Ok(Flow::Continue);
        }
        let location = changed.location_header()?;
        let mut headers: HeaderMap =
            headers::render_headers(&self.headers, turn)?.into_iter().collect();
        headers.insert(LOCATION, location);
        // The configuration allows only such numbers.
        let status = StatusCode::from_u16(self.status_code).unwrap_or(StatusCode::FOUND);
        Ok(Flow::End(Verdict::Respond(LocalResponse { headers, ..LocalResponse::empty(status) })))
    }
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(Redirect {
        change: UrlRewriteRule::from_config(config),
        status_code: config.status_field(302, 300..=399),
        headers: headers::read_header_map(config, "headers", 0..=10),
    })
}
