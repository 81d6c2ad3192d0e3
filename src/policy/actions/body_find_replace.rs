//! `request-body-find-replace` and `response-body-find-replace`: change a body.

use super::super::action::Action;
use super::super::config::Config;
use super::super::problem::code;
use super::super::template::{Pattern, Template};

/// Replaces what occurs in a body, which is held back for that.
#[derive(Debug)]
pub struct BodyFindReplace {
    /// What is replaced, in order.
    pub replacements: Vec<Replacement>,
}

/// One replacement in a body.
#[derive(Debug)]
pub struct Replacement {
    /// What is replaced, wherever it occurs.
    pub from: Pattern,
    /// What it is replaced with; `$1` is the first group.
    pub to: Template,
}

impl Action for BodyFindReplace {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    let mut replacements = Vec::new();
    for (place, entry) in config.entries("replacements", 1..=10) {
        let mut entry = config.inside(place, entry);
        replacements.extend(replacement(&mut entry));
        entry.close();
    }
    Box::new(BodyFindReplace { replacements })
}

fn replacement(config: &mut Config<'_>) -> Option<Replacement> {
    let source = config.required("from");
    if source.is_some_and(|source| source == "") {
        config.refuse("from", code::EMPTY, "from must not be empty");
    }
    let from = config.pattern("from");
    config.required("to");
    let to = config.template("to");
    Some(Replacement { from: from?, to: to? })
}
