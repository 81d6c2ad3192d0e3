//! `remove-headers`: remove headers from a request or a response.

use super::super::action::Action;
use super::super::config::Config;
use super::super::headers;

/// Removes all values of some headers.
#[derive(Debug)]
pub struct RemoveHeaders {
    /// Lower-case names.
    pub headers: Vec<String>,
}

impl Action for RemoveHeaders {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    let removed = headers::names(config, "headers", 1..=10);
    headers::refuse_user_agent(config, "headers", &removed);
    Box::new(RemoveHeaders { headers: removed })
}
