//! YAML that may hold secrets: what is wrong with it is told without what stands there.

use std::sync::LazyLock;

use regex::Regex;
use serde::de::DeserializeOwned;

/// Reads YAML, or says where it is wrong and why, but shows nothing of it except names of fields.
///
/// # Errors
/// When the text is no YAML, or not what is wanted.
pub fn read_yaml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    #[expect(clippy::disallowed_methods, reason = "the problem is told without its line")]
    let read = serde_saphyr::from_str(text);
    read.map_err(|error: serde_saphyr::Error| {
        let message = error.without_snippet().to_string();
        without_values(message.lines().next().unwrap_or_default().trim_start_matches("error: "))
    })
}

/// A message without the values that it quotes, as serde does in `invalid type: string "…"`.
pub(super) fn without_values(message: &str) -> String {
    static QUOTED: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(string|character) (?:"(?:[^"\\]|\\.)*"|`[^`]*`)"#).ok());
    match QUOTED.as_ref() {
        Some(quoted) => quoted.replace_all(message, "$1").into_owned(),
        None => "is wrong".to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_its_place_and_no_value() {
        for text in [
            "authtoken: [swordfish",
            "authtoken: \"sword\\qfish\"",
            "a: swordfish\n  b: [",
            "a: *swordfish",
            "a: b\nswordfish",
            "- swordfish",
            "swordfish",
        ] {
            let message = read_yaml::<std::collections::BTreeMap<String, u8>>(text).unwrap_err();
            assert!(message.contains("line ") && !message.contains("fish"), "{text}: {message}");
        }
    }

    #[test]
    fn quoted_values_are_left_out() {
        let message = without_values(r#"invalid type: string "sword \"fish\"", expected a number"#);
        assert_eq!(message, "invalid type: string, expected a number");
    }
}
