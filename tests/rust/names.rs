//! The name of a type says what it is without its module: no two types of the crates have one name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::source::crates;

/// Names that more than one type has. The list only gets shorter: give a new type a name of its own.
#[rustfmt::skip]
const DUPLICATES: &[&str] = &[
    "Error", "IpRestriction", "Response", "ResponseBody", "UserAgentFilter", "WebhookVerification",
];

#[test]
fn every_type_has_a_name_of_its_own() {
    let mut declarations: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in crates().into_iter().flat_map(|it| it.files) {
        for name in file.code.lines().filter_map(declared) {
            declarations.entry(name.to_owned()).or_default().push(file.path.clone());
        }
    }
    assert!(declarations.len() > 500, "only {} types were found", declarations.len());
    let duplicates: BTreeMap<_, _> =
        declarations.into_iter().filter(|(_, files)| files.len() > 1).collect();

    let unexpected: Vec<_> =
        duplicates.iter().filter(|(name, _)| !DUPLICATES.contains(&name.as_str())).collect();
    assert!(unexpected.is_empty(), "these names have more than one type: {unexpected:#?}");

    let expected: BTreeSet<_> = DUPLICATES.iter().copied().collect();
    let unique: Vec<_> = expected.iter().filter(|name| !duplicates.contains_key(**name)).collect();
    assert!(unique.is_empty(), "remove from DUPLICATES what is unique now: {unique:?}");
    assert_eq!(expected.len(), DUPLICATES.len(), "DUPLICATES names a type twice");
}

/// The type that a line declares. Types of a trait or of its implementation are indented, and count as
/// those of the trait.
fn declared(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let code = line.trim_start();
    let code = match code.strip_prefix("pub") {
        Some(public) if public.starts_with('(') => public.split_once(") ")?.1,
        Some(public) => public.strip_prefix(' ')?,
        None => code,
    };
    let (keyword, rest) = code.split_once(' ')?;
    let is_type = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !is_indented,
        _ => false,
    };
    let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    (is_type && name.starts_with(char::is_uppercase)).then_some(name)
}
