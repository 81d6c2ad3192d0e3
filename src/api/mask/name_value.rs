//! Pairs of a name and a value that are written as two members of one group: `{"name": "PASSWORD", "value": "x"}`,
//! `field=password value=x`, `["Authorization", "x"]` in a list of pairs.
//!
//! The value is hidden if the name is the name of a secret. JSON, YAML in braces, GraphQL, notations of programming
//! languages and lines of logs are read by one scanner, even if they are cut off. Forms, block YAML and XML find the
//! groups in their own way, and ask [`pair_role`] as well.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use super::MASK;
use crate::api::secrets::{is_secret, is_visible_scalar, last_word};

/// The last words of members that have a name.
const NAMES: [&str; 14] = [
    "argument",
    "attribute",
    "env",
    "field",
    "header",
    "key",
    "name",
    "param",
    "parameter",
    "property",
    "setting",
    "var",
    "variable",
    "keyword",
];
/// The last words of members that have a value.
const VALUES: [&str; 5] = ["default", "val", "value", "values", "vals"];
/// Members that have a name or a value only if they have no other words.
const WHOLE_NAMES: [&str; 2] = ["id", "k"];
const WHOLE_VALUE: &str = "v";
/// Names are not longer than this, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The number of bytes of a name that are examined. Items contain groups, which are longer than names.
const MAX_EXAMINED_BYTES: usize = 1024;
/// The largest depth of groups that are kept apart.
const MAX_DEPTH: usize = 256;

/// The part of a pair that a member has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairRole {
    Name,
    Value,
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
    if WHOLE_NAMES.into_iter().any(is) {
        return Some(PairRole::Name);
    }
    let word = last_word(member);
    if VALUES.iter().any(|known| word.eq_ignore_ascii_case(known)) {
        return Some(PairRole::Value);
    }
    NAMES.iter().any(|known| word.eq_ignore_ascii_case(known)).then_some(PairRole::Name)
}

/// Returns for each member of an object whether its value is hidden, because of its own name or because of the name
/// that another member has. The second of each is the member's value if that is text.
pub fn secret_members<'a>(
    members: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone,
) -> Vec<bool> {
    let is_pair = members.clone().any(|(member, text)| {
        pair_role(member) == Some(PairRole::Name) && text.is_some_and(is_secret)
    });
    let is_value = |member| is_pair && pair_role(member) == Some(PairRole::Value);
    members.map(|(member, _)| is_value(member) || is_secret(member)).collect()
}

/// Returns true for a list of pairs, such as `[["Authorization", "x"], ["Accept", "y"]]`.
pub(super) fn is_list_of_pairs(items: &[Value]) -> bool {
    let mut pairs = items.iter().map(|item| item.as_array().map(Vec::as_slice));
    !items.is_empty() && pairs.all(|pair| matches!(pair, Some([Value::String(_), _])))
}

/// Hides the values of pairs whose name is the name of a secret.
pub(super) fn masked(text: &str) -> Cow<'_, str> {
    let mut scan = PairScan::new(text);
    scan.run();
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

/// A value to hide.
#[derive(Debug, Clone)]
struct HiddenValue {
    place: Range<usize>,
    /// The quote to write around the mask.
    quote: &'static str,
}

/// A value of a pair whose name may follow.
#[derive(Debug, Clone)]
struct PairValue {
    place: Range<usize>,
    quote: &'static str,
}

/// A list, an object or arguments in brackets, or a line outside of brackets.
#[derive(Debug, Default)]
struct PairGroup {
    /// The bracket that opens it; 0 for a line.
    open: u8,
    start: usize,
    /// The name of the secret, if a member has one.
    secret: Option<String>,
    has_name: bool,
    values: Vec<PairValue>,
    /// The key of the current item, if its name has a part in a pair.
    role: Option<PairRole>,
    /// The quote of the current key.
    quote: &'static str,
    has_key: bool,
    /// The place of the current item's value.
    value: Option<Range<usize>>,
    items: usize,
    first: Option<Range<usize>>,
    second: Option<Range<usize>>,
    /// The second items of the pairs in this list whose first is the name of a secret.
    pairs: Vec<HiddenValue>,
    /// True if an item has a key.
    has_keys: bool,
    /// True if an item is not a pair.
    has_others: bool,
}

