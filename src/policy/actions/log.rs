//! `log`: add metadata to the event of the request.

use serde_json::Value;

use super::super::action::Action;
use super::super::config::Config;
use super::super::problem::code;
use super::super::template::Tree;

/// Adds an entry to the event of the request or connection.
#[derive(Debug)]
pub struct Log {
    /// What the entry holds: a map.
    pub metadata: Tree,
}

impl Action for Log {}

pub(in super::super) fn parse(config: &mut Config<'_>) -> Box<dyn Action> {
    let metadata = config.required("metadata").unwrap_or(&Value::Null);
    if !metadata.is_object() && !metadata.is_null() {
        config.refuse("metadata", code::CONFIG, "metadata must be a map");
    }
    let place = config.place().field("metadata");
    Box::new(Log { metadata: config.checker().tree(&place, metadata, code::VALUE) })
}
