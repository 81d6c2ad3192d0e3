//! Labels: members whose value is the name of a secret, and the members next to them that have the value.

use crate::secrets::{has_describing_word, is_exact, is_secret, last_word};

/// The last words of members that have a name. Members that are called so as a whole are labels as well.
const NAMES: [&str; 21] = [
    "argument",
    "attribute",
    "column",
    "env",
    "field",
    "flag",
    "header",
    "identifier",
    "key",
    "label",
    "name",
    "option",
    "param",
    "parameter",
    "prop",
    "property",
    "setting",
    "slug",
    "var",
    "variable",
    "keyword",
];
/// The last words of members that have a value.
const VALUES: [&str; 5] = ["default", "val", "value", "values", "vals"];
/// Members that have a value if the whole name next to them is the name of a secret.
const CONTENTS: [&str; 14] = [
    "answer", "body", "content", "contents", "current", "data", "input", "literal", "new", "old",
    "plain", "raw", "response", "text",
];
/// The label that things have besides settings. It hides only members that have values.
const THING: &str = "name";
/// Members that have a name or a value only if they have no other words.
const WHOLE_NAMES: [&str; 2] = ["id", "k"];
const WHOLE_VALUE: &str = "v";
/// Members that have a name at the end of a path or of a list.
const PATHS: [&str; 3] = ["loc", "path", "pointer"];
/// Members that have the type of the value next to them, and the types of secrets.
const TYPES: [&str; 3] = ["format", "purpose", "type"];
const SECRET_TYPES: [&str; 4] = ["credential", "passwd", "password", "secret"];
/// Members that describe the value of the member next to them, besides those whose names describe secrets.
const DESCRIPTIONS: [&str; 48] = [
    "autocomplete",
    "category",
    "class",
    "code",
    "comment",
    "constraint",
    "description",
    "email",
    "error",
    "group",
    "help",
    "hint",
    "host",
    "href",
    "icon",
    "in",
    "language",
    "locale",
    "message",
    "msg",
    "namespace",
    "on",
    "op",
    "operator",
    "owner",
    "pattern",
    "placeholder",
    "reason",
    "region",
    "role",
    "rule",
    "scope",
    "section",
    "severity",
    "state",
    "summary",
    "time",
    "timestamp",
    "title",
    "uid",
    "uri",
    "uris",
    "url",
    "urls",
    "username",
    "uuid",
    "visibility",
    "zone",
];
/// Names are not longer than this, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 64;

/// The part of a pair that a member has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairRole {
    Name,
    Value,
    /// A value only if the whole name next to it is the name of a secret.
    Content,
    /// A text next to a name, which may be its value.
    Other,
}

/// Returns the part of a pair that a member of this name has: the last of its words decides.
pub(super) fn pair_role(member: &str) -> Option<PairRole> {
    if member.len() > MAX_NAME_BYTES {
        return None;
    }
    let is = |known: &str| member.eq_ignore_ascii_case(known);
    if is(WHOLE_VALUE) {
        return Some(PairRole::Value);
    }
    if WHOLE_NAMES.into_iter().chain(PATHS).chain(TYPES).any(is) {
        return Some(PairRole::Name);
    }
    let word = last_word(member);
    let is_last = |known: &[&str]| known.iter().any(|known| word.eq_ignore_ascii_case(known));
    if is_last(&VALUES) {
        return Some(PairRole::Value);
    }
    if is_last(&CONTENTS) {
        return Some(PairRole::Content);
    }
    is_last(&NAMES).then_some(PairRole::Name)
}

/// Returns the part of a pair that a member of an object has. Members that only describe have none.
pub(super) fn member_role(member: &str) -> Option<PairRole> {
    let word = last_word(member);
    let describes = DESCRIPTIONS.iter().any(|known| word.eq_ignore_ascii_case(known))
        || has_describing_word(member)
        || word.is_empty();
    pair_role(member).or((!describes).then_some(PairRole::Other))
}

