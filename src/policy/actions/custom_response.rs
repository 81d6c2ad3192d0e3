//! `custom-response`: answer with what the document says.

use super::super::action::Action;
use super::super::config::Config;
use super::super::headers;
use super::super::problem::code;
use super::super::template::Template;

/// Answers a request, or replaces a response.
#[derive(Debug)]
pub struct CustomResponse {
    /// The status of the answer; 200 unless given.
    pub status_code: u16,
    /// The body; empty unless given.
    pub body: Template,
    /// Headers by lower-case name. Without a `content-type` it is guessed from the body.
    pub headers: Vec<(String, Template)>,
}

impl Action for CustomResponse {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(CustomResponse {
        status_code: config.status("status_code", 200, 100..=599),
        body: body(config),
        headers: headers::map(config, "headers", 0..=10),
    })
}

/// The body, which was called `content` before.
fn body(config: &mut Config<'_>) -> Template {
    let (body, content) = (config.template("body"), config.template("content"));
    if body.is_some() && content.is_some() {
        config.refuse("content", code::DUPLICATE, "content is the older name of body");
    }
    body.or(content).unwrap_or_default()
}
