//! `redirect`: send the visitor to another URL.

use super::super::action::Action;
use super::super::config::Config;
use super::super::headers;
use super::super::template::Template;
use super::url_rewrite::{Change, parse_change};

/// Redirects a request whose URL the change affects; others go on.
#[derive(Debug)]
pub struct Redirect {
    /// What becomes of the URL.
    pub change: Change,
    /// The status of the answer; 302 unless given.
    pub status_code: u16,
    /// Headers by lower-case name.
    pub headers: Vec<(String, Template)>,
}

impl Action for Redirect {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(Redirect {
        change: parse_change(config),
        status_code: config.status("status_code", 302, 300..=399),
        headers: headers::map(config, "headers", 0..=10),
    })
}