impl PairGroup {
    /// Returns true if the value of a key follows.
    fn awaits_value(&self) -> bool {
        self.has_key && self.value.is_none()
    }
}

struct PairScan<'a> {
    text: &'a str,
    at: usize,
    groups: Vec<PairGroup>,
    /// The number of open groups that are too deep; their members count as members of the deepest group.
    too_deep: usize,
    line: PairGroup,
    hidden: Vec<HiddenValue>,
    /// Searches for the end of a quoted text that found none.
    unclosed: UnclosedQuotes,
    /// The number of bytes in which [`Self::quoted_end`] has looked for a quote.
    #[cfg(test)]
    searched: usize,
}

/// For each kind of quote, the end of the last search that found no closing quote.
///
/// A search passes over a quote only behind a backslash, and continues behind it as a search does that begins there.
/// Therefore no search that begins before this end finds a closing quote either.
#[derive(Debug, Default)]
struct UnclosedQuotes {
    /// In brackets: single and double quotes.
    in_groups: [usize; 2],
    /// Outside of brackets, where searches end with the line.
    in_line: [usize; 2],
}

impl UnclosedQuotes {
    fn end(&mut self, quote: u8, is_in_group: bool) -> &mut usize {
        let [single, double] = match is_in_group {
            true => &mut self.in_groups,
            false => &mut self.in_line,
        };
        if quote == b'"' { double } else { single }
    }
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
            unclosed: UnclosedQuotes::default(),
            #[cfg(test)]
            searched: 0,
        }
    }

    fn run(&mut self) {
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
                b']' | b'}' | b')' => {
                    self.at += 1;
                    if self.too_deep > 0 {
                        self.too_deep -= 1;
                        self.finish_item();
                    } else if self.groups.last().is_some_and(|group| closes(group.open, byte)) {
                        self.close(false);
                    } else {
                        self.finish_item();
                    }
                }
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
                _ => self.word(),
            }
        }
        while !self.groups.is_empty() {
            self.close(true);
        }
        self.end_line();
    }

    fn group(&mut self) -> &mut PairGroup {
        self.groups.last_mut().unwrap_or(&mut self.line)
    }

    /// Reads a word or a quoted text: a key if a separator follows, else a part of a value.
    fn word(&mut self) {
        let start = self.at;
        let begins_value = self.group().awaits_value();
        let (end, quote) = self.word_end(start, begins_value);
        self.at = end.max(start + 1);
        let place = start..self.at;
        if !begins_value && let Some(after) = self.separator_end(place.clone(), quote) {
            self.finish_item();
            self.at = after;
            let role = pair_role(unquoted(self.text.get(place).unwrap_or_default()));
            let group = self.group();
            (group.role, group.has_key, group.quote) = (role, true, quote);
        } else {
            self.take(place);
            let group = self.group();
            group.has_others |= !group.has_key;
        }
    }

    /// Returns the end of a word, and its quote.
    fn word_end(&mut self, start: usize, is_value: bool) -> (usize, &'static str) {
        let text = self.text;
        let bytes = text.as_bytes();
        let rest = text.get(start..).unwrap_or_default();
        if let Some(quoted) = rest.strip_prefix("\\\"") {
            return match quoted.find("\\\"") {
                Some(length) => (start + length + 4, "\\\""),
                None => (self.text.len(), "\\\""),
            };
        }
        if let Some(quote @ (b'"' | b'\'')) = bytes.get(start).copied()
            && let Some(end) = self.quoted_end(start, quote)
        {
            return (end, if quote == b'"' { "\"" } else { "'" });
        }
        let mut at = start;
        while let Some(&byte) = bytes.get(at) {
            let ends = match byte {
                b',' | b'[' | b']' | b'{' | b'}' | b'(' | b')' => true,
                b'&' | b';' => true,
                b'"' | b'\'' => at > start,
                b':' | b'=' => at > start && !is_value && self.is_separator(start..at),
                byte => byte.is_ascii_whitespace(),
            };
            if ends {
                break;
            }
            at += 1;
        }
        (at, "")
    }

    /// Returns the end of a quoted text; `None` for an apostrophe.
    fn quoted_end(&mut self, start: usize, quote: u8) -> Option<usize> {
        let text = self.text;
        let bytes = text.as_bytes();
        let before = start.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(b' ');
        if quote == b'\'' && (before.is_ascii_alphanumeric() || before >= 0x80) {
            return None;
        }
        let is_in_group = !self.groups.is_empty();
        let without_close = (is_in_group && quote == b'"').then_some(bytes.len());
        if start < *self.unclosed.end(quote, is_in_group) {
            return without_close;
        }
        let mut at = start + 1;
        let mut closed = None;
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'\\' => at += 1,
                // Outside of brackets, a quoted text is in one line.
                b'\n' if !is_in_group => break,
                byte if byte == quote => {
                    closed = Some(at + 1);
                    break;
                }
                _ => {}
            }
            at += 1;
        }
        #[cfg(test)]
        {
            self.searched += at - start;
        }
        if closed.is_none() {
            *self.unclosed.end(quote, is_in_group) = at;
        }
        closed.or(without_close)
    }

    /// Returns true if the colon or the equals sign behind an unquoted word makes it a key.
    fn is_separator(&self, word: Range<usize>) -> bool {
        let rest = self.text.get(word.end..).unwrap_or_default();
        let word = self.text.get(word).unwrap_or_default();
        let next = rest.as_bytes().get(1).copied().unwrap_or(b' ');
        if word.len() > MAX_NAME_BYTES {
            return false;
        }
        if pair_role(word).is_some() {
            return true;
        }
        let is_name = word.bytes().all(|it| it.is_ascii_alphanumeric() || b"_-.$%@".contains(&it));
        match rest.starts_with(':') {
            true => is_name && (next.is_ascii_whitespace() || b"\"'[{(".contains(&next)),
            false => is_name && next != b'=' && !next.is_ascii_whitespace(),
        }
    }

    /// Returns the place behind the separator that follows a key; `None` if the text is not a key.
    fn separator_end(&self, word: Range<usize>, quote: &str) -> Option<usize> {
        let rest = self.text.get(word.end..).unwrap_or_default();
        let trimmed = rest.trim_start();
        let length =
            ["=>", ":", "="].iter().find(|it| trimmed.starts_with(**it)).map(|it| it.len())?;
        if quote.is_empty() && trimmed.len() == rest.len() && !self.is_separator(word) {
            return None;
        }
        let after = trimmed.get(length..).unwrap_or_default();
        (!after.starts_with('=')).then_some(self.text.len() - after.len())
    }

    /// Adds a text or a closed group to the current item.
    fn take(&mut self, place: Range<usize>) {
        let group = self.group();
        match &mut group.value {
            Some(value) => value.end = place.end,
            None => group.value = Some(place),
        }
    }

    fn finish_item(&mut self) {
        let text = self.text;
        let group = self.group();
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
        match role {
            Some(PairRole::Name) => {
                let name = examined_part(unquoted(text.get(place).unwrap_or_default()));
                group.has_name = true;
                if !name.starts_with(['[', '{', '(']) && is_secret(&decoded(name)) {
                    group.secret = Some(name.to_owned());
                }
            }
            Some(PairRole::Value) => {
                let quote = group.quote;
                group.values.push(PairValue { place, quote });
            }
            None => {}
        }
    }

    /// Closes a group; at the end of a text that is cut off, the group is not whole.
    fn close(&mut self, is_cut: bool) {
        self.finish_item();
        let Some(group) = self.groups.pop() else { return };
        let is_in_list = self.groups.last().is_some_and(|outer| outer.open == b'[');
        // The text may be cut off before the name.
        let is_unknown = is_cut && is_in_list && group.open == b'{' && !group.has_name;
        self.hide_values(&group, is_unknown);
        if group.open == b'[' && !group.has_keys && !group.has_others {
            self.hidden.extend_from_slice(&group.pairs);
        }
        let end = if is_cut { self.text.len() } else { self.at };
        let pair = self.pair_of(&group);
        let outer = self.group();
        if outer.open == b'[' {
            match pair {
                Some(pair) => outer.pairs.extend(pair),
                None => outer.has_others = true,
            }
        }
        self.take(group.start..end);
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
        let is_hidden = is_secret(&decoded(examined_part(unquoted(name))))
            && !is_visible_scalar(unquoted(name), value, true)
            && !is_masked(value);
        let quote = if name.starts_with('"') { "\"" } else { "'" };
        Some(is_hidden.then_some(HiddenValue { place, quote }))
    }

    fn end_line(&mut self) {
        self.finish_item();
        let line = std::mem::take(&mut self.line);
        self.hide_values(&line, false);
    }

    fn hide_values(&mut self, group: &PairGroup, is_unknown: bool) {
        let Some(name) = group.secret.as_deref().or(is_unknown.then_some("")) else { return };
        for PairValue { place, quote } in &group.values {
            let value = self.text.get(place.clone()).unwrap_or_default();
            if !is_masked(value) && !is_visible_scalar(name, value, !quote.is_empty()) {
                self.hidden.push(HiddenValue { place: place.clone(), quote });
            }
        }
    }
}

