//! `url-rewrite`: change the URL of a request.

use super::super::action::Action;
use super::super::config::Config;
use super::super::problem::code;
use super::super::template::{Pattern, Template};

/// Rewrites the URL of a request before it is forwarded.
#[derive(Debug)]
pub struct UrlRewrite {
    /// What is changed.
    pub change: Change,
}

/// What becomes of a URL.
///
/// Traffic policy sheet, section 4.
#[derive(Debug)]
pub struct Change {
    /// What is replaced, wherever it occurs; the whole URL when absent.
    pub from: Option<Pattern>,
    /// What it is replaced with; `$1` is the first group.
    pub to: Template,
    /// What else a dollar sign may introduce.
    pub format: Format,
}

/// What a dollar sign may introduce in a [`Change`], other than a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Nothing.
    Plain,
    /// A variable such as `$args`, in `from` as well.
    Nginx,
}

impl Action for UrlRewrite {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(UrlRewrite { change: parse_change(config) })
}

/// Reads the fields that say what becomes of a URL.
pub(super) fn parse_change(config: &mut Config<'_>) -> Change {
    let words = [("ngrok", Format::Plain), ("nginx", Format::Nginx)];
    let format = config.choice("format", code::CHOICE, &words).unwrap_or(Format::Plain);
    let from = match format {
        Format::Nginx if has_variable(config) => config.template("from").map(Pattern::Computed),
        _ => config.pattern("from"),
    };
    Change { from, to: config.required_template("to"), format }
}

/// Whether a variable can occur in `from`, which is then no pattern yet.
fn has_variable(config: &mut Config<'_>) -> bool {
    let from = config.value("from").and_then(|from| from.as_str()).unwrap_or_default();
    let mut pairs = from.bytes().zip(from.bytes().skip(1));
    pairs.any(|(first, second)| first == b'$' && second.is_ascii_alphabetic())
}
