//! Secrets that policies read: named when they are compiled, known when they run.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value as Json;

use ginnel_base::logging::or_debug;

use super::world::World;

/// How long the name of a vault or of a secret may be, in bytes.
pub const NAME_LENGTH: usize = 255;

/// What stands for a secret where texts are shown.
const MASK: &str = "***";

/// What expressions call a secret when they ask a resolver for it.
const VARIABLE: &str = "@secret/";

/// A secret, by the names of its vault and its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName {
    /// The name of the vault.
    pub vault: String,
    /// The name of the secret, which is unique in the vault.
    pub name: String,
}

impl SecretName {
    /// The name that a resolver is asked for.
    pub(super) fn variable_name(&self) -> String {
        format!("{VARIABLE}{}/{}", self.vault, self.name)
    }

    /// The secret that [`SecretName::variable_name`] names.
    pub(super) fn from_variable(variable: &str) -> Option<Self> {
        let (vault, name) = variable.strip_prefix(VARIABLE)?.split_once('/')?;
        Some(Self { vault: vault.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "secrets.get({:?}, {:?})", self.vault, self.name)
    }
}

/// Whether a text can be the name of a vault or of a secret: letters, digits, `_`, `-` and `.`.
pub fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=NAME_LENGTH).contains(&text.len()) && text.bytes().all(is_part)
}

/// The first of these secrets that the world does not know.
pub(super) fn find_missing<'n>(
    names: &'n [SecretName],
    world: &dyn World,
) -> Option<&'n SecretName> {
    names.iter().find(|name| world.secret(name).is_none())
}

/// Masks what a policy has read where people look: the values, and the forms that this crate itself writes
/// them in (percent-encoded, escaped as in JSON, base64).
pub(super) struct Mask(Option<AhoCorasick>);

impl Mask {
    /// Of the secrets that a policy reads.
    pub fn from_names(names: &[SecretName], world: &dyn World) -> Self {
        Self::new(names.iter().filter_map(|name| world.secret(name)))
    }

    fn new(values: impl Iterator<Item = Arc<str>>) -> Self {
        let values = values.filter(|value| !value.is_empty());
        let forms: BTreeSet<String> = values.flat_map(|value| encoded_forms(&value)).collect();
        if forms.is_empty() {
            return Self(None);
        }
        // One may be a part of another.
        let mut builder = AhoCorasick::builder();
        let built = builder.match_kind(MatchKind::LeftmostLongest).build(&forms);
        // Some megabytes of secrets would be too many to search for at once.
        or_debug!(&built, "secrets cannot be searched for");
        Self(built.ok())
    }

    /// Masks the secrets in a text: in one pass, so that nothing masked is looked at again.
    pub fn text(&self, text: &mut String) {
        let Some(values) = &self.0 else { return };
        if values.is_match(text.as_str()) {
            let mut masked = String::new();
            values.replace_all_with(text, &mut masked, |_, _, masked| {
                masked.push_str(MASK);
                true
            });
            *text = masked;
        }
    }

    /// Masks the secrets in all texts of a value; the names of fields are texts, too.
    pub fn json(&self, json: &mut Json) {
        match json {
            Json::String(text) => self.text(text),
            Json::Array(entries) => entries.iter_mut().for_each(|entry| self.json(entry)),
            Json::Object(fields) => {
                let masked = std::mem::take(fields).into_iter().map(|(mut name, mut value)| {
                    self.text(&mut name);
                    self.json(&mut value);
                    (name, value)
                });
                *fields = masked.collect();
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }
}

/// A value as it is, and as it is written in addresses, in messages and in headers.
fn encoded_forms(value: &str) -> [String; 5] {
    let escaped = format!("{value:?}");
    [
        value.to_owned(),
        utf8_percent_encode(value, NON_ALPHANUMERIC).to_string(),
        url::form_urlencoded::byte_serialize(value.as_bytes()).collect(),
        escaped[1..escaped.len() - 1].to_owned(),
        STANDARD.encode(value),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_variable_names_one_secret() {
        let name = SecretName { vault: "a.b".into(), name: "c-d_1".into() };

        assert_eq!(SecretName::from_variable(&name.variable_name()), Some(name));
        assert_eq!(SecretName::from_variable("req.host"), None);
    }

    #[test]
    fn names_cannot_be_taken_apart_in_two_ways() {
        for name in ["a", "A.b-c_9"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a/b", "a b", "é", &"a".repeat(256)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn the_longest_secret_is_masked_first() {
        let mask = Mask::new(["secret-and-more".into(), "secret".into()].into_iter());
        let mut json = json!({"a secret": ["secret-and-more", {"b": "not"}], "n": 1});

        mask.json(&mut json);

        assert_eq!(json, json!({"a ***": ["***", {"b": "not"}], "n": 1}));
    }

    #[test]
    fn what_is_masked_is_not_masked_again() {
        let stars = (0..40).map(|_| "*".into());
        let mut text = "a * b".to_owned();

        Mask::new(stars.chain(["ab*".into()])).text(&mut text);

        assert_eq!(text, "a *** b");
    }

    #[test]
    fn the_forms_that_actions_write_are_masked() {
        let mask = Mask::new(["p@ss \"w0rd".into()].into_iter());
        for form in [
            "p@ss \"w0rd",
            "p%40ss%20%22w0rd",
            "p%40ss+%22w0rd",
            "p@ss \\\"w0rd",
            "cEBzcyAidzByZA==",
        ] {
            let mut text = format!("<{form}>");

            mask.text(&mut text);

            assert_eq!(text, "<***>", "{form}");
        }
    }
}
