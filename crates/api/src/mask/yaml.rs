//! YAML in lines, even where it is cut off. Values in brackets are masked as texts are.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::sync::LazyLock;

use regex::Regex;

use super::descriptions::is_schema_block;
use super::labels::{LabelReach, PairRole, pair_role};
use super::object_kinds::{KIND, SECRET_DATA, SECRET_KIND, SECRET_KINDS, SECRET_LIST_KIND};
use super::{MASK, anchors, brackets, escapes, sentences, text, work};
use crate::secrets::{is_secret, is_visible_scalar};

/// A line with a key: the text before the key, the key, and the text between the key and its value.
const KEY: &str = r#"(?x)^
    (?P<before>\s*(?:-\s+)*(?:\?\s+)?(?:[!&][^\s]*\s+)*)
    (?P<key>"(?:[^"\\]|\\.)*"|'(?:[^']|\'\')*'|\*[^\s\[\]{},]+
        |[A-Za-z0-9_.$%/\u{80}-\u{10ffff}-]
         (?:[A-Za-z0-9_.$%/()@+'&\u{80}-\u{10ffff}\ -]*[A-Za-z0-9_.$%/()\u{80}-\u{10ffff}-])?)
    (?P<between>\s*:(?:\s+|$)|\s*$)
"#;
/// A line with the mark of an explicit key, whose text is in the next lines.
const KEY_BELOW: &str = r"^\s*(?:-\s+)*\?\s*(?:[!&][^\s]*\s+)*(?:[|>][0-9+-]*)?\s*(?:#.*)?$";

/// YAML without the values of secrets. If it is declared to be YAML, numbers, booleans and null stay.
pub(super) fn mask_yaml(source: &str, is_declared: bool) -> String {
    let pairs = secret_pairs(source);
    let keys_below = keys_below(source);
    let scalars = anchors::anchor_scalars(source);
    anchors::mask_anchors(source, |anchors| {
        let (pairs, keys_below, scalars) = (&pairs, &keys_below, &scalars);
        let lines = Lines { is_declared, anchors, pairs, keys_below, scalars };
        let masked = lines.mask_lines(source);
        let masked = anchors::hide_alias_keys(&masked, scalars);
        text::mask_loose_with(&masked, is_declared).into_owned()
    })
}

/// Masks the values below the names of secrets, and values that are known to be secret.
struct Lines<'a> {
    is_declared: bool,
    /// The anchors whose nodes are hidden.
    anchors: &'a BTreeSet<String>,
    /// The names of pairs by the number of the line that has the value.
    pairs: &'a BTreeMap<usize, String>,
    /// The keys whose text is below their mark, by the number of the line that has the mark.
    keys_below: &'a BTreeMap<usize, String>,
    /// The texts of anchors.
    scalars: &'a BTreeMap<&'a str, &'a str>,
}

impl<'a> Lines<'a> {
    /// Returns the key or the item whose value is hidden, if a line has one.
    fn hidden_key(&self, number: usize, line: &'a str) -> Option<SecretKey<'a>> {
        if let Some(name) = self.keys_below.get(&number) {
            return is_secret(name).then(|| key_below(name, line));
        }
        let mut found = key_in(line)?;
        if let Some(name) = self.pairs.get(&number) {
            found.name = Cow::Borrowed(name);
            return Some(found);
        }
        if let Some(alias) = found.name.strip_prefix('*') {
            // A key that cannot be resolved may be the name of a secret.
            let alias = alias.trim_end_matches(':');
            let text = self.scalars.get(alias).filter(|_| !is_secret(alias));
            found.name = text.map_or("secret".into(), |text| scalar_text(text));
        }
        let value = line.get(found.value_start..).unwrap_or_default();
        let is_hidden = !found.is_item && is_secret(&found.name)
            || anchors::leading_anchors(value).any(|anchor| self.anchors.contains(anchor));
        is_hidden.then_some(found)
    }

    fn mask_lines(&self, source: &'a str) -> String {
        hide_lines(source, self.is_declared, |number, line| self.hidden_key(number, line))
    }
}

/// Hides the values of the keys and items that `hidden` returns for the lines.
fn hide_lines<'a>(
    source: &'a str,
    is_declared: bool,
    hidden: impl Fn(usize, &'a str) -> Option<SecretKey<'a>>,
) -> String {
    let mut masked = String::with_capacity(source.len());
    let mut lines = source.split_inclusive('\n').enumerate().peekable();
    let mut offset = 0;
    while let Some((number, line)) = lines.next() {
        work::count_bytes(line.len());
        let line_start = offset;
        offset += line.len();
        match hidden(number, line) {
            Some(key) => {
                let value = SecretValue::find(source, line, line_start, key, &mut lines);
                offset = value.end;
                value.write_masked(is_declared, &mut masked);
            }
            None => masked.push_str(line),
        }
    }
    masked
}

/// The value of a key or item that is hidden, with the lines that belong to it.
struct SecretValue<'a> {
    key: SecretKey<'a>,
    line: &'a str,
    /// The lines below that belong to the value.
    block: &'a str,
    /// Empty lines and comments behind it.
    blank: &'a str,
    /// The place behind `blank`.
    end: usize,
}

impl<'a> SecretValue<'a> {
    /// Takes the lines of the value that begins in a line.
    fn find(
        source: &'a str,
        line: &'a str,
        line_start: usize,
        key: SecretKey<'a>,
        lines: &mut Peekable<impl Iterator<Item = (usize, &'a str)>>,
    ) -> Self {
        let value = line.get(key.value_start..).unwrap_or_default().trim_end();
        let flow_end = match value.starts_with(['[', '{']) {
            true => brackets::group_end(source, line_start + key.value_start),
            false => 0,
        };
        let mut open_quote = open_quote(value);
        let block_start = line_start + line.len();
        let mut end = block_start;
        // Empty lines and comments belong to the value only if more of it follows.
        let mut block_end = block_start;
        while let Some((_, next)) = lines.peek().copied() {
            work::count_bytes(next.len());
            if end < flow_end || open_quote.is_some() || key.contains_line(next, value) {
                open_quote = open_quote.filter(|quote| !next.contains(*quote));
                block_end = end + next.len();
            } else if !is_blank(next) {
                break;
            }
            end += next.len();
            lines.next();
        }
        let text = |start, end| source.get(start..end).unwrap_or_default();
        Self { key, line, block: text(block_start, block_end), blank: text(block_end, end), end }
    }

    fn write_masked(&self, is_declared: bool, masked: &mut String) {
        let (start, value) = self.line.split_at(self.key.value_start);
        let value = value.trim_end();
        masked.push_str(start);
        if is_declared
            && value.is_empty()
            && (is_list_of_numbers(self.block) || is_schema_block(self.block))
        {
            masked.push_str(self.line.get(self.key.value_start..).unwrap_or_default());
            masked.push_str(self.block);
        } else {
            if self.block.is_empty() && self.is_visible(value, is_declared) {
                masked.push_str(value);
            } else {
                if !start.ends_with([' ', '\t']) {
                    masked.push(' ');
                }
                masked.push_str(MASK);
            }
            if self.line.ends_with('\n') {
                masked.push('\n');
            }
        }
        masked.push_str(self.blank);
    }

    fn is_visible(&self, value: &str, is_declared: bool) -> bool {
        let name = &self.key.name;
        let scalar = value.split(" #").next().unwrap_or_default();
        value.is_empty()
            || is_visible_scalar(name, scalar, is_declared)
            || !is_declared && sentences::is_sentence_about(name, value)
    }
}

/// Returns true for lines that are items of a list and whose values are visible below the name of a secret.
fn is_list_of_numbers(block: &str) -> bool {
    let lines = block.lines().filter(|line| !is_blank(line));
    let items: Option<Vec<&str>> = lines.map(|line| line.trim().strip_prefix("- ")).collect();
    let items = items.filter(|items| !items.is_empty());
    items.is_some_and(|items| is_visible_scalar("", &format!("[{}]", items.join(",")), true))
}

/// Returns true for a line that is empty or a comment.
fn is_blank(line: &str) -> bool {
    let text = line.trim();
    text.is_empty() || text.starts_with('#')
}

/// Returns the quote of a value that is not closed in its line.
fn open_quote(value: &str) -> Option<char> {
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    let mut escaped = false;
    for letter in value.chars().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            _ if letter == quote => return None,
            _ => {}
        }
    }
    Some(quote)
}

