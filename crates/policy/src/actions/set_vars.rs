//! `set-vars`: give names to values, for later rules of the phase.

use cel::Value as Evaluated;
use serde_json::Value;

use super::super::action_error::failure;
use super::super::problem::DocumentPath;
use super::super::template::Tree;
use super::prelude::*;

/// How many variables one action may set.
const COUNT: usize = 32;

/// How large a variable may become, in bytes.
const SIZE: usize = 256 << 10;

/// Sets variables, in order.
#[derive(Debug)]
pub struct SetVars {
    /// Names and values. A value that is one expression alone keeps its type.
    pub vars: Vec<(String, Tree)>,
}

impl Action for SetVars {
    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        for (name, tree) in &self.vars {
            let value = tree.to_value(&turn.facts())?;
            if memory_size(&value) > SIZE {
                let message = format!("vars.{name} would hold more than {SIZE} bytes");
                return Err(ActionError::fatal(failure::VARIABLE, message));
            }
            turn.exchange.record.vars.insert(name.clone(), value);
        }
        Ok(Flow::Continue)
    }
}

/// Roughly how much memory a value takes, in bytes.
fn memory_size(value: &Evaluated) -> usize {
    32 + match value {
        Evaluated::String(text) => text.len(),
        Evaluated::Bytes(bytes) => bytes.len(),
        Evaluated::List(entries) => entries.iter().map(memory_size).sum(),
        Evaluated::Map(fields) => fields.map.values().map(memory_size).sum(),
        _ => 0,
    }
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    let place = config.place().field("vars");
    let vars = match config.field_value("vars") {
        Some(Value::Object(fields)) => {
            let named =
                |(name, value): (&String, &Value)| (place.clone(), name.clone(), value.clone());
            fields.iter().map(named).collect()
        }
        _ => read_variable_list(config),
    };
    if vars.len() > COUNT {
        config.record_problem("vars", code::VARIABLE_COUNT, format!("more than {COUNT} variables"));
        return Box::new(SetVars { vars: Vec::new() });
    }
    let vars =
        vars.into_iter().map(|(place, name, value)| read_variable(config, &place, name, &value));
    Box::new(SetVars { vars: vars.collect() })
}

/// The variables of a list of maps, with their places.
fn read_variable_list(config: &mut Config<'_>) -> Vec<(DocumentPath, String, Value)> {
    let mut vars = Vec::new();
    for (place, entry) in config.list_entries("vars", 1..=usize::MAX) {
        let mut fields = entry.as_object().into_iter().flatten();
        match (fields.next(), fields.next()) {
            (Some((name, value)), None) => vars.push((place, name.clone(), value.clone())),
            _ => config.record_problem_at(
                &place,
                code::VARIABLE_SHAPE,
                "a variable is a map with one entry",
            ),
        }
    }
    vars
}

fn read_variable(
    config: &mut Config<'_>,
    place: &DocumentPath,
    name: String,
    value: &Value,
) -> (String, Tree) {
    let place = place.field(&name);
    if !is_name(&name) {
        config.record_problem_at(
            &place,
            code::VARIABLE_SHAPE,
            "not a name that expressions can use",
        );
    }
    let tree = config.checker().compile_tree(&place, value, code::VARIABLE_DEPTH);
    (name, tree)
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
