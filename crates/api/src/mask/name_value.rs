//! Pairs of a name and a value that are written as two members of one group: `{"name": "PASSWORD", "value": "x"}`,
//! `field=password value=x`, `["Authorization", "x"]` in a list of pairs.
//!
//! The value is hidden if the name is the name of a secret. JSON, YAML in braces, GraphQL, notations of programming
//! languages and lines of logs are read by one scanner, even if they are cut off. Forms, block YAML and XML find the
//! groups in their own way, and ask [`pair_role`] as well.

mod group;
mod words;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use self::group::{HiddenValue, PairGroup, PairValue, examined_part, strip_quotes};
use self::words::UnclosedQuotes;
use super::comments::CommentEnds;
use super::escapes::unescape_text;
use super::labels::{LabelReach, PairRole, is_list_of_words, is_type, member_role, pair_role};
use super::object_kinds::{KIND, SECRET_KINDS};
use super::{MASK, work};
use crate::secrets::{is_exact, is_scalar, is_secret, is_visible_scalar};

/// The largest depth of groups that are kept apart.
const MAX_DEPTH: usize = 256;

/// Returns the places of the values of `key` in JSON that are labels or names of files.
pub(super) fn key_labels(source: &str) -> BTreeSet<usize> {
    let has_key = source.contains("key\"") || source.contains("Key\"") || source.contains("KEY\"");
    if !has_key {
        return BTreeSet::new();
    }
    let mut scan = PairScan::new(source);
    scan.scan_text();
    scan.key_labels
}

/// Hides the values of pairs whose name is the name of a secret.
pub(super) fn mask_name_values(text: &str) -> Cow<'_, str> {
    let mut scan = PairScan::new(text);
    scan.scan_text();
    let mut hidden = scan.hidden;
    if hidden.is_empty() {
        return text.into();
    }
    hidden.sort_by_key(|found| (found.place.start, std::cmp::Reverse(found.place.end)));
    let mut masked = String::with_capacity(text.len());
    let mut copied = 0;
    for found in hidden {
        // It may be inside of a value that is hidden.
        if found.place.start < copied {
            continue;
        }
        masked.push_str(text.get(copied..found.place.start).unwrap_or_default());
        masked.extend([found.quote, MASK, found.quote]);
        copied = found.place.end;
    }
    masked.push_str(text.get(copied..).unwrap_or_default());
    masked.into()
}

struct PairScan<'a> {
    text: &'a str,
    at: usize,
    groups: Vec<PairGroup>,
    /// The number of open groups that are too deep; their members count as members of the deepest group.
    too_deep: usize,
    line: PairGroup,
    hidden: Vec<HiddenValue>,
    key_labels: BTreeSet<usize>,
    /// Searches for the end of a quoted text that found none.
    unclosed: UnclosedQuotes,
    comments: CommentEnds,
}

