//! Configuration files of the agent.

use std::path::Path;

use serde_json::Value;

use ginnel_agent::config;
use ginnel_api::yaml_tree::read_tree;
use ginnel_settings::SettingSources;

/// A file is read or refused in one line; one in JSON holds what serde_json reads.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Some options name files, and these could be endless.
    if ["/dev", "/proc", "/sys"].iter().any(|folder| text.contains(folder)) {
        return;
    }
    let file = config::read_text(Path::new("ginnel.yml"), text);
    let sources = SettingSources { flags: &|_| None, environment: &|_| None, files: &[file] };
    match config::load_config(&sources) {
        Ok(resolved) => {
            let _ = config::without_effect(&resolved, &[config::WITHOUT_EFFECT]);
            let problems = resolved.config.find_problems();
            assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
        }
        Err(problems) => {
            assert!(problems.iter().all(|problem| !problem.contains('\n')), "{problems:?}");
        }
    }
    assert_reads_json(text);
}

/// One that is JSON says the same, where YAML reads it: it takes fewer characters, and `<<` merges.
fn assert_reads_json(text: &str) {
    if let Ok(theirs) = serde_json::from_str::<Value>(text)
        && let Ok(tree) = read_tree(text)
        && !text.contains("<<")
    {
        assert_eq!(Value::from(tree.value), theirs);
    }
}