/// Returns true if a text has several lines, and each of them may be one of YAML.
pub(super) fn looks_like_yaml(text: &str) -> bool {
    text.trim_end().contains('\n')
        && text.lines().all(|line| {
            let start = line.trim_start();
            start.is_empty()
                || start.len() < line.len()
                || start.starts_with(['#', '-', '?', ':', '}', ']'])
                || start == "..."
                || key_of(line).is_some_and(|key| !key.between.trim().is_empty())
        })
}

/// A key that is the name of a secret.
struct SecretKey<'a> {
    name: Cow<'a, str>,
    /// How far the key is indented, in characters.
    indent: usize,
    /// How far the mark of an explicit key is indented; the key's own indent if it has none.
    outer: usize,
    /// True for an item of a list that has no key.
    is_item: bool,
    /// True for a key with a question mark, whose value is in a line of its own.
    is_explicit: bool,
    /// The position of the value in its line.
    value_start: usize,
}

impl SecretKey<'_> {
    /// Returns true if a line belongs to the value of this key.
    fn contains_line(&self, line: &str, value: &str) -> bool {
        let text = line.trim();
        if is_blank(line) {
            return false;
        }
        let indent = line.len() - line.trim_start().len();
        let begins_below = value.is_empty() || value.starts_with(['&', '!', '#']);
        match indent {
            indent if indent > self.outer => indent > self.indent || self.is_explicit,
            indent if indent == self.indent && !self.is_item => {
                begins_below && (text == "-" || text.starts_with("- "))
            }
            indent => self.is_explicit && indent == self.outer && text.starts_with(':'),
        }
    }
}

