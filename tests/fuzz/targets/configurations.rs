//! Configuration files of the agent.

use serde_json::{Map, Value};

use crate::agent::config::AgentConfig;
use crate::api::yaml;

/// A file is read or refused in one line; one in JSON holds what serde_json reads.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Some options name files, and these could be endless.
    if ["/dev", "/proc", "/sys"].iter().any(|folder| text.contains(folder)) {
        return;
    }
    match yaml::read::<AgentConfig>(text) {
        Ok(config) => {
            let _ = config.without_effect();
            if let Err(error) = config.check() {
                assert!(!error.to_string().is_empty());
            }
        }
        Err(problem) => assert!(!problem.contains('\n'), "{problem}"),
    }
    assert_reads_json(text);
}

fn assert_reads_json(text: &str) {
    let Ok(theirs) = serde_json::from_str::<Map<String, Value>>(text) else { return };
    let written = Value::Object(theirs).to_string();
    let read = yaml::read::<Value>(&written).expect("JSON is YAML");
    assert_eq!(read.to_string(), written);
}
