//! Objects whose other members decide about a member: by their kind, or because its `key` is a label.

use serde_json::Value;

use super::labels::{LabelReach, MAX_NAME_BYTES, PairRole, member_role, pair_role};
use crate::secrets::{is_permission, is_secret};

/// Members of an object with a `key` that is the name of a file.
const FILE_MEMBERS: [&str; 9] = [
    "bucket",
    "contenttype",
    "etag",
    "lastmodified",
    "sequencer",
    "size",
    "storageclass",
    "uploadid",
    "versionid",
];
/// The smallest number of such members that make any `key` the name of a file.
const MIN_FILE_MEMBERS: usize = 2;
/// Endings of the names of files.
const FILE_ENDINGS: [&str; 32] = [
    "avif", "bin", "bmp", "css", "csv", "doc", "docx", "gif", "gz", "htm", "html", "ico", "jpeg",
    "jpg", "js", "json", "log", "md", "mov", "mp3", "mp4", "parquet", "pdf", "png", "svg", "tar",
    "txt", "webp", "xlsx", "xml", "yaml", "zip",
];
/// The member of an object with the `key` of a license of software, and the longest of these keys, in bytes.
const LICENSE_MEMBER: &str = "spdxid";
const MAX_LICENSE_BYTES: usize = 16;
/// Members of an object with a `key` that is a label.
const KEY_VALUES: [&str; 5] = ["v", "val", "vals", "value", "values"];

/// An object whose kind says that members with any name are secret.
pub(super) struct SecretKind {
    /// The members that have the kind.
    pub members: &'static [&'static str],
    /// The kind; any if it is empty.
    kind: &'static str,
    pub hidden: &'static [&'static str],
}

/// Secrets of Kubernetes, private keys as JSON (RFC 7518, section 6), and requests of OAuth for a token (RFC 6749,
/// section 4.1.3).
pub(super) const SECRET_KINDS: [SecretKind; 3] = [
    SecretKind { members: &[KIND], kind: SECRET_KIND, hidden: SECRET_DATA },
    SecretKind {
        members: &["kty"],
        kind: "",
        hidden: &["d", "dp", "dq", "k", "oth", "p", "priv", "q", "qi"],
    },
    SecretKind {
        members: &[
            "grant_type",
            "grantType",
            "code_verifier",
            "codeVerifier",
            "redirect_uri",
            "redirectUri",
        ],
        kind: "",
        hidden: &["code"],
    },
];
/// The members of a Secret of Kubernetes that are hidden.
pub(super) const SECRET_DATA: &[&str] = &["data", "stringData"];
/// The member that has the kind of an object of Kubernetes.
pub(super) const KIND: &str = "kind";
/// The kind of a Secret of Kubernetes, and that of a list whose items have no kind.
pub(super) const SECRET_KIND: &str = "Secret";
pub(super) const SECRET_LIST_KIND: &str = "SecretList";

impl SecretKind {
    pub fn is_of(&self, member: &str, text: &str) -> bool {
        self.members.contains(&member) && (self.kind.is_empty() || self.kind == text)
    }
}

/// Returns for each member of an object whether its value is hidden, because of its own name, because of the name
/// that another member has, or because of the kind of the object. The second of each is the member's value if that is
/// text.
pub fn secret_members<'a>(
    members: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone,
) -> Vec<bool> {
    let texts = members.clone().filter_map(|(member, text)| Some((member, text?)));
    let labels = texts.clone().filter(|(member, _)| pair_role(member) == Some(PairRole::Name));
    let reach = labels.filter_map(|(label, text)| LabelReach::from_label(label, text)).max();
    let kinds: Vec<_> = SECRET_KINDS
        .iter()
        .filter(|kind| texts.clone().any(|(member, text)| kind.is_of(member, text)))
        .collect();
    let mut siblings = KeySiblings::default();
    members.clone().for_each(|(member, text)| siblings.add_member(member, text.is_some()));
    let is_hidden = |(member, text): (&str, Option<&str>)| {
        let role = member_role(member).filter(|role| *role != PairRole::Other || text.is_some());
        let text = text.unwrap_or_default();
        let is_named = is_secret(member)
            && !is_permission(member, text)
            && !(is_key(member) && siblings.make_label(text));
        is_named
            || reach.zip(role).is_some_and(|(reach, role)| reach.hides_role(role))
            || kinds.iter().any(|kind| kind.hidden.contains(&member))
    };
    members.map(is_hidden).collect()
}

pub(super) fn is_key(member: &str) -> bool {
    member.eq_ignore_ascii_case("key")
}

/// The members of an object that show that its `key` is a label.
#[derive(Debug, Default)]
pub(super) struct KeySiblings {
    /// True if a text is next to it that is the value of a pair.
    has_value: bool,
    /// The number of members that files have.
    file_members: usize,
    /// True if a member is next to it that licenses of software have.
    is_license: bool,
}

impl KeySiblings {
    pub fn add_member(&mut self, member: &str, is_text: bool) {
        if member.len() > MAX_NAME_BYTES {
            return;
        }
        let is_value = |known: &&str| member.eq_ignore_ascii_case(known);
        self.has_value |= is_text && KEY_VALUES.iter().any(is_value);
        self.file_members += usize::from(is_file_member(member));
        self.is_license |= is_named(member, LICENSE_MEMBER);
    }