impl<'a> PairScan<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            groups: Vec::new(),
            too_deep: 0,
            line: PairGroup::default(),
            hidden: Vec::new(),
            key_labels: BTreeSet::new(),
            unclosed: UnclosedQuotes::default(),
            comments: CommentEnds::default(),
        }
    }

    fn scan_text(&mut self) {
        work::count_bytes(self.text.len());
        while let Some(&byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b'[' | b'{' | b'(' if self.groups.len() >= MAX_DEPTH => {
                    self.finish_item();
                    self.too_deep += 1;
                    self.at += 1;
                }
                b'[' | b'{' | b'(' => {
                    self.groups.push(PairGroup {
                        open: byte,
                        start: self.at,
                        ..PairGroup::default()
                    });
                    self.at += 1;
                }
                b']' | b'}' | b')' => self.close_bracket(byte),
                b',' | b'&' | b';' => {
                    self.finish_item();
                    self.at += 1;
                }
                b'\n' if self.groups.is_empty() => {
                    self.end_line();
                    self.at += 1;
                }
                // A tag is a group of its own.
                b'<' | b'>' if self.groups.is_empty() && !self.line.awaits_value() => {
                    self.end_line();
                    self.at += 1;
                }
                byte if byte.is_ascii_whitespace() => self.at += 1,
                _ => self.read_word(),
            }
        }
        while !self.groups.is_empty() {
            self.close_group(true);
        }
        self.end_line();
    }

    fn close_bracket(&mut self, byte: u8) {
        self.at += 1;
        let is_shallow = self.too_deep == 0;
        self.too_deep = self.too_deep.saturating_sub(1);
        let closes = |group: &PairGroup| is_bracket_pair(group.open, byte);
        if is_shallow && self.groups.last().is_some_and(closes) {
            self.close_group(false);
        } else {
            self.finish_item();
        }
    }

    fn current_group(&mut self) -> &mut PairGroup {
        self.groups.last_mut().unwrap_or(&mut self.line)
    }

    /// Reads a word or a quoted text: a key if a separator follows, else a part of a value.
    fn read_word(&mut self) {
        let start = self.at;
        let begins_value = self.current_group().awaits_value();
        let (end, quote) = self.word_end(start, begins_value);
        self.at = end.max(start + 1);
        let place = start..self.at;
        if !begins_value && let Some(after) = self.separator_end(place.clone(), quote) {
            self.finish_item();
            self.at = after;
            let name = strip_quotes(self.text.get(place.clone()).unwrap_or_default());
            let group = self.current_group();
            let role = match group.open {
                b'{' => member_role(name),
                _ => pair_role(name),
            };
            (group.role, group.has_key, group.quote) = (role, true, quote);
            group.key = place;
        } else {
            self.extend_item(place);
            let group = self.current_group();
            group.has_others |= !group.has_key;
        }
    }

    /// Adds a text or a closed group to the current item.
    fn extend_item(&mut self, place: Range<usize>) {
        let group = self.current_group();
        match &mut group.value {
            Some(value) => value.end = place.end,
            None => group.value = Some(place),
        }
    }

    fn finish_item(&mut self) {
        let text = self.text;
        let group = self.current_group();
        let value = group.value.take();
        let role = group.role.take();
        let has_key = std::mem::take(&mut group.has_key);
        let Some(place) = value else { return };
        match group.items {
            0 => group.first = Some(place.clone()),
            1 => group.second = Some(place.clone()),
            _ => {}
        }
        group.items += 1;
        group.has_keys |= has_key;
        if has_key && matches!(group.open, b'{' | 0) {
            group.add_kind_member(text, place.clone());
        }
        match role {
            Some(PairRole::Name) => {
                let written = text.get(place).unwrap_or_default();
                let name = examined_part(strip_quotes(written));
                let label = strip_quotes(text.get(group.key.clone()).unwrap_or_default());
                group.has_name |= !is_type(label);
                let is_group = name.starts_with(['[', '{', '(']) && !is_list_of_words(label, name);
                let name = unescape_text(name);
                let reach = LabelReach::from_label(label, &name).filter(|_| !is_group);
                if reach > group.secret.as_ref().map(|(_, reach)| *reach) {
                    group.secret = reach.map(|reach| (name.into_owned(), reach));
                }
            }
            Some(role) => {
                let quote = group.quote;
                let is_text = |place: Range<usize>| {
                    text.get(place).is_some_and(|value| value.starts_with(['"', '\'', '\\']))
                };
                // In lines and arguments, other members are not parts of the pair.
                if role != PairRole::Other || is_text(place.clone()) {
                    group.values.push(PairValue { role, value: HiddenValue { place, quote } });
                }
            }
            None => {}
        }
    }

    /// Closes a group; at the end of a text that is cut off, the group is not whole.
    fn close_group(&mut self, is_cut: bool) {
        self.finish_item();
        let Some(mut group) = self.groups.pop() else { return };
        let is_in_list = self.groups.last().is_some_and(|outer| outer.open == b'[');
        // The text may be cut off before the name.
        let is_unknown = is_cut && is_in_list && group.open == b'{' && !group.has_name;
        self.hide_values(&group, is_unknown);
        let inner_data = self.hide_kinds(&mut group);
        for key in &group.keys {
            let written = self.text.get(key.clone()).unwrap_or_default();
            if group.siblings.make_label(examined_part(strip_quotes(written))) {
                self.key_labels.insert(key.start);
            }
        }
        if group.open == b'[' && !group.has_keys && !group.has_others {
            self.hidden.extend_from_slice(&group.pairs);
        }
        let end = if is_cut { self.text.len() } else { self.at };
        let pair = self.pair_of(&group);
        if let Some(Some(value)) = pair.clone().filter(|_| self.is_call_with_text(&group)) {
            self.hidden.push(value);
        }
        let outer = self.current_group();
        add_to_larger(&mut outer.inner_data, inner_data);
        if outer.open == b'[' {
            match pair {
                Some(pair) => outer.pairs.extend(pair),
                None => outer.has_others = true,
            }
        }
        self.extend_item(group.start..end);
    }

    /// Returns `None` if a group is not a pair. Of a pair, returns the value if the name is the name of a secret.
    fn pair_of(&self, group: &PairGroup) -> Option<Option<HiddenValue>> {
        let name = self.text.get(group.first.clone()?)?;
        let is_pair = matches!(group.open, b'[' | b'(') && group.items == 2 && !group.has_keys;
        if !is_pair || !name.starts_with(['"', '\'']) {
            return None;
        }
        let place = group.second.clone()?;
        let value = self.text.get(place.clone()).unwrap_or_default();
        let is_hidden = is_secret(&unescape_text(examined_part(strip_quotes(name))))
            && !is_visible_scalar(strip_quotes(name), value, true)
            && !is_masked(value);
        let quote = if name.starts_with('"') { "\"" } else { "'" };
        Some(is_hidden.then_some(HiddenValue { place, quote }))
    }

    /// Returns true for the arguments of a call with the name of a secret and its text: `set("token", "x")`.
    fn is_call_with_text(&self, group: &PairGroup) -> bool {
        let item = |place: &Option<Range<usize>>| place.clone().and_then(|it| self.text.get(it));
        group.open == b'('
            && item(&group.first).is_some_and(|name| is_exact(examined_part(strip_quotes(name))))
            && item(&group.second).is_some_and(|value| value.starts_with(['"', '\'']))
    }

    fn end_line(&mut self) {
        self.finish_item();
        let mut line = std::mem::take(&mut self.line);
        self.hide_values(&line, false);
        self.hide_kinds(&mut line);
    }

    fn hide_values(&mut self, group: &PairGroup, is_unknown: bool) {
        let unknown = || is_unknown.then_some(("", LabelReach::Values));
        let secret = group.secret.as_ref().map(|(name, reach)| (name.as_str(), *reach));
        let Some((name, reach)) = secret.or_else(unknown) else { return };
        for PairValue { role, value } in group.values.iter().filter(|it| reach.hides_role(it.role))
        {
            let written = self.text.get(value.place.clone()).unwrap_or_default();
            let is_visible = match role {
                PairRole::Value => is_visible_scalar(name, written, !value.quote.is_empty()),
                _ => is_scalar(written),
            };
            if !is_masked(written) && !is_visible {
                self.hidden.push(value.clone());
            }
        }
    }

    /// Hides the members that the kind of an object hides. Returns the data of objects without a kind.
    fn hide_kinds(&mut self, group: &mut PairGroup) -> Vec<HiddenValue> {
        let mut inner_data = std::mem::take(&mut group.inner_data);
        for (kind, value) in std::mem::take(&mut group.kind_values) {
            let written = self.text.get(value.place.clone()).unwrap_or_default();
            let is_hidden = group.kinds.get(kind).is_some_and(|is_kind| *is_kind);
            let is_data = SECRET_KINDS.get(kind).is_some_and(|it| it.members.contains(&KIND));
            if is_masked(written) || is_scalar(written) {
                continue;
            }
            if is_hidden {
                self.hidden.push(value);
            } else if is_data && !group.has_kind {
                inner_data.push(value);
            }
        }
        if group.is_secret_list {
            self.hidden.append(&mut inner_data);
        }
        match group.has_kind {
            true => Vec::new(),
            false => inner_data,
        }
    }
}

