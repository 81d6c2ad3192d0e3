//! Anchors and aliases of YAML: an alias below the name of a secret hides the anchored node.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::quotes::closing_quote;
use super::{MASK, brackets, work};
use crate::secrets::is_secret;

/// An alias, and an anchor with the node that follows.
const ALIAS: &str = r"(?:^|[\s\[{,:(])\*([^\s\[\]{},]+)";
const ANCHOR: &str = r"(?:^|[\s\[{,:(])&([^\s\[\]{},]+)(?:\s|$)";
/// An anchor with a scalar, which may be in the next line.
const SCALAR: &str = r#"(?:^|[\s\[{,:(])&([^\s\[\]{},]+)\s+(?:[|>][0-9+-]*\s*\n\s*)?("(?:[^"\\]|\\.)*"|'[^']*'|[^\s\[\]{},"'#&*][^\n,\]}:#]*)"#;
/// A key in braces that is an alias.
const ALIAS_KEY: &str = r"[{,]\s{0,8}\*([^\s\[\]{},]+)\s{1,8}:\s{1,8}";
/// Aliases may lead to aliases. After this many steps, all anchors are hidden.
const MAX_STEPS: usize = 3;

/// Masks a text together with the nodes of the anchors that its hidden aliases name.
///
/// `mask` gets the names of the anchors whose nodes are to be hidden.
pub(super) fn mask_anchors(source: &str, mask: impl Fn(&BTreeSet<String>) -> String) -> String {
    let all = anchor_names(source);
    let mut hidden: BTreeSet<String> = all.iter().filter(|it| is_secret(it)).cloned().collect();
    let before = count_aliases(source);
    for _ in 0..MAX_STEPS {
        let masked = hide_nodes(&mask(&hidden), &hidden);
        work::count_bytes(source.len());
        if all.is_empty() {
            return masked;
        }
        let after = count_aliases(&masked);
        let gone = before.iter().filter(|(name, count)| after.get(*name).unwrap_or(&0) < *count);
        let known = hidden.len();
        hidden.extend(gone.map(|(name, _)| (*name).to_owned()).filter(|it| all.contains(it)));
        if hidden.len() == known {
            return masked;
        }
    }
    hide_nodes(&mask(&all), &all)
}

/// Returns the anchors in front of a value.
pub(super) fn leading_anchors(value: &str) -> impl Iterator<Item = &str> {
    let properties = value.split_whitespace().take_while(|word| word.starts_with(['&', '!']));
    properties.filter_map(|word| word.strip_prefix('&'))
}

/// Returns the texts of the anchors that have one.
pub(super) fn anchor_scalars(source: &str) -> BTreeMap<&str, &str> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SCALAR).ok());
    let pattern = PATTERN.as_ref().filter(|_| source.contains('&') && source.contains('*'));
    let found = pattern.iter().flat_map(|pattern| pattern.captures_iter(source));
    let pairs = found.filter_map(|found| found.get(1).zip(found.get(2)));
    pairs.map(|(name, text)| (name.as_str(), text.as_str().trim())).collect()
}

/// Hides the values of keys in braces that are aliases of the name of a secret, or that cannot be resolved.
pub(super) fn hide_alias_keys<'a>(source: &'a str, scalars: &BTreeMap<&str, &str>) -> Cow<'a, str> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ALIAS_KEY).ok());
    let pattern = PATTERN.as_ref().filter(|_| source.contains('*') && source.contains('{'));
    let mut masked = String::new();
    let mut copied = 0;
    for found in pattern.iter().flat_map(|pattern| pattern.captures_iter(source)) {
        let (Some(whole), Some(alias)) = (found.get(0), found.get(1)) else { continue };
        let is_other = scalars.get(alias.as_str()).is_some_and(|text| !is_secret(text));
        let end = if is_other { whole.end() } else { node_end(source, whole.end()) };
        if whole.start() < copied || end == whole.end() {
            continue;
        }
        masked.push_str(source.get(copied..whole.end()).unwrap_or_default());
        masked.push_str(MASK);
        copied = end;
    }
    if copied == 0 {
        return source.into();
    }
    masked.push_str(source.get(copied..).unwrap_or_default());
    masked.into()
}

fn anchor_names(source: &str) -> BTreeSet<String> {
    let Some(pattern) = anchor_pattern().filter(|_| source.contains('&')) else {
        return BTreeSet::new();
    };
    let found = pattern.captures_iter(source).filter_map(|found| found.get(1));
    found.map(|name| name.as_str().to_owned()).collect()
}

/// Returns the number of times that each alias is used.
fn count_aliases(source: &str) -> BTreeMap<&str, usize> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ALIAS).ok());
    let mut counts = BTreeMap::new();
    let pattern = PATTERN.as_ref().filter(|_| source.contains('*'));
    for found in pattern.iter().flat_map(|pattern| pattern.captures_iter(source)) {
        if let Some(name) = found.get(1) {
            *counts.entry(name.as_str()).or_default() += 1;
        }
    }
    counts
}

fn anchor_pattern() -> Option<&'static Regex> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ANCHOR).ok());
    PATTERN.as_ref()
}

/// Hides the nodes of anchors that are in one line or in brackets.
fn hide_nodes(source: &str, hidden: &BTreeSet<String>) -> String {
    let mut masked = String::with_capacity(source.len());
    let mut copied = 0;
    let pattern = anchor_pattern().filter(|_| !hidden.is_empty());
    for found in pattern.iter().flat_map(|pattern| pattern.captures_iter(source)) {
        let Some(name) = found.get(1) else { continue };
        if name.start() < copied || !hidden.contains(name.as_str()) {
            continue;
        }
        let rest = source.get(name.end()..).unwrap_or_default();
        let is_blank = |letter: char| letter.is_whitespace() && letter != '\n';
        let start = source.len() - rest.trim_start_matches(is_blank).len();
        let end = node_end(source, start);
        if end > start {
            masked.push_str(source.get(copied..start).unwrap_or_default());
            masked.push_str(MASK);
            copied = end;
        }
    }
    masked.push_str(source.get(copied..).unwrap_or_default());
    masked
}

/// Returns the end of the node that starts here.
fn node_end(source: &str, start: usize) -> usize {
    let bytes = source.as_bytes();
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'[' | b'{' => at = brackets::group_end(source, at),
            quote @ (b'"' | b'\'') if at == start => at = string_end(bytes, at, quote),
            b',' | b']' | b'}' | b'\r' | b'\n' => break,
            _ => at += 1,
        }
    }
    work::count_bytes(at.min(source.len()) - start);
    at.min(source.len())
}

fn string_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let rest = bytes.get(start + 1..).unwrap_or_default();
    let length = match quote {
        b'"' => closing_quote(rest, 0, quote),
        _ => rest.iter().position(|byte| *byte == quote),
    };
    length.map_or(bytes.len(), |length| start + length + 2)
}