struct KeyLine<'a> {
    before: &'a str,
    key: &'a str,
    between: &'a str,
    end: usize,
}

fn key_of(line: &str) -> Option<KeyLine<'_>> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(KEY).ok());
    let found = PATTERN.as_ref()?.captures(line)?;
    let part = |name| found.name(name).map_or("", |part| part.as_str());
    let end = found.get(0)?.as_str().trim_end_matches(['\r', '\n']).len();
    Some(KeyLine { before: part("before"), key: part("key"), between: part("between"), end })
}

/// Returns the key of a line, or its item if that begins with an anchor.
fn key_in(line: &str) -> Option<SecretKey<'_>> {
    let Some(KeyLine { before, key, between, end }) = key_of(line) else { return item_in(line) };
    let is_explicit = before.contains('?');
    if between.trim().is_empty() && !is_explicit {
        return item_in(line);
    }
    let name = scalar_text(key);
    let indent = before.find(['!', '&']).unwrap_or(before.len());
    let outer = match is_explicit {
        true => before.find('?').unwrap_or(indent),
        false => indent,
    };
    Some(SecretKey { indent, outer, is_item: false, is_explicit, value_start: end, name })
}

/// Returns the text of a scalar that may be in quotes.
fn scalar_text(written: &str) -> Cow<'_, str> {
    match written.as_bytes().first() {
        Some(b'"') => escapes::unescape_text(written.trim_matches('"')),
        Some(b'\'') => written.trim_matches('\'').replace("\'\'", "'").into(),
        _ => written.into(),
    }
}

/// Returns a key whose text is below its mark.
fn key_below<'a>(name: &'a str, line: &str) -> SecretKey<'a> {
    let outer = line.find('?').unwrap_or_default();
    SecretKey {
        indent: outer + 1,
        outer,
        is_item: false,
        is_explicit: true,
        value_start: line.trim_end().len(),
        name: Cow::Borrowed(name),
    }
}

/// Finds the keys whose text is below their mark, by the number of the line that has the mark.
fn keys_below(source: &str) -> BTreeMap<usize, String> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(KEY_BELOW).ok());
    let mut keys: BTreeMap<usize, String> = BTreeMap::new();
    let mut open: Option<(usize, usize)> = None;
    let pattern = PATTERN.as_ref().filter(|_| source.contains('?'));
    for (number, line) in source.lines().enumerate().filter(|_| pattern.is_some()) {
        let indent = line.len() - line.trim_start().len();
        if pattern.is_some_and(|pattern| line.contains('?') && pattern.is_match(line)) {
            open = line.find('?').map(|outer| (number, outer));
            keys.insert(number, String::new());
        } else if let Some((number, outer)) = open.filter(|_| !line.trim().is_empty()) {
            match keys.get_mut(&number).filter(|_| indent > outer) {
                Some(name) if name.len() < MAX_KEY_BYTES => {
                    name.push_str(&scalar_text(line.trim()))
                }
                Some(_) => {}
                None => open = None,
            }
        }
    }
    keys
}

