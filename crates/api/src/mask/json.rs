//! JSON, even where it is cut off.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};

use super::commands::Commands;
use super::comments::CommentEnds;
use super::credentials::private_keys;
use super::descriptions::{is_package_list, is_schema, is_schema_text, is_version};
use super::object_kinds::{KIND, SECRET_DATA, SECRET_LIST_KIND};
use super::quotes::closing_quote;
use super::{
    MASK, anchors, brackets, commands, escapes, graphql, name_value, object_kinds, text, work,
};
use crate::secrets::{is_secret, is_visible_scalar};

/// Masks JSON, or JSON values that follow each other.
///
/// Below the name of a secret, texts, lists and objects are hidden. Numbers, booleans and null stay. All other
/// strings are masked as texts. Text that is not JSON is masked as a text as well.
pub fn json(source: &str) -> String {
    mask_nested_json(source, text::MAX_DEPTH)
}

/// The same, where `depth` more texts may be inside of strings.
pub(super) fn mask_nested_json(source: &str, depth: u8) -> String {
    let variables = secret_variables(source);
    let source = &*name_value::mask_name_values(source);
    let secrets = SecretMembers { variables, labels: name_value::key_labels(source) };
    let masked = private_keys(&secrets.mask_members(source, depth)).into_owned();
    work::count_bytes(source.len());
    let mut values = Deserializer::from_str(source).into_iter::<IgnoredAny>();
    match values.any(|value| value.is_err_and(|error| error.is_syntax())) {
        // It may be YAML in brackets.
        true => anchors::mask_anchors(source, |_| text::mask_loose_text(&masked).into_owned()),
        false => masked,
    }
}

/// Returns the names of the GraphQL variables that a document in a string passes to secret arguments.
fn secret_variables(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if !source.contains('$') || !source.contains("\"variables\"") {
        return names;
    }
    let mut at = 0;
    while let Some(found) = next_string(source, at) {
        at = found.end;
        let quoted = source.get(found).unwrap_or_default();
        if quoted.contains('$') {
            let document = serde_json::from_str::<String>(quoted).ok();
            let document = document.as_deref().unwrap_or(quoted);
            names.extend(graphql::secret_variables(document));
        }
    }
    names
}

/// The members that are hidden, besides those with the name of a secret.
struct SecretMembers {
    /// Members of the variables of GraphQL requests.
    variables: BTreeSet<String>,
    /// The places of values of `key` that are not secrets.
    labels: BTreeSet<usize>,
}

/// The places that a pass over the members of a text has found.
struct MemberScan<'a> {
    source: &'a str,
    /// The end of the variables of a GraphQL request.
    variables_end: usize,
    /// The end of a list of packages.
    packages_end: usize,
    comments: CommentEnds,
}

impl<'a> MemberScan<'a> {
    fn new(source: &'a str) -> Self {
        Self { source, variables_end: 0, packages_end: 0, comments: CommentEnds::default() }
    }
}

impl SecretMembers {
    fn mask_members(&self, source: &str, depth: u8) -> String {
        let mut masked = String::with_capacity(source.len());
        let mut copied = 0;
        let mut at = 0;
        let mut scan = MemberScan::new(source);
        let commands = Commands::find_in(source);
        let mut before = 0..0;
        while let Some(found) = next_string(source, at) {
            at = found.end;
            let hidden = match value_after(source, found.end, &mut scan.comments) {
                NextToken::Member(start) => self.hide_member(&mut scan, &found, start),
                NextToken::Other => {
                    let last = std::mem::replace(&mut before, found.clone());
                    let hidden = hidden_argument(source, &commands, last, &found);
                    let written = source.get(found.clone()).unwrap_or_default();
                    hidden.or_else(|| mask_string(written, depth)).map(|text| (found, text))
                }
            };
            let Some((place, text)) = hidden else { continue };
            masked.push_str(source.get(copied..place.start).unwrap_or_default());
            masked.push_str(&text);
            (copied, at) = (place.end, place.end);
        }
        masked.push_str(source.get(copied..).unwrap_or_default());
        masked
    }