    /// Returns true if a `key` with this text is not a secret, but a label or the name of a file.
    pub fn make_label(&self, text: &str) -> bool {
        let is_path = self.file_members > 0 && text.contains('/');
        let is_license = self.is_license && is_license(text);
        is_license
            || self.has_value
            || self.file_members >= MIN_FILE_MEMBERS
            || is_path
            || is_file_name(text)
    }
}

/// Returns true for a member that objects have whose `key` is the name of a file.
pub(super) fn is_file_member(member: &str) -> bool {
    FILE_MEMBERS.iter().any(|known| is_named(member, known))
}

/// Compares letters and digits. `known` is in small letters.
fn is_named(member: &str, known: &str) -> bool {
    let letters = member.bytes().filter(u8::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).eq(known.bytes())
}

/// Returns true for the identifier of a license, such as `apache-2.0`.
fn is_license(text: &str) -> bool {
    let is_known = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b".-".contains(&it);
    text.len() <= MAX_LICENSE_BYTES && text.bytes().all(is_known)
}

/// Returns true for the name of a file with an ending that files have, such as `photos/a.jpg`.
pub(super) fn is_file_name(text: &str) -> bool {
    let name = text.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').is_some_and(|(stem, ending)| {
        !stem.contains('.') && FILE_ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known))
    })
}

/// Returns true for a list of pairs, such as `[["Authorization", "x"], ["Accept", "y"]]`.
pub(super) fn is_list_of_pairs(items: &[Value]) -> bool {
    let mut pairs = items.iter().map(|item| item.as_array().map(Vec::as_slice));
    !items.is_empty() && pairs.all(|pair| matches!(pair, Some([Value::String(_), _])))
}

#[cfg(test)]
mod tests {
    use super::super::name_value::mask_name_values;
    use super::super::{MASK, json};
    use super::*;

    #[test]
    fn a_key_is_a_label_only_next_to_a_value_or_as_the_name_of_a_file() {
        for (source, is_hidden) in [
            (r#"{"key":"a1b2c3d4e5","is_default":true}"#, true),
            (r#"{"key":"a1b2c3d4e5","default":"a"}"#, true),
            (r#"{"key":"abc","value":1}"#, true),
            (r#"{"key":"abc","size":1}"#, true),
            (r#"{"key":"abcdef0123456789.x9k2"}"#, true),
            (r#"{"key":"wJalrXUtnFEMI/K7MDENG"}"#, true),
            (r#"{"key":"region","value":"kept"}"#, false),
            (r#"{"key":"mit","name":"MIT License","spdx_id":"MIT"}"#, false),
            (r#"{"key":"wJalrXUtnFEMI","spdx_id":"MIT"}"#, true),
            (r#"{"key":"kept.jpg"}"#, false),
            (r#"{"Key":"photos/kept","Size":1}"#, false),
            (r#"{"Key":"kept","LastModified":"kept","ETag":"kept","Size":1}"#, false),
        ] {
            assert_eq!(json(source).contains(MASK), is_hidden, "{source}");
            let value: Value = serde_json::from_str(source).unwrap_or_default();
            let members = value.as_object().into_iter().flatten();
            let hidden = secret_members(members.map(|(name, it)| (name.as_str(), it.as_str())));
            assert_eq!(hidden.contains(&true), is_hidden, "{source}");
        }
    }

    #[test]
    fn members_are_hidden_by_the_kind_of_their_object() {
        for (source, expected) in [
            (
                r#"{"kind":"Secret","data":{"a":"fish"},"stringData":{"b":"fish"},"type":"kept"}"#,
                r##"{"kind":"Secret","data":"#","stringData":"#","type":"kept"}"##,
            ),
            (
                r#"{"kind":"List","items":[{"data":{"a":"fish"},"kind":"Secret"},{"kind":"A","data":"kept"}]}"#,
                r##"{"kind":"List","items":[{"data":"#","kind":"Secret"},{"kind":"A","data":"kept"}]}"##,
            ),
            (
                r#"{"items":[{"metadata":{"name":"kept"},"data":{"a":"fish"}}],"kind":"SecretList"}"#,
                r##"{"items":[{"metadata":{"name":"kept"},"data":"#"}],"kind":"SecretList"}"##,
            ),
            ("{kind: Secret, data: {a: fish}}", "{kind: Secret, data: #}"),
            (
                r#"{"keys":[{"kty":"RSA","n":"kept","d":"fish","p":"fish"}]}"#,
                r##"{"keys":[{"kty":"RSA","n":"kept","d":"#","p":"#"}]}"##,
            ),
            (
                r#"{"grant_type":"authorization_code","code":"fish","scope":"kept"}"#,
                r##"{"grant_type":"authorization_code","code":"#","scope":"kept"}"##,
            ),
            (
                "{code: fish, codeVerifier: kept, grantType: kept}",
                "{code: #, codeVerifier: kept, grantType: kept}",
            ),
            (
                "grant_type=authorization_code code=fish client_id=kept",
                "grant_type=authorization_code code=# client_id=kept",
            ),
            (
                "a=b&code=fish&redirect_uri=kept&grant_type=authorization_code\ncode=kept",
                "a=b&code=#&redirect_uri=kept&grant_type=authorization_code\ncode=kept",
            ),
            (r#"{"k":"fish","kty":"oct"}"#, r##"{"k":"#","kty":"oct"}"##),
        ] {
            let expected = expected.replace('#', MASK);
            assert_eq!(mask_name_values(source), expected, "{source}");
            assert_eq!(mask_name_values(&expected), expected, "{source} twice");
        }
    }
}