/// Longer texts are not keys, in bytes.
const MAX_KEY_BYTES: usize = 256;

/// Returns the item of a list that begins with an anchor.
fn item_in(line: &str) -> Option<SecretKey<'_>> {
    let value_start = line.find('&')?;
    let before = line.get(..value_start)?;
    let indent = before.rfind('-')?;
    let is_item = before.bytes().all(|byte| byte == b' ' || byte == b'-');
    is_item.then_some(SecretKey {
        indent,
        outer: indent,
        is_item,
        is_explicit: false,
        value_start,
        name: Cow::Borrowed(""),
    })
}

/// A mapping whose keys may be the name and the value of a pair.
#[derive(Default)]
struct Mapping {
    /// How far its keys are indented.
    column: usize,
    /// The name of the secret, if a key has one, and its reach.
    secret: Option<(String, LabelReach)>,
    /// The numbers of the lines with values.
    values: Vec<(usize, PairRole)>,
    /// The kind of an object of Kubernetes.
    kind: String,
    /// The numbers of the lines with data of a Secret of Kubernetes.
    data: Vec<usize>,
    /// The same of mappings in this one that have no kind.
    inner_data: Vec<usize>,
    /// The kinds of objects that this is one of, besides those of Kubernetes, and the lines that each of them hides.
    kinds: [bool; SECRET_KINDS.len()],
    kind_lines: Vec<(usize, usize)>,
}

impl Mapping {
    fn add_key(&mut self, key: &SecretKey<'_>, number: usize, line: &str, below: &str) {
        if SECRET_DATA.contains(&&*key.name) {
            self.data.push(number);
        }
        self.add_kinds(&key.name, number);
        let role = pair_role(&key.name);
        if role != Some(PairRole::Name) && key.name != KIND {
            self.values.extend(role.map(|role| (number, role)));
            return;
        }
        let value = line.get(key.value_start..).unwrap_or_default();
        let value = value.split(" #").next().unwrap_or_default().trim();
        let written = match value.is_empty() || value.starts_with(['>', '|']) {
            true => below.trim_start_matches(':').trim(),
            false => value,
        };
        let text = scalar_text(written);
        if key.name == KIND {
            self.kind = text.into_owned();
        } else if let Some(reach) = LabelReach::from_label(&key.name, &text) {
            self.secret = Some((text.into_owned(), reach));
        }
    }

    fn add_kinds(&mut self, member: &str, number: usize) {
        for (kind, (is_kind, known)) in self.kinds.iter_mut().zip(&SECRET_KINDS).enumerate() {
            *is_kind |= known.is_of(member, "");
            if !known.members.contains(&KIND) && known.hidden.contains(&member) {
                self.kind_lines.push((kind, number));
            }
        }
    }

    /// Adds the lines that are hidden. Returns the lines with data of mappings without a kind.
    fn add_lines(self, pairs: &mut BTreeMap<usize, String>) -> Vec<usize> {
        if let Some((name, reach)) = self.secret {
            let hidden = self.values.iter().filter(|(_, role)| reach.hides_role(*role));
            pairs.extend(hidden.map(|(number, _)| (*number, name.clone())));
        }
        let is_kind = |kind: usize| self.kinds.get(kind).is_some_and(|is_kind| *is_kind);
        let lines = self.kind_lines.iter().filter(|(kind, _)| is_kind(*kind));
        pairs.extend(lines.map(|(_, number)| (*number, SECRET_KIND.to_owned())));
        let (own, inner) = (self.data, self.inner_data);
        let hidden = match self.kind.as_str() {
            "" => return [inner, own].concat(),
            SECRET_KIND => own,
            SECRET_LIST_KIND => [inner, own].concat(),
            _ => Vec::new(),
        };
        pairs.extend(hidden.into_iter().map(|number| (number, SECRET_KIND.to_owned())));
        Vec::new()
    }
}