    /// Returns the place of a member's value and the text that replaces it; none if the value stays or is the next token.
    fn hide_member(
        &self,
        scan: &mut MemberScan<'_>,
        found: &Range<usize>,
        start: usize,
    ) -> Option<(Range<usize>, String)> {
        let source = scan.source;
        let name = member_name(source.get(found.clone()).unwrap_or_default());
        let is_variable = start < scan.variables_end && self.is_variable(&name);
        if !self.variables.is_empty() && start >= scan.variables_end && is_variables(&name) {
            let value = value_place(source, start).unwrap_or(start..start);
            if let Some(hidden) = self.coded_variables(source, &value) {
                return Some((value, hidden));
            }
            scan.variables_end = value.end;
        }
        if start >= scan.packages_end
            && is_package_list(&name)
            && source.get(start..).is_some_and(|rest| rest.starts_with('{'))
        {
            scan.packages_end = value_place(source, start).map_or(start, |value| value.end);
        }
        if !is_variable && (!is_secret(&name) || self.labels.contains(&start)) {
            return None;
        }
        let value = value_place(source, start)?;
        let after_comments = scan.comments.skip_comments(source, value.start).min(value.end);
        let written = source.get(after_comments..value.end).unwrap_or_default();
        let is_version = start < scan.packages_end && is_version(written);
        let is_visible = is_visible_scalar(&name, written, true) || is_schema_text(written);
        (!is_visible && !is_version).then(|| (value, format!("\"{MASK}\"")))
    }

    fn is_variable(&self, name: &str) -> bool {
        self.variables.contains(name)
    }

    /// Returns variables that are JSON inside of a string, without the secret ones.
    fn coded_variables(&self, source: &str, value: &Range<usize>) -> Option<String> {
        let quoted = source.get(value.clone()).filter(|quoted| quoted.starts_with('"'))?;
        let Ok(Value::Object(mut variables)) = serde_json::from_str::<String>(quoted)
            .map_err(|_| ())
            .and_then(|inner| serde_json::from_str(&inner).map_err(|_| ()))
        else {
            return Some(format!("\"{MASK}\""));
        };
        graphql::conceal_variables(&mut variables, &self.variables, &conceal_member);
        serde_json::to_string(&json(&Value::Object(variables).to_string())).ok()
    }
}

/// Hides the secret of an argument of a command: in the value of the option before it, or in an option with its value.
fn hidden_argument(
    source: &str,
    commands: &Commands,
    before: Range<usize>,
    place: &Range<usize>,
) -> Option<String> {
    let quoted = source.get(place.clone())?;
    let is_list = source.get(before.end..place.start).is_some_and(|between| between.trim() == ",");
    let option = source.get(before)?.trim_matches('"');
    if !option.starts_with('-') && !quoted.starts_with("\"-") {
        return None;
    }
    let argument = escapes::unescape_text(quoted.trim_matches('"'));
    let shown = commands.hidden_word(Some(option).filter(|_| is_list), &argument)?;
    serde_json::to_string(&shown).ok()
}

fn is_variables(name: &str) -> bool {
    name == graphql::VARIABLES
}

/// Masks what is secret in a value, as [`json`] does.
pub fn value(shown: &mut Value) {
    hide_secrets(shown, &conceal_member);
}

/// Masks the secrets in a value and keeps its form: texts become the mask, and numbers inside of hidden lists
/// and objects become 0.
pub fn value_in_form(shown: &mut Value) {
    hide_secrets(shown, &|hidden| conceal_in_form(hidden, false));
}

/// Masks the secrets in a configuration: below the name of a secret, numbers may be passwords as well.
pub fn definition(shown: &mut Value) {
    hide_secrets(shown, &|hidden| *hidden = MASK.into());
}

/// Walks a value, and calls `conceal` with each secret in it.
fn hide_secrets(shown: &mut Value, conceal: &dyn Fn(&mut Value)) {
    hide_by_place(shown, conceal);
    hide_by_names(shown, conceal);
}

fn hide_by_names(shown: &mut Value, conceal: &dyn Fn(&mut Value)) {
    match shown {
        Value::Object(_) | Value::Array(_) => {
            each_member(shown, |member, is_hidden| match is_hidden {
                true => conceal(member),
                false => hide_by_names(member, conceal),
            })
        }
        Value::String(inner) => *inner = text(inner).into_owned(),
        _ => {}
    }
}