fn closes(open: u8, close: u8) -> bool {
    matches!((open, close), (b'[', b']') | (b'{', b'}') | (b'(', b')'))
}

fn is_masked(value: &str) -> bool {
    unquoted(value) == MASK
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(['"', '\'', '\\'])
}

/// Returns the beginning of a name if it is too long.
fn examined_part(name: &str) -> &str {
    let mut end = name.len().min(MAX_EXAMINED_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}

/// A name whose escapes are read, if it has some.
fn decoded(name: &str) -> Cow<'_, str> {
    let read = || serde_json::from_str(&format!("\"{name}\"")).ok().map(Cow::Owned);
    name.contains('\\').then(read).flatten().unwrap_or(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_pairs_are_hidden_in_all_notations() {
        for (source, expected) in [
            (r#"{"name": "PASSWORD", "value": "fish"}"#, r##"{"name": "PASSWORD", "value": "#"}"##),
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
            assert_eq!(masked(source), expected, "{source}");
            assert_eq!(masked(&expected), expected, "{source} twice");
        }
    }

    #[test]
    fn groups_of_any_depth_are_read() {
        let deep = "[".repeat(100_000) + r#"{"name": "token", "value": "swordfish"}"#;

        assert!(!masked(&deep).contains("swordfish"));
        assert_eq!(masked(&"a:".repeat(100_000)), "a:".repeat(100_000));
    }

    #[test]
    fn each_byte_is_searched_for_a_closing_quote_at_most_four_times() {
        for piece in
            ["\\'", "\\\"", "'\\\"", "'a\\' \"b\\\"", "[\\'", "(\\\"]", "\\\n'", "\\'\n\\\""]
        {
            for start in ["", "'", "\"", "['", "[\"", "{'\"", "\"'"] {
                let text = start.to_owned() + &piece.repeat(10_000);
                let mut scan = PairScan::new(&text);

                scan.run();

                assert!(scan.searched <= 4 * text.len(), "{start} {piece}: {}", scan.searched);
            }
        }
    }

    #[test]
    fn an_unclosed_quote_hides_no_later_quoted_text() {
        for (source, expected) in [
            ("'a\n{'name': 'token', 'value': 'fi, sh'}", "'a\n{'name': 'token', 'value': '#'}"),
            ("\"a\\\" \nname=\"token\" value=\"f, ish\"", "\"a\\\" \nname=\"token\" value=#"),
        ] {
            assert_eq!(masked(source), expected.replace('#', MASK), "{source}");
        }
    }

    #[test]
    fn values_of_other_names_and_of_other_members_stay() {
        let tags = r#"<input name="password" value="$"><input name="user" value="kept">"#
            .replace('$', MASK);
        assert_eq!(masked(&tags), tags);
        assert_eq!(masked("field=password value=<fish>"), format!("field=password value={MASK}"));
        for source in [
            r#"{"name": "region", "value": "kept"}"#,
            r#"{"name": "max_tokens", "value": 5}"#,
            r#"{"name": "token", "value": null, "other": "kept"}"#,
            r#"[{"name": "token"}, {"value": "kept"}]"#,
            r#"{"name": "token", "inner": {"value": "kept"}}"#,
            r#"{"type": "session.created", "data": {"value": "kept"}}"#,
            r#"{"required": ["password", "email"]}"#,
            r#"[["password", "email"], "kept"]"#,
            r#"{"value": "kept"#,
            "name: token\nvalue: kept",
            "it's {a: 'b'} of 5\" pipes",
            "",
        ] {
            assert_eq!(masked(source), source);
        }
    }
}
