//! `add-headers`: append headers to a request or a response.

use super::super::action::Action;
use super::super::config::Config;
use super::super::headers;
use super::super::template::Template;

/// Appends headers; `host` is replaced instead.
#[derive(Debug)]
pub struct AddHeaders {
    /// Headers by lower-case name.
    pub headers: Vec<(String, Template)>,
}

impl Action for AddHeaders {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    let added = headers::map(config, "headers", 1..=10);
    headers::refuse_user_agent(config, "headers", added.iter().map(|(name, _)| name));
    Box::new(AddHeaders { headers: added })
}
