//! `forward-internal`: hand the traffic to another endpoint of this server.

use serde_json::json;

use ginnel_api::mask;
use ginnel_base::address::{AddressError, Authority};

use super::super::Phase;
use super::super::internal_address;
use super::prelude::*;

/// Hands a request or a connection to an endpoint that only this server can reach.
#[derive(Debug)]
pub struct ForwardInternal {
    /// Where to; the host ends in `.internal`.
    pub url: Template,
    /// What happens when that fails.
    pub on_error: OnError,
}

/// What happens when an action fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The visitor gets an error.
    Halt,
    /// The next action runs.
    Continue,
}

impl Action for ForwardInternal {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let url = turn.render(&self.url)?;
        if let Err(problem) = check_target(&url, turn.phase) {
            let message = format!("the url {:?} {problem}", mask::url(&url));
            let failure =
                ActionError { fatal: self.always_ends(), ..ActionError::fatal(code::URL, message) };
            return Err(failure);
        }
        turn.set_result(json!({"url": url}));
        Ok(Flow::End(Verdict::Forward { url }))
    }

    fn always_ends(&self) -> bool {
        self.on_error == OnError::Halt
    }
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    // There are no other endpoints that it could forward to.
    config.choice_field("binding", code::CHOICE, &[("internal", ())]);
    let words = [("halt", OnError::Halt), ("continue", OnError::Continue)];
    Box::new(ForwardInternal {
        url: read_url(config),
        on_error: config.choice_field("on_error", code::CHOICE, &words).unwrap_or(OnError::Halt),
    })
}

fn read_url(config: &mut Config<'_>) -> Template {
    let template = config.required_template("url");
    let schemes = allowed_schemes(config.phase());
    if let Some(fixed) = template.fixed_text().filter(|url| !url.is_empty())
        && let Err(problem) = check_target(fixed, config.phase())
    {
        let (schemes, shown) = (schemes.join(" or "), mask::url(fixed));
        let message = format!(
            "url must be {schemes} with a host that ends in .internal: {shown:?} {problem}"
        );
        config.record_problem("url", code::URL, message);
    }
    template
}

/// What the traffic of a phase can be forwarded as.
fn allowed_schemes(phase: Phase) -> &'static [&'static str] {
    if phase == Phase::Connect { &["tcp", "tls"] } else { &["http", "https"] }
}

/// Checks that traffic of a phase can be forwarded to a URL.
fn check_target(url: &str, phase: Phase) -> Result<(), String> {
    let (authority, rest) = Authority::split_url(url).map_err(|problem| problem.to_string())?;
    if rest.starts_with('\\') {
        return Err(AddressError::Blank.to_string());
    }
    let scheme = authority.scheme.name();
    if !allowed_schemes(phase).contains(&scheme) {
        return Err(format!("has the scheme {scheme}"));
    }
    internal_address::address_problem(&authority).map_or(Ok(()), Err)
}