/// Hides values because of another value at some distance: the variables of GraphQL requests, and the data in lists of
/// Secrets of Kubernetes.
fn hide_by_place(shown: &mut Value, conceal: &dyn Fn(&mut Value)) {
    match shown {
        Value::Object(members) => {
            graphql::hide_in_request(members, conceal);
            if members.get(KIND).and_then(Value::as_str) == Some(SECRET_LIST_KIND) {
                let lists = members.values_mut().filter_map(Value::as_array_mut).flatten();
                for secret in lists.filter_map(Value::as_object_mut) {
                    let data = secret.iter_mut().filter(|(name, _)| is_secret_data(name));
                    data.for_each(|(_, value)| conceal(value));
                }
            }
            members.values_mut().for_each(|member| hide_by_place(member, conceal));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide_by_place(item, conceal)),
        _ => {}
    }
}

fn is_secret_data(name: &str) -> bool {
    SECRET_DATA.contains(&name)
}

/// Visits the members of an object or the items of a list: true for those that are below the name of a secret, or
/// in a pair with one.
fn each_member(shown: &mut Value, mut visit: impl FnMut(&mut Value, bool)) {
    match shown {
        Value::Object(members) => {
            let texts = members.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let hidden = object_kinds::secret_members(texts);
            members.values_mut().zip(hidden).for_each(|(member, hidden)| {
                let is_hidden = hidden && !is_schema(member);
                visit(member, is_hidden);
            });
        }
        Value::Array(items) if object_kinds::is_list_of_pairs(items) => {
            for pair in items.iter_mut().filter_map(Value::as_array_mut) {
                let [name, value] = pair.as_mut_slice() else { continue };
                let is_hidden = name.as_str().is_some_and(is_secret);
                visit(name, false);
                visit(value, is_hidden);
            }
        }
        Value::Array(items) => {
            commands::hide_words(items);
            items.iter_mut().for_each(|item| visit(item, false));
        }
        _ => {}
    }
}

/// Hides a value below the name of a secret, unless it is empty, a number, a boolean or null, or a list of them.
pub(super) fn conceal_member(member: &mut Value) {
    match member {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        list @ Value::Array(_) if is_visible_list(list) => {}
        Value::String(text) if text.is_empty() => {}
        member => *member = MASK.into(),
    }
}

fn is_visible_list(list: &Value) -> bool {
    let is_nested =
        |items: &Vec<Value>| !items.iter().any(|item| item.is_object() || item.is_string());
    list.as_array().is_some_and(is_nested) && is_visible_scalar("", &list.to_string(), true)
}

/// Hides a value and keeps its form; numbers only if they are inside of a hidden list or object.
pub(super) fn conceal_in_form(hidden: &mut Value, is_inside: bool) {
    match hidden {
        Value::Object(members) => members.values_mut().for_each(|it| conceal_in_form(it, true)),
        list @ Value::Array(_) if !is_inside && is_visible_list(list) => {}
        Value::Array(items) => items.iter_mut().for_each(|it| conceal_in_form(it, true)),
        Value::Number(_) if is_inside => *hidden = 0.into(),
        Value::String(text) if !text.is_empty() => *hidden = MASK.into(),
        _ => {}
    }
}

/// The name of a member, which stands in quotes and may be written with escapes.
fn member_name(quoted: &str) -> Cow<'_, str> {
    escapes::unescape_text(quoted.trim_matches('"'))
}

/// A string with its quotes, masked; none where there is nothing to mask.
fn mask_string(quoted: &str, depth: u8) -> Option<String> {
    let Ok(inner) = serde_json::from_str::<String>(quoted) else {
        // It is cut off.
        let masked = text::mask_nested_text(quoted, depth.saturating_sub(1));
        return (masked != quoted).then(|| masked.into_owned());
    };
    let masked = match depth {
        0 if inner.contains(['{', '[', '<', '\n']) => MASK.into(),
        _ => text::mask_nested_text(&inner, depth.saturating_sub(1)),
    };
    if masked == inner.as_str() {
        return None;
    }
    serde_json::to_string(&masked).ok()
}

/// What comes after a string.
enum NextToken {
    /// A colon, so the string is the name of a member, and the place of its value.
    Member(usize),
    /// Something else.
    Other,
}

