//! `log`: add metadata to the event of the request.

use serde_json::{Value, json};

use super::super::action_error::failure;
use super::super::template::Tree;
use super::prelude::*;

/// How long an entry may become as JSON, in bytes.
const LENGTH: usize = 64 << 10;

/// Adds an entry to the event of the request or connection.
#[derive(Debug)]
pub struct Log {
    /// What the entry holds: a map.
    pub metadata: Tree,
}

impl Action for Log {
    fn result_of_path(&self, _: &Turn<'_>) -> Option<bool> {
        Some(true)
    }

    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let metadata = self.metadata.to_json(&turn.facts())?;
        if metadata.to_string().len() > LENGTH {
            let message = format!("metadata of more than {LENGTH} bytes");
            return Err(ActionError::non_fatal(failure::VALUE, message));
        }
        turn.set_result(json!({"metadata": metadata}));
        turn.exchange.record.logs.push(metadata);
        Ok(Flow::Continue)
    }
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    let metadata = config.required_field("metadata").unwrap_or(&Value::Null);
    if !metadata.is_object() && !metadata.is_null() {
        config.record_problem("metadata", code::CONFIG, "metadata must be a map");
    }
    let place = config.place().field("metadata");
    let known = std::mem::take(&mut config.checker().secrets);
    let metadata = config.checker().compile_tree(&place, metadata, code::VALUE);
    if !config.checker().secrets.is_empty() {
        config.record_problem(
            "metadata",
            code::VALUE,
            "metadata may not hold secrets: events show it",
        );
    }
    config.checker().secrets.extend(known);
    Box::new(Log { metadata })
}
