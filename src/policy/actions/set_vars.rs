//! `set-vars`: give names to values, for later rules of the phase.

use serde_json::Value;

use super::super::action::Action;
use super::super::config::Config;
use super::super::problem::{Place, code};
use super::super::template::Tree;

/// How many variables one action may set.
const COUNT: usize = 32;

/// Sets variables, in order.
#[derive(Debug)]
pub struct SetVars {
    /// Names and values. A value that is one expression alone keeps its type.
    pub vars: Vec<(String, Tree)>,
}

impl Action for SetVars {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    let entries = config.entries("vars", 1..=usize::MAX);
    if entries.len() > COUNT {
        config.refuse("vars", code::VARIABLE_COUNT, format!("more than {COUNT} variables"));
        return Box::new(SetVars { vars: Vec::new() });
    }
    let vars = entries.iter().filter_map(|(place, entry)| variable(config, place, entry));
    Box::new(SetVars { vars: vars.collect() })
}

fn variable(config: &mut Config<'_>, place: &Place, entry: &Value) -> Option<(String, Tree)> {
    let mut fields = entry.as_object().into_iter().flatten();
    let (Some((name, value)), None) = (fields.next(), fields.next()) else {
        config.refuse_at(place, code::VARIABLE_SHAPE, "a variable is a map with one entry");
        return None;
    };
    let place = place.field(name);
    if !is_name(name) {
        config.refuse_at(&place, code::VARIABLE_SHAPE, "not a name that expressions can use");
    }
    Some((name.clone(), config.checker().tree(&place, value, code::VARIABLE_DEPTH)))
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
