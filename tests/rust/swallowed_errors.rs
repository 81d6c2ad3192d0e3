//! An error that nobody returns is told, or it is said why it means nothing.

use std::fs;

use super::source::crates;

/// Where a result is dropped that is no error, and how often: text is written into a `String`, which
/// does not fail, or something is not used on every system. The list only gets shorter; use `or_debug!`
/// to tell a cause, or `ignore` to say why there is nothing to tell.
const HARMLESS: &[(&str, usize)] = &[
    ("crates/agent/src/relay/files.rs", 1),
    ("crates/api/src/mask/work.rs", 1),
    ("crates/base/src/files.rs", 1),
    ("crates/cli/src/agent/console/mod.rs", 1),
    ("crates/policy/src/path.rs", 1),
    ("src/results/json.rs", 1),
];

#[test]
fn no_result_is_dropped_without_a_word() {
    let mut known = HARMLESS.to_vec();
    let mut wrong = Vec::new();
    for file in crates().into_iter().flat_map(|it| it.files) {
        let name = file.path.to_str().unwrap();
        let statements = file.code.split_inclusive([';', '{', '}']);
        let dropped: Vec<_> = statements.filter(|it| is_dropped(it)).map(str::trim).collect();
        let allowed = known.iter().position(|(file, _)| *file == name);
        let allowed = allowed.map_or(0, |place| known.swap_remove(place).1);
        if dropped.len() != allowed {
            wrong.push(format!("{name}: {allowed} are known, but there are {dropped:#?}"));
        }
    }
    assert!(wrong.is_empty(), "results are dropped without a word:\n{}", wrong.join("\n"));
    assert!(known.is_empty(), "remove from HARMLESS what is gone: {known:?}");
}

/// Whether a statement drops what may be an error.
fn is_dropped(statement: &str) -> bool {
    let statement = statement.trim();
    let is_used = statement.contains(" = ") || statement.starts_with("return ");
    let is_ignored = statement.lines().any(|line| line.trim().starts_with("let _ ="));
    is_ignored || statement.ends_with(".ok();") && !is_used
}

#[test]
fn a_dropped_result_is_seen() {
    for dropped in
        ["let _ = send(1);", "\n        socket\n            .close()\n            .ok();"]
    {
        assert!(is_dropped(dropped), "{dropped}");
    }
    for used in
        ["let number = text.parse().ok();", "return text.parse().ok();", "text.parse().ok() }"]
    {
        assert!(!is_dropped(used), "{used}");
    }
    assert!(
        fs::read_to_string("crates/base/src/logging/outcome.rs")
            .unwrap()
            .contains("macro_rules! or_debug")
    );
}