/// Adds values, and copies only the fewer.
fn add_to_larger(values: &mut Vec<HiddenValue>, mut added: Vec<HiddenValue>) {
    if values.len() < added.len() {
        std::mem::swap(values, &mut added);
    }
    values.append(&mut added);
}

fn is_bracket_pair(open: u8, close: u8) -> bool {
    matches!((open, close), (b'[', b']') | (b'{', b'}') | (b'(', b')'))
}

fn is_masked(value: &str) -> bool {
    strip_quotes(value) == MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_pairs_are_hidden_in_all_notations() {
        for (source, expected) in [
            (r#"{"name": "PASSWORD", "value": "fish"}"#, r##"{"name": "PASSWORD", "value": "#"}"##),
            (
                "{\"name\" /* a */: /* b */ \"token\", \"value\" // c\n: \"fish\"}",
                "{\"name\" /* a */: /* b */ \"token\", \"value\" // c\n: \"#\"}",
            ),
            (r#"{"value":"fish","name":"db_pin"}"#, r##"{"value":"#","name":"db_pin"}"##),
            (r#"[{"Key":"a token","Value":["fish"]}]"#, r##"[{"Key":"a token","Value":"#"}]"##),
            (
                r#"{"name":"pass\u0077ord","value":{"a":"fish"}}"#,
                r##"{"name":"pass\u0077ord","value":"#"}"##,
            ),
            (
                r#"{"ParameterKey":"DbPassword","ParameterValue":"fish"}"#,
                r##"{"ParameterKey":"DbPassword","ParameterValue":"#"}"##,
            ),
            (r#"[{"name":"token","value":"fi"#, r##"[{"name":"token","value":"#""##),
            (r#"[{"value":"fi"#, r##"[{"value":"#""##),
            (
                r#"[["Cookie", "fish"], ["Accept", "kept"]]"#,
                r##"[["Cookie", "#"], ["Accept", "kept"]]"##,
            ),
            (r#"[["Cookie", "fi"#, r##"[["Cookie", "#""##),
            ("[('Cookie', 'fish'), ('Accept', 'kept')]", "[('Cookie', '#'), ('Accept', 'kept')]"),
            ("{'name': 'password', 'value': 'it\\'s fish'}", "{'name': 'password', 'value': '#'}"),
            ("Pair(name='password', value='fish')", "Pair(name='password', value=#)"),
            ("a.set(\"token\", \"sword, fish\");", "a.set(\"token\", \"#\");"),
            ("set('API_KEY', 'fish') set('b', 'kept')", "set('API_KEY', '#') set('b', 'kept')"),
            ("{:name=>\"password\", :value=>\"fish\"}", "{:name=>\"password\", :value=>#}"),
            ("- {name: PASSWORD, value: sword fish}", "- {name: PASSWORD, value: #}"),
            (
                "- {name: PASSWORD, value: https://a/b==, c: kept}",
                "- {name: PASSWORD, value: #, c: kept}",
            ),
            (
                "{ set(name: \"token\" value: \"fish\" b: 1) }",
                "{ set(name: \"token\" value: # b: 1) }",
            ),
            ("{\n  name: \"token\"\n  value: \"fish\"\n}", "{\n  name: \"token\"\n  value: #\n}"),
            (
                "level=info name=token value=fi=sh== user=kept",
                "level=info name=token value=# user=kept",
            ),
            ("field: password, value: \"fish\", kept", "field: password, value: #, kept"),
            (
                r#"a {\"name\": \"token\", \"value\": \"fish\"}"#,
                r##"a {\"name\": \"token\", \"value\": \"#\"}"##,
            ),
        ] {
            let expected = expected.replace('#', MASK);
            assert_eq!(mask_name_values(source), expected, "{source}");
            assert_eq!(mask_name_values(&expected), expected, "{source} twice");
        }
    }

    #[test]
    fn groups_of_any_depth_are_read() {
        let deep = "[".repeat(100_000) + r#"{"name": "token", "value": "swordfish"}"#;

        assert!(!mask_name_values(&deep).contains("swordfish"));
        assert_eq!(mask_name_values(&"a:".repeat(100_000)), "a:".repeat(100_000));
    }

    #[test]
    fn values_of_other_names_and_of_other_members_stay() {
        let tags = r#"<input name="password" value="$"><input name="user" value="kept">"#
            .replace('$', MASK);
        assert_eq!(mask_name_values(&tags), tags);
        assert_eq!(
            mask_name_values("field=password value=<fish>"),
            format!("field=password value={MASK}")
        );
        for source in [
            r#"{"name": "region", "value": "kept"}"#,
            r#"{"name": "max_tokens", "value": 5}"#,
            r#"{"name": "token", "value": null, "type": "kept", "count": 5}"#,
            r#"{"name": "auth-service", "full_name": "kept/auth-service", "content": "kept"}"#,
            r#"{"name": "password", "in": "kept", "description": "kept", "message": "kept"}"#,
            r#"{"name": "secret", "namespace": "kept", "uid": "kept"}"#,
            r#"{"name": "Cookie", "brand": "kept", "sku": "12"}"#,
            r#"{"title": "How to choose a password", "content": "kept"}"#,
            r#"{"id": "session_1", "content": "kept", "user": "kept"}"#,
            r#"{"method": "GET", "path": "/api/token", "user": "kept"}"#,
            r#"{"kind": "ConfigMap", "data": {"a": "kept"}}"#,
            r#"{"kind": "Deployment", "spec": {"data": {"a": "kept"}}}"#,
            r#"{"kind": "List", "items": [{"kind": "ConfigMap", "data": {"a": "kept"}}]}"#,
            r#"{"items": [{"data": {"a": "kept"}}]}"#,
            r#"{"code": "kept", "state": "kept"}"#,
            r#"{"kty": "RSA", "n": "kept", "e": "AQAB", "kid": "kept"}"#,
            r#"{"d": "kept", "p": "kept"}"#,
            r#"[{"name": "token"}, {"value": "kept"}]"#,
            r#"{"name": "token", "inner": {"value": "kept"}}"#,
            r#"{"type": "session.created", "data": {"value": "kept"}}"#,
            r#"{"required": ["password", "email"]}"#,
            r#"[["password", "email"], "kept"]"#,
            r#"{"value": "kept"#,
            "get(\"token\", kept)",
            "get(\"token\", \"kept\", 1)",
            "name: token\nvalue: kept",
            "it's {a: 'b'} of 5\" pipes",
            "",
        ] {
            assert_eq!(mask_name_values(source), source);
        }
    }
}