/// The members that a label hides, from the fewest to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LabelReach {
    Values,
    Contents,
    Texts,
}

impl LabelReach {
    /// Returns the reach of a label whose text is the name of a secret; `None` if it is not.
    pub(super) fn from_label(label: &str, text: &str) -> Option<Self> {
        let is = |known: &&str| label.eq_ignore_ascii_case(known);
        if TYPES.iter().any(is) {
            let is_secret = SECRET_TYPES.iter().any(|known| text.eq_ignore_ascii_case(known));
            return is_secret.then_some(Self::Values);
        }
        let is_path = PATHS.iter().any(is);
        let text = match is_path {
            true => text.rsplit(['/', '.', ',']).next().unwrap_or_default(),
            false => text,
        };
        let text =
            text.trim_matches(|letter: char| letter.is_whitespace() || "[]\"'\\".contains(letter));
        if !is_secret(text) {
            return None;
        }
        // Identifiers of records have numbers, such as `session_1`.
        let is_record =
            WHOLE_NAMES.iter().any(is) && text.contains(|letter: char| letter.is_ascii_digit());
        Some(match is_exact(text) && !is_record {
            // Things have a `name` as well: a biscuit next to its brand.
            true if is_path || label.eq_ignore_ascii_case(THING) => Self::Contents,
            true => Self::Texts,
            false => Self::Values,
        })
    }

    pub(super) fn hides_role(self, role: PairRole) -> bool {
        match role {
            PairRole::Name => false,
            PairRole::Value => true,
            PairRole::Content => self >= Self::Contents,
            PairRole::Other => self == Self::Texts,
        }
    }
}

/// Returns true if a label has a list of words, of which the last is the name.
pub(super) fn is_list_of_words(label: &str, list: &str) -> bool {
    let is_path = PATHS.iter().any(|known| label.eq_ignore_ascii_case(known));
    is_path && list.starts_with('[') && !list.contains(['{', '('])
}

/// Returns true if a label has the type of the value next to it.
pub(super) fn is_type(label: &str) -> bool {
    TYPES.iter().any(|known| label.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::super::MASK;
    use super::super::name_value::mask_name_values;

    #[test]
    fn texts_next_to_a_label_with_the_name_of_a_secret_are_hidden() {
        for (source, expected) in [
            (r#"{"field":"password","content":"fish"}"#, r##"{"field":"password","content":"#"}"##),
            (r#"{"id":"password","text":"fish"}"#, r##"{"id":"password","text":"#"}"##),
            (r#"{"key":"DB_PASSWORD","val":"fish"}"#, r##"{"key":"DB_PASSWORD","val":"#"}"##),
            (r#"{"anything":"fish","label":"API key"}"#, r##"{"anything":"#","label":"API key"}"##),
            (r#"{"field":"password","data":["fish"]}"#, r##"{"field":"password","data":"#"}"##),
            (
                r#"{"op":"replace","path":"/user/password","value":"fish"}"#,
                r##"{"op":"replace","path":"/user/password","value":"#"}"##,
            ),
            (
                r#"{"loc":["body","password"],"msg":"kept","input":"fish"}"#,
                r##"{"loc":["body","password"],"msg":"kept","input":"#"}"##,
            ),
            (
                r#"{"field":"password","rejectedValue":"fish","code":"kept"}"#,
                r##"{"field":"password","rejectedValue":"#","code":"kept"}"##,
            ),
            (
                r#"{"type":"password","value":"fish","other":"kept"}"#,
                r##"{"type":"password","value":"#","other":"kept"}"##,
            ),
            (r#"[{"type":"text","value":"fi"#, r##"[{"type":"text","value":"#""##),
            ("{'slug': 'mot_de_passe', 'reply': 'fish'}", "{'slug': 'mot_de_passe', 'reply': '#'}"),
        ] {
            let expected = expected.replace('#', MASK);
            assert_eq!(mask_name_values(source), expected, "{source}");
            assert_eq!(mask_name_values(&expected), expected, "{source} twice");
        }
    }
}