/// Finds values whose names are those of secrets, such as `- name: PASSWORD` and `value: …` in the next line, and the
/// data of Secrets of Kubernetes.
///
/// Returns the names by the number of the line with the value.
fn secret_pairs(source: &str) -> BTreeMap<usize, String> {
    let mut pairs = BTreeMap::new();
    let mut open: Vec<Mapping> = Vec::new();
    let mut lines = source.split_inclusive('\n').enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        work::count_bytes(line.len());
        // The value of an explicit key does not end its mapping.
        if is_blank(line) || line.trim_start().starts_with(':') {
            continue;
        }
        if line.starts_with("---") || line.starts_with("...") {
            close_mappings(&mut open, &mut pairs, |_| true);
        }
        let key = key_in(line).filter(|key| !key.is_item);
        let column = key.as_ref().map_or(line.len() - line.trim_start().len(), |key| key.indent);
        let indent = line.len() - line.trim_start_matches(' ').len();
        let begins_item = line.trim_start().starts_with('-');
        close_mappings(&mut open, &mut pairs, |mapping| match begins_item {
            true => mapping.column > indent,
            false => mapping.column > column,
        });
        let Some(key) = key else { continue };
        if open.last().is_none_or(|mapping| mapping.column != column) {
            open.push(Mapping { column, ..Mapping::default() });
        }
        let Some(mapping) = open.last_mut() else { continue };
        // The text may be in the next line, as a text of several lines or behind an explicit key.
        let below = lines.peek().map_or("", |(_, next)| next.trim());
        mapping.add_key(&key, number, line, below);
    }
    close_mappings(&mut open, &mut pairs, |_| true);
    pairs
}

