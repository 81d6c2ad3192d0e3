//! `forward-internal`: hand the traffic to another endpoint of this server.

use super::super::Phase;
use super::super::action::Action;
use super::super::config::Config;
use super::super::problem::code;
use super::super::template::Template;
use super::super::url::Url;

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
    fn always_ends(&self) -> bool {
        self.on_error == OnError::Halt
    }
}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    let words = [("halt", OnError::Halt), ("continue", OnError::Continue)];
    Box::new(ForwardInternal {
        url: url(config),
        on_error: config.choice("on_error", code::CHOICE, &words).unwrap_or(OnError::Halt),
    })
}

fn url(config: &mut Config<'_>) -> Template {
    let template = config.required_template("url");
    let schemes: &[&str] =
        if config.phase() == Phase::Connect { &["tcp", "tls"] } else { &["http", "https"] };
    if let Some(fixed) = template.fixed().filter(|url| !url.is_empty()) {
        let url = Url::parse(fixed);
        if !url.is_some_and(|url| schemes.contains(&url.scheme) && is_internal(url.host)) {
            let schemes = schemes.join(" or ");
            let message = format!("url must be {schemes} with a host that ends in .internal");
            config.refuse("url", code::URL, message);
        }
    }
    template
}

fn is_internal(host: &str) -> bool {
    host.to_ascii_lowercase().strip_suffix(".internal").is_some_and(|name| !name.is_empty())
}
