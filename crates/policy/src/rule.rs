//! Rules: when, and then what.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::action::ActionStep;
use super::actions;
use super::checker::Checker;
use super::config::Config;
use super::expression::Expression;
use super::fields::{field_faults, find_field};
use super::head_change::RuleNotePair;
use super::problem::{DocumentPath, code};

/// The fields of a rule.
pub(super) const RULE_FIELDS: &[&str] = &["name", "expressions", "actions"];
/// The fields of an action.
pub(super) const ACTION_FIELDS: &[&str] = &["type", "config"];

/// How many expressions a rule may have, and how many actions.
const SIZE: usize = 20;

/// One rule of a phase.
#[derive(Debug)]
pub struct Rule {
    /// What its author calls it; may be empty.
    pub name: String,
    /// What must all be true for the actions to run.
    pub expressions: Vec<Expression>,
    /// True if an expression looks at the path of the request.
    pub(super) reads_path: bool,
    /// What is done then, in order.
    pub actions: Vec<ActionStep>,
    /// What agents learn of it, once one was.
    notes: OnceLock<RuleNotePair>,
}

impl Rule {
    /// Reads a rule; a rule that is not an object has nothing in it.
    pub(super) fn parse(checker: &mut Checker, place: &DocumentPath, value: &Value) -> Self {
        let nothing = Map::new();
        let fields = value.as_object().unwrap_or_else(|| {
            checker.record_problem(place, code::DOCUMENT, "a rule must be an object");
            &nothing
        });
        reject_unknown_fields(checker, place, fields, RULE_FIELDS);
        let name = read_name(checker, place, fields);
        let expressions = read_expressions(checker, &place.field("expressions"), fields);
        let rule = Self {
            name,
            reads_path: expressions.iter().any(|expression| expression.reads_of_note().path),
            expressions,
            actions: read_actions(checker, &place.field("actions"), fields),
            notes: OnceLock::new(),
        };
        let ends_tls = |step: &ActionStep| step.kind.name == actions::TERMINATE_TLS;
        if !rule.expressions.is_empty() && rule.actions.iter().any(ends_tls) {
            let message = "terminate-tls needs a rule without expressions: it is for all visitors";
            checker.record_problem(&place.field("expressions"), code::VALUE, message);
        }
        rule
    }

    /// What agents learn of the rule where it acts on a request; it is the rule with this number of a
    /// module.
    pub fn notes(&self, module: &str, index: usize) -> &RuleNotePair {
        self.notes.get_or_init(|| RuleNotePair::from_rule(self, module, index))
    }

    /// Whether no later rule of the phase can run.
    pub(super) fn always_ends(&self) -> bool {
        self.expressions.is_empty() && self.actions.iter().any(ActionStep::always_ends)
    }
}

/// Refuses the fields of an object that are not among `known`, or that are there twice.
pub(super) fn reject_unknown_fields(
    checker: &mut Checker,
    place: &DocumentPath,
    fields: &Map<String, Value>,
    known: &[&str],
) {
    for (name, fault) in field_faults(fields, known) {
        checker.record_problem(&place.field(name), code::DOCUMENT, fault);
    }
}

fn read_name(checker: &mut Checker, place: &DocumentPath, fields: &Map<String, Value>) -> String {
    match find_field(fields, "name") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(name)) => name.clone(),
        Some(_) => {
            checker.record_problem(&place.field("name"), code::DOCUMENT, "name must be a text");
            String::new()
        }
    }
}

/// The entries of a list, unless there are too many; a list that is missing is empty.
fn read_entries<'v>(
    checker: &mut Checker,
    place: &DocumentPath,
    fields: &'v Map<String, Value>,
    name: &str,
) -> &'v [Value] {
    match find_field(fields, name) {
        None | Some(Value::Null) => &[],
        Some(Value::Array(entries)) if entries.len() > SIZE => {
            checker.record_problem(
                place,
                code::RULE_SIZE,
                format!("a rule has at most {SIZE} {name}"),
            );
            &[]
        }
        Some(Value::Array(entries)) => entries,
        Some(_) => {
            checker.record_problem(place, code::DOCUMENT, format!("{name} must be a list"));
            &[]
        }
    }
}

fn read_expressions(
    checker: &mut Checker,
    place: &DocumentPath,
    fields: &Map<String, Value>,
) -> Vec<Expression> {
    let mut compiled = Vec::new();
    for (index, source) in read_entries(checker, place, fields, "expressions").iter().enumerate() {
        let place = place.entry(index);
        match source.as_str() {
            Some(source) => compiled.extend(checker.compile_expression(&place, source)),
            None => {
                checker.record_problem(&place, code::EXPRESSION, "an expression must be a text")
            }
        }
    }
    compiled
}

fn read_actions(
    checker: &mut Checker,
    place: &DocumentPath,
    fields: &Map<String, Value>,
) -> Vec<ActionStep> {
    let is_empty = find_field(fields, "actions").is_none_or(|actions| match actions {
        Value::Null => true,
        actions => actions.as_array().is_some_and(Vec::is_empty),
    });
    if is_empty {
        checker.record_problem(place, code::NO_ACTIONS, "a rule needs at least one action");
    }
    let mut steps: Vec<ActionStep> = Vec::new();
    for (index, value) in read_entries(checker, place, fields, "actions").iter().enumerate() {
        let place = place.entry(index);
        if steps.iter().any(ActionStep::always_ends) {
            checker.record_problem(
                &place,
                code::UNREACHABLE,
                "the action before it ends the phase",
            );
        }
        let has_read_path = std::mem::take(&mut checker.reads.path);
        let step = read_step(checker, &place, value);
        let reads_path = checker.reads.path;
        checker.reads.path |= has_read_path;
        let Some(step) = step.map(|step| ActionStep { reads_path, ..step }) else { continue };
        if step.kind.authenticates && steps.iter().any(|step| step.kind.authenticates) {
            let message = "a rule has at most one action that authenticates";
            checker.record_problem(&place, code::AUTHENTICATION, message);
        }
        steps.push(step);
    }
    steps
}

fn read_step(checker: &mut Checker, place: &DocumentPath, value: &Value) -> Option<ActionStep> {
    let Some(fields) = value.as_object() else {
        checker.record_problem(place, code::DOCUMENT, "an action must be an object");
        return None;
    };
    reject_unknown_fields(checker, place, fields, ACTION_FIELDS);
    let Some(name) = find_field(fields, "type").and_then(Value::as_str) else {
        checker.record_problem(&place.field("type"), code::ACTION_TYPE, "type is required");
        return None;
    };
    let Some(kind) = actions::find_kind(name) else {
        let message = match actions::unsupported_reason(name) {
            Some(reason) => format!("{name} {reason}"),
            // Libraries look for these words.
            None => format!("Invalid policy action type '{name}'."),
        };
        checker.record_problem(&place.field("type"), code::ACTION_TYPE, message);
        return None;
    };
    let phase = checker.phase;
    if !kind.supports_protocol(phase.is_http()) {
        let traffic = if phase.is_http() { "http" } else { "tcp" };
        let message = format!("{name} does not work on {traffic}");
        checker.record_problem(&place.field("type"), code::PROTOCOL, message);
    } else if !kind.phases.contains(&phase) {
        let message = format!("{name} does not run in {}", phase.name());
        checker.record_problem(&place.field("type"), code::ACTION_PHASE, message);
    }
    let config = find_field(fields, "config").unwrap_or(&Value::Null);
    Some(kind.parse_step(Config::from_value(checker, place.field("config"), config)))
}