fn close_mappings(
    open: &mut Vec<Mapping>,
    pairs: &mut BTreeMap<usize, String>,
    is_closed: impl Fn(&Mapping) -> bool,
) {
    while let Some(mapping) = open.pop_if(|mapping| is_closed(mapping)) {
        let mut data = mapping.add_lines(pairs);
        if let Some(outer) = open.last_mut() {
            if outer.inner_data.len() < data.len() {
                std::mem::swap(&mut outer.inner_data, &mut data);
            }
            outer.inner_data.append(&mut data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_below_secret_names_are_hidden_and_nothing_else_changes() {
        for (source, expected) in [
            ("a: b\npassword: sword fish # c\nd: e\n", "a: b\npassword: @\nd: e\n"),
            ("passwords:\n  - sword\n  - fish\nother: kept\n", "passwords: @\nother: kept\n"),
            ("passwords:\n- sword\n- fish\nother: kept\n", "passwords: @\nother: kept\n"),
            ("password: >\n  sword\n\n  fish\nother: kept", "password: @\nother: kept"),
            ("password: |-\n  sword\nother: kept", "password: @\nother: kept"),
            ("password: &a !!str\n  sword\nother: kept", "password: @\nother: kept"),
            ("password: sword\n  fish\nother: kept", "password: @\nother: kept"),
            ("password: \"sword\nfish\"\nother: kept", "password: @\nother: kept"),
            ("password: {a: sword,\n  b: fish}\nother: kept", "password: @\nother: kept"),
            ("- password:\n    a: fish\n  other: kept\n", "- password: @\n  other: kept\n"),
            ("\"pass\\u0077ord\": fish\n'token': fish\n", "\"pass\\u0077ord\": @\n'token': @\n"),
            ("? password\n: fish\nother: kept\n", "? password @\nother: kept\n"),
            (
                "max_tokens: 4096\nnext_token: null\ncsrf: true\n",
                "max_tokens: 4096\nnext_token: null\ncsrf: true\n",
            ),
            ("token:\nother: kept\n", "token:\nother: kept\n"),
            ("password:\r\n  fish\r\nother: kept\r\n", "password: @\nother: kept\r\n"),
            ("passwords:\n  - fi", "passwords: @\n"),
            ("passwords: [\n\"fish\"\n]\nother: kept\n", "passwords: @\nother: kept\n"),
            ("passwords: [fish\nother: hidden\n", "passwords: @\n"),
            ("token:\n\n# c\nother: kept\n", "token:\n\n# c\nother: kept\n"),
            ("token:\n\n# c\n  fish\n\nother: kept\n", "token: @\n\nother: kept\n"),
        ] {
            assert_eq!(mask_yaml(source, true), expected.replace('@', MASK), "{source}");
        }
        let sentence = "a: b\nauthorization: see the manual\n";
        assert_eq!(mask_yaml(sentence, false), sentence);
        assert_eq!(
            mask_yaml("pin: 1234\nmax_tokens: 1\n", false),
            format!("pin: {MASK}\nmax_tokens: 1\n")
        );
    }

    #[test]
    fn values_in_pairs_with_a_secret_name_are_hidden() {
        for (source, expected) in [
            (
                "env:\n- name: PASSWORD\n  value: fish\n- name: A\n  value: kept\n",
                "env:\n- name: PASSWORD\n  value: @\n- name: A\n  value: kept\n",
            ),
            (
                "env:\n  - value: >\n      fish\n    # c\n    name: \"PASSWORD\"\n  - name: A\n    value: kept\n",
                "env:\n  - value: @\n    # c\n    name: \"PASSWORD\"\n  - name: A\n    value: kept\n",
            ),
            (
                "name: token\nnested:\n  value: kept\nvalue: fish\n",
                "name: token\nnested:\n  value: kept\nvalue: @\n",
            ),
            (
                "- name: >-\n    TOKEN\n  value: fish\n- name: A\n  value: kept\n",
                "- name: >-\n    TOKEN\n  value: @\n- name: A\n  value: kept\n",
            ),
            ("? name\n: TOKEN\n? value\n: fish\n", "? name\n: TOKEN\n? value @\n"),
            ("name: token\n---\nvalue: kept\n", "name: token\n---\nvalue: kept\n"),
            ("- field: password\n  content: fish\n", "- field: password\n  content: @\n"),
            ("- name: auth-service\n  content: kept\n", "- name: auth-service\n  content: kept\n"),
            ("- name: \"pass\\x77ord\"\n  value: fish\n", "- name: \"pass\\x77ord\"\n  value: @\n"),
            (
                "- {name: PASSWORD, value: fish}\n- {name: A, value: kept}\n",
                "- {name: PASSWORD, value: @}\n- {name: A, value: kept}\n",
            ),
        ] {
            assert_eq!(mask_yaml(source, true), expected.replace('@', MASK), "{source}");
        }
    }

    #[test]
    fn keys_are_read_in_all_forms() {
        for (source, expected) in [
            ("\"pass\\x77ord\": fish\nb: kept\n", "\"pass\\x77ord\": @\nb: kept\n"),
            ("\"pass\\U00000077ord\": fish\n", "\"pass\\U00000077ord\": @\n"),
            ("'it''s a token': fish\n", "'it''s a token': @\n"),
            ("? |-\n  password\n: fish\nb: kept\n", "? |- @\nb: kept\n"),
            ("? >-\n  password\n:\n  - fish\nb: kept\n", "? >- @\nb: kept\n"),
            ("?\n  password\n: fish\nb: kept\n", "? @\nb: kept\n"),
            ("? \"pass\\x77ord\"\n: fish\nb: kept\n", "? \"pass\\x77ord\" @\nb: kept\n"),
            ("? |-\n  shop\n: kept\nb: kept\n", "? |-\n  shop\n: kept\nb: kept\n"),
            ("a: &p password\n*p : fish\nb: kept\n", "a: &p password\n*p : @\nb: kept\n"),
            (
                "a: &p \"pass\\x77ord\"\n*p :\n  c: fish\nb: kept\n",
                "a: &p \"pass\\x77ord\"\n*p : @\nb: kept\n",
            ),
            ("a: &p shop\n*p : kept\n", "a: &p shop\n*p : kept\n"),
            ("*p : fish\n", "*p : @\n"),
            (
                "a: [&p password]\nb: {*p : fish, c: kept}\n",
                "a: [&p password]\nb: {*p : @, c: kept}\n",
            ),
            ("a: [&p shop]\nb: {*p : kept}\n", "a: [&p shop]\nb: {*p : kept}\n"),
            ("tokens:\n  - 1\n  - 2\nb: kept\n", "tokens:\n  - 1\n  - 2\nb: kept\n"),
            ("tokens:\n  - 1\n  - fish\nb: kept\n", "tokens: @\nb: kept\n"),
            ("&a password: fish\nb: kept\n", "&a password: @\nb: kept\n"),
            ("!!str password: fish\n", "!!str password: @\n"),
            ("contraseña: fish\n", "contraseña: @\n"),
            ("password (old): fish\n", "password (old): @\n"),
            ("a: {\"pass\\x77ord\": fish, b: kept}\n", "a: {\"pass\\x77ord\": @, b: kept}\n"),
            (
                "passwordPolicy:\n  minLength: 12\n  name: kept\n",
                "passwordPolicy:\n  minLength: 12\n  name: kept\n",
            ),
            ("tokens: [1, 2, 3]\n", "tokens: [1, 2, 3]\n"),
            ("seed: 42\nseed_phrase: a b c\n", "seed: 42\nseed_phrase: @\n"),
        ] {
            assert_eq!(mask_yaml(source, true), expected.replace('@', MASK), "{source}");
        }
    }

    #[test]
    fn data_of_secrets_of_kubernetes_is_hidden() {
        for (source, expected) in [
            (
                "kind: Secret\ndata:\n  a: fish\nstringData: {b: fish}\ntype: kept\n",
                "kind: Secret\ndata: @\nstringData: @\ntype: kept\n",
            ),
            (
                "apiVersion: v1\ndata:\n  a: fish\nkind: \"Secret\" # c\nmetadata:\n  name: kept\n",
                "apiVersion: v1\ndata: @\nkind: \"Secret\" # c\nmetadata:\n  name: kept\n",
            ),
            (
                "items:\n- data:\n    a: fish\n  kind: Secret\n- data:\n    a: kept\n  kind: ConfigMap\nkind: List\n",
                "items:\n- data: @\n  kind: Secret\n- data:\n    a: kept\n  kind: ConfigMap\nkind: List\n",
            ),
            (
                "kind: SecretList\nitems:\n- metadata:\n    name: kept\n  data:\n    a: fish\n",
                "kind: SecretList\nitems:\n- metadata:\n    name: kept\n  data: @\n",
            ),
            (
                "kind: ConfigMap\ndata:\n  a: kept\n---\nkind: Secret\ndata:\n  a: fish\n",
                "kind: ConfigMap\ndata:\n  a: kept\n---\nkind: Secret\ndata: @\n",
            ),
            (
                "grant_type: authorization_code\ncode: fish\nb: kept\n",
                "grant_type: authorization_code\ncode: @\nb: kept\n",
            ),
            ("- d: fish\n  kty: RSA\n- d: kept\n", "- d: @\n  kty: RSA\n- d: kept\n"),
            ("code: kept\nb: kept\n", "code: kept\nb: kept\n"),
            ("data:\n  a: kept\n", "data:\n  a: kept\n"),
        ] {
            for is_declared in [true, false] {
                assert_eq!(mask_yaml(source, is_declared), expected.replace('@', MASK), "{source}");
            }
        }
    }

    #[test]
    fn nodes_of_aliases_below_secret_names_are_hidden() {
        for (source, expected) in [
            ("a: &x fish\nb: kept\npassword: *x\n", "a: @\nb: kept\npassword: @\n"),
            ("a: &x\n  b: fish\nc: kept\nsecrets:\n  <<: *x\n", "a: @\nc: kept\nsecrets: @\n"),
            ("- &x fish\n- &y kept\n- password: *x\n", "- @\n- &y kept\n- password: @\n"),
            ("- &x\n  a: fish\n- kept\n- password: *x\n", "- @\n- kept\n- password: @\n"),
            ("a: [&x fish, kept]\npassword: *x\n", "a: [&x @, kept]\npassword: @\n"),
            ("a: &x fish\nb: &y [*x]\npassword: *y\n", "a: @\nb: @\npassword: @\n"),
            ("a: &x fish\nb:\n- name: PIN\n  value: *x\n", "a: @\nb:\n- name: PIN\n  value: @\n"),
            ("a: &db_password fish\nb: kept\n", "a: @\nb: kept\n"),
            ("password: &x fish\nb: *x\n", "password: @\nb: *x\n"),
            ("a: &x kept\nb: *x\npassword: fish\n", "a: &x kept\nb: *x\npassword: @\n"),
        ] {
            assert_eq!(mask_yaml(source, true), expected.replace('@', MASK), "{source}");
        }
    }

    #[test]
    fn yaml_is_known_by_its_lines() {
        assert!(looks_like_yaml("a: b\nc:\n  - d\n"));
        assert!(!looks_like_yaml("a: b"));
        assert!(!looks_like_yaml("Dear reader,\na: b\n"));
    }
}
