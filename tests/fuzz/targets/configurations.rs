//! Configuration files of the agent.

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

/// One that is JSON says the same, where YAML reads it: it takes fewer characters, and `<<` merges.
fn assert_reads_json(text: &str) {
    if let Ok(theirs) = serde_json::from_str::<AgentConfig>(text)
        && let Ok(config) = yaml::read::<AgentConfig>(text)
        && !text.contains("<<")
    {
        assert_eq!(format!("{config:?}"), format!("{theirs:?}"));
    }
}