/// The next string at or after a place, with its quotes.
fn next_string(text: &str, from: usize) -> Option<Range<usize>> {
    let start = from + text.get(from..)?.find('"')?;
    let end = string_end(text, start);
    work::count_bytes(end - from);
    Some(start..end)
}

/// Where the string ends that starts here; at the end of the text when it is cut off.
fn string_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let quote = bytes.get(start).copied().unwrap_or(b'"');
    closing_quote(bytes, start + 1, quote).map_or(text.len(), |end| end + 1)
}

/// The value of the key that ends here.
fn value_after(text: &str, key_end: usize, comments: &mut CommentEnds) -> NextToken {
    let rest = text.get(comments.skip_comments(text, key_end)..).unwrap_or_default();
    match rest.strip_prefix(':') {
        Some(after) => NextToken::Member(text.len() - after.trim_start().len()),
        None => NextToken::Other,
    }
}

/// The place of a value that starts here; of one that is not JSON, up to the next member.
fn value_place(text: &str, start: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = CommentEnds::default().skip_comments(text, start);
    if text.get(at..).is_some_and(|rest| rest.starts_with("# ")) {
        let line = text.get(at..).and_then(|rest| rest.find('\n')).unwrap_or_default();
        at = CommentEnds::default().skip_comments(text, at + line);
    }
    while let Some(&byte) = bytes.get(at) {
        at = match byte {
            b'"' | b'\'' => string_end(text, at),
            b'[' | b'{' | b'(' => brackets::group_end(text, at),
            b',' | b'}' | b']' | b')' | b'\n' => break,
            _ => at + 1,
        };
    }
    work::count_bytes(at - start);
    let value = text.get(start..at)?.trim_end();
    bytes.get(start).map(|_| start..start + value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_masked_and_nothing_else_changes() {
        let text = r#"{ "user": "token", "password" : "a\"b", "n": {"secret": 12, "x": [1.50]} }"#;
        let expected = r#"{ "user": "token", "password" : "#.to_owned()
            + "\"••••••\", \"n\": {\"secret\": 12, \"x\": [1.50]} }";

        assert_eq!(json(text), expected);
        assert_eq!(
            json(r#"{"tokens": ["a]", 2], "keys": ["b"], "secrets": [{"x": 1}, ["y"#),
            "{\"tokens\": \"••••••\", \"keys\": [\"b\"], \"secrets\": \"••••••\""
        );
        assert_eq!(
            json(r#"{"password": {"a": "}", "b": [1]}, "pass\u0077ord": "x", "c": {"d": 1}}"#),
            "{\"password\": \"••••••\", \"pass\\u0077ord\": \"••••••\", \"c\": {\"d\": 1}}"
        );
        assert_eq!(json("{'password': 'a', pin:\"b\"}"), "{'password': ••••••, pin:••••••}");
        assert_eq!(json(r#"{"token": "cut of"#), "{\"token\": \"••••••\"");
        assert_eq!(json("\"token"), "\"token");
    }

    #[test]
    fn numbers_booleans_and_null_stay() {
        for source in [
            r#"{"max_tokens": 100, "usage": {"total_tokens": 5.5e1}, "next_token": null}"#,
            "{\"pin\":1}\n{\"token\":true}\n{\"csrf_protection\":false}\n",
            r#"{"max_tokens": 100, "a": ["#,
            r#"{"token": /* a */ null, "b": 1}"#,
        ] {
            assert_eq!(json(source), source);
        }
        let lists = r#"{"tokens": [1, 2, 3], "token_ids": [[50256, 1], [7]]}"#;
        assert_eq!(json(lists), lists);
        assert_eq!(json(r#"{"tokens": [1, "a"]}"#), format!(r#"{{"tokens": "{MASK}"}}"#));
        let bytes = serde_json::json!({"private_key": vec![7; 64]});
        let mut shown = bytes.clone();
        value(&mut shown);
        assert_eq!(shown["private_key"], MASK);
        assert_eq!(json(&bytes.to_string()), shown.to_string());
        let mut shown = serde_json::json!({"token": 1, "tokens": [1, {"a": true}], "ids_of_tokens": [1], "a": "x"});
        value_in_form(&mut shown);
        let expected = serde_json::json!({"token": 1, "tokens": [0, {"a": true}], "ids_of_tokens": [1], "a": "x"});
        assert_eq!(shown, expected);
    }

    #[test]
    fn values_in_pairs_with_a_secret_name_are_hidden() {
        let mut shown = serde_json::json!({
            "env": [{"name": "PASSWORD", "value": "x"}, {"name": "max_tokens", "value": 5}],
            "headers": [["Cookie", "x"], ["Accept", "kept"]],
            "list": {"kind": "SecretList", "items": [{"data": "x"}]},
            "jwk": {"kty": "RSA", "n": "kept", "d": "x"},
            "row": {"field": "password", "content": "x", "type": "kept", "other": "x"},
            "file": {"key": "kept", "size": 5, "etag": "kept"},
        });
        let expected = serde_json::json!({
            "env": [{"name": "PASSWORD", "value": MASK}, {"name": "max_tokens", "value": 5}],
            "headers": [["Cookie", MASK], ["Accept", "kept"]],
            "list": {"kind": "SecretList", "items": [{"data": MASK}]},
            "jwk": {"kty": "RSA", "n": "kept", "d": MASK},
            "row": {"field": "password", "content": MASK, "type": "kept", "other": MASK},
            "file": {"key": "kept", "size": 5, "etag": "kept"},
        });
        assert_eq!(json(&shown.to_string()), expected.to_string());
        let mut in_form = shown.clone();
        value_in_form(&mut in_form);
        assert_eq!(in_form, expected);
        value(&mut shown);
        assert_eq!(shown, expected);
    }

    #[test]
    fn lists_that_do_not_end_as_they_begin_are_hidden_to_the_end() {
        assert_eq!(
            json(r#"{"tokens": ["a" }, "swordfish"], "b": 1}"#),
            format!(r#"{{"tokens": "{MASK}""#)
        );
    }

    #[test]
    fn a_secret_that_is_not_json_is_hidden_up_to_the_next_member() {
        for hidden in [
            "'sword, fish'",
            "sword fish",
            "u\"sword, fish\"",
            "/* a */ \"fish\"",
            "// a, b\n \"fish\"",
            "# a, b\n \"fish\"",
            "/* a, b */ // c\n [\"fish\"]",
            "(\"a\", 1)",
            "tru",
        ] {
            let source = format!("{{\"password\": {hidden}, \"b\": 1}}");
            assert_eq!(
                json(&source),
                format!("{{\"password\": \"{MASK}\", \"b\": 1}}"),
                "{source}"
            );
        }
        for name in ["\"password\" /* a: b */", "\"password\" // a, b\n "] {
            let source = |value: &str| format!("{{{name}: {value}, \"b\": \"kept\"}}");
            assert_eq!(json(&source("\"fish\"")), source(&format!("\"{MASK}\"")), "{name}");
        }
    }

    #[test]
    fn json_inside_of_strings_is_masked_however_deep() {
        let mut source = r#"{"passwords": ["swordfish"], "a": "b"}"#.to_owned();
        for level in 0..12 {
            source = serde_json::json!({ "inner": source }).to_string();

            let shown = json(&source);

            assert!(!shown.contains("swordfish"), "{level}: {shown}");
            assert!(serde_json::from_str::<Value>(&shown).is_ok(), "{level}: {shown}");
        }
    }

    #[test]
    fn strings_are_masked_as_texts() {
        for (source, expected) in [
            (r#"{"a": "Bearer swordfish"}"#, r#"{"a": "Bearer #"}"#),
            (r#"["x", "https://me:pass@a.test/"]"#, r##"["x", "https://#@a.test/"]"##),
            (r#"{"a": "say \"token=abc\" twice"}"#, r#"{"a": "say \"token=#\" twice"}"#),
            (r#"{"a": "token=ab"#, r#"{"a": "token=#"#),
            (r#"{"a": "b", "c": ["d"]}"#, r#"{"a": "b", "c": ["d"]}"#),
            (r#"["curl", "-u", "me:fish", "b.test"]"#, r##"["curl", "-u", "me:#", "b.test"]"##),
            (r#"["docker", "-u", "me:kept"]"#, r#"["docker", "-u", "me:kept"]"#),
        ] {
            assert_eq!(json(source), expected.replace('#', MASK), "{source}");
        }
    }
}
