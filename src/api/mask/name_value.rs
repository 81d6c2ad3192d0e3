//! Pairs of a name and a value that are written as two members of one group: `{"name": "PASSWORD", "value": "x"}`,
//! `field=password value=x`, `["Authorization", "x"]` in a list of pairs.
//!
//! The value is hidden if the name is the name of a secret. JSON, YAML in braces, GraphQL, notations of programming
//! languages and lines of logs are read by one scanner, even if they are cut off. Forms, block YAML and XML find the
//! groups in their own way, and ask [`pair_role`] as well.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;

use super::escapes::unescaped;
use super::{MASK, work};
use crate::api::secrets::{
    describes, is_exact, is_scalar, is_secret, is_visible_scalar, last_word,
};

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
/// Members of an object with a `key` that is a label.
const KEY_VALUES: [&str; 5] = ["v", "val", "vals", "value", "values"];
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
fn member_role(member: &str) -> Option<PairRole> {
    let word = last_word(member);
    let describes = DESCRIPTIONS.iter().any(|known| word.eq_ignore_ascii_case(known))
        || describes(member)
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
    pub(super) fn of(label: &str, text: &str) -> Option<Self> {
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

    pub(super) fn hides(self, role: PairRole) -> bool {
        match role {
            PairRole::Name => false,
            PairRole::Value => true,
            PairRole::Content => self >= Self::Contents,
            PairRole::Other => self == Self::Texts,
        }
    }
}

/// An object whose kind says that members with any name are secret.
struct SecretKind {
    /// The member that has the kind.
    member: &'static str,
    /// The kind; any if it is empty.
    kind: &'static str,
    hidden: &'static [&'static str],
}

/// Secrets of Kubernetes, and private keys as JSON (RFC 7518, section 6).
const SECRET_KINDS: [SecretKind; 2] = [
    SecretKind { member: "kind", kind: "Secret", hidden: SECRET_DATA },
    SecretKind {
        member: "kty",
        kind: "",
        hidden: &["d", "dp", "dq", "k", "oth", "p", "priv", "q", "qi"],
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
    fn is_of(&self, member: &str, text: &str) -> bool {
        self.member == member && (self.kind.is_empty() || self.kind == text)
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
    let reach = labels.filter_map(|(label, text)| LabelReach::of(label, text)).max();
    let kinds: Vec<_> = SECRET_KINDS
        .iter()
        .filter(|kind| texts.clone().any(|(member, text)| kind.is_of(member, text)))
        .collect();
    let mut siblings = KeySiblings::default();
    members.clone().for_each(|(member, text)| siblings.add(member, text.is_some()));
    let is_hidden = |(member, text): (&str, Option<&str>)| {
        let role = member_role(member).filter(|role| *role != PairRole::Other || text.is_some());
        let is_named =
            is_secret(member) && !(is_key(member) && siblings.make_label(text.unwrap_or_default()));
        is_named
            || reach.zip(role).is_some_and(|(reach, role)| reach.hides(role))
            || kinds.iter().any(|kind| kind.hidden.contains(&member))
    };
    members.map(is_hidden).collect()
}

fn is_key(member: &str) -> bool {
    member.eq_ignore_ascii_case("key")
}

/// The members of an object that show that its `key` is a label.
#[derive(Debug, Default)]
struct KeySiblings {
    /// True if a text is next to it that is the value of a pair.
    has_value: bool,
    /// The number of members that files have.
    file_members: usize,
}

impl KeySiblings {
    fn add(&mut self, member: &str, is_text: bool) {
        if member.len() > MAX_NAME_BYTES {
            return;
        }
        let letters = || member.bytes().filter(u8::is_ascii_alphanumeric);
        let is_file =
            |known: &&str| letters().map(|letter| letter.to_ascii_lowercase()).eq(known.bytes());
        let is_value = |known: &&str| member.eq_ignore_ascii_case(known);
        self.has_value |= is_text && KEY_VALUES.iter().any(is_value);
        self.file_members += usize::from(FILE_MEMBERS.iter().any(is_file));
    }

    /// Returns true if a `key` with this text is not a secret, but a label or the name of a file.
    fn make_label(&self, text: &str) -> bool {
        let is_path = self.file_members > 0 && text.contains('/');
        self.has_value || self.file_members >= MIN_FILE_MEMBERS || is_path || is_file_name(text)
    }
}

/// Returns true for the name of a file with an ending that files have, such as `photos/a.jpg`.
pub(super) fn is_file_name(text: &str) -> bool {
    let name = text.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').is_some_and(|(stem, ending)| {
        !stem.contains('.') && FILE_ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known))
    })
}

/// Returns the places of the values of `key` in JSON that are labels or names of files.
pub(super) fn key_labels(source: &str) -> BTreeSet<usize> {
    let has_key = source.contains("key\"") || source.contains("Key\"") || source.contains("KEY\"");
    if !has_key {
        return BTreeSet::new();
    }
    let mut scan = PairScan::new(source);
    scan.run();
    scan.key_labels
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
    role: PairRole,
    value: HiddenValue,
}

/// A list, an object or arguments in brackets, or a line outside of brackets.
#[derive(Debug, Default)]
struct PairGroup {
    /// The bracket that opens it; 0 for a line.
    open: u8,
    start: usize,
    /// The name of the secret, if a member has one, and its reach.
    secret: Option<(String, LabelReach)>,
    has_name: bool,
    values: Vec<PairValue>,
    /// The kind of the object, if its members are secrets.
    kinds: [bool; SECRET_KINDS.len()],
    /// True for a list of Secrets of Kubernetes whose items have no kind.
    is_secret_list: bool,
    has_kind: bool,
    /// The members that one of the kinds hides.
    kind_values: Vec<(usize, HiddenValue)>,
    /// The data of objects in this one that have no kind.
    inner_data: Vec<HiddenValue>,
    /// The values of `key`, and the members next to them.
    keys: Vec<Range<usize>>,
    siblings: KeySiblings,
    /// The key of the current item, and the part that it has in a pair.
    key: Range<usize>,
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
    key_labels: BTreeSet<usize>,
    /// Searches for the end of a quoted text that found none.
    unclosed: UnclosedQuotes,
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
            key_labels: BTreeSet::new(),
            unclosed: UnclosedQuotes::default(),
        }
    }

    fn run(&mut self) {
        work::count(self.text.len());
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
            let name = unquoted(self.text.get(place.clone()).unwrap_or_default());
            let group = self.group();
            let role = match group.open {
                b'{' => member_role(name),
                _ => pair_role(name),
            };
            (group.role, group.has_key, group.quote) = (role, true, quote);
            group.key = place;
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
            let length = quoted.find("\\\"");
            work::count(length.unwrap_or(quoted.len()));
            return match length {
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
        work::count(at - start);
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
        if matches!(pair_role(word), Some(PairRole::Name | PairRole::Value)) {
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
        if has_key && group.open == b'{' {
            group.add_kind_member(text, place.clone());
        }
        match role {
            Some(PairRole::Name) => {
                let written = text.get(place).unwrap_or_default();
                let name = examined_part(unquoted(written));
                let label = unquoted(text.get(group.key.clone()).unwrap_or_default());
                group.has_name |= !TYPES.iter().any(|known| label.eq_ignore_ascii_case(known));
                let is_group = name.starts_with(['[', '{', '(']) && !is_list_of_words(label, name);
                let name = unescaped(name);
                let reach = LabelReach::of(label, &name).filter(|_| !is_group);
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
    fn close(&mut self, is_cut: bool) {
        self.finish_item();
        let Some(mut group) = self.groups.pop() else { return };
        let is_in_list = self.groups.last().is_some_and(|outer| outer.open == b'[');
        // The text may be cut off before the name.
        let is_unknown = is_cut && is_in_list && group.open == b'{' && !group.has_name;
        self.hide_values(&group, is_unknown);
        let inner_data = self.hide_kinds(&mut group);
        for key in &group.keys {
            let written = self.text.get(key.clone()).unwrap_or_default();
            if group.siblings.make_label(examined_part(unquoted(written))) {
                self.key_labels.insert(key.start);
            }
        }
        if group.open == b'[' && !group.has_keys && !group.has_others {
            self.hidden.extend_from_slice(&group.pairs);
        }
        let end = if is_cut { self.text.len() } else { self.at };
        let pair = self.pair_of(&group);
        let outer = self.group();
        add_to_larger(&mut outer.inner_data, inner_data);
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
        let is_hidden = is_secret(&unescaped(examined_part(unquoted(name))))
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
        let unknown = || is_unknown.then_some(("", LabelReach::Values));
        let secret = group.secret.as_ref().map(|(name, reach)| (name.as_str(), *reach));
        let Some((name, reach)) = secret.or_else(unknown) else { return };
        for PairValue { role, value } in group.values.iter().filter(|it| reach.hides(it.role)) {
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
            let is_data = SECRET_KINDS.get(kind).is_some_and(|it| it.member == KIND);
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

impl PairGroup {
    /// Notes a member that has the kind of the object, or is hidden because of a kind.
    fn add_kind_member(&mut self, text: &str, place: Range<usize>) {
        let member = unquoted(text.get(self.key.clone()).unwrap_or_default());
        if member.len() > MAX_NAME_BYTES {
            return;
        }
        let written = examined_part(unquoted(text.get(place.clone()).unwrap_or_default()));
        if is_key(member) {
            self.keys.push(place.clone());
        }
        let is_text = text.get(place.clone()).is_some_and(|it| it.starts_with(['"', '\'', '\\']));
        self.siblings.add(member, is_text);
        self.has_kind |= member == KIND;
        self.is_secret_list |= member == KIND && written == SECRET_LIST_KIND;
        for (number, (is_kind, known)) in self.kinds.iter_mut().zip(&SECRET_KINDS).enumerate() {
            *is_kind |= known.is_of(member, written);
            if known.hidden.contains(&member) {
                let value = HiddenValue { place: place.clone(), quote: self.quote };
                self.kind_values.push((number, value));
            }
        }
    }
}

/// Returns true if a label has a list of words, of which the last is the name.
fn is_list_of_words(label: &str, list: &str) -> bool {
    let is_path = PATHS.iter().any(|known| label.eq_ignore_ascii_case(known));
    is_path && list.starts_with('[') && !list.contains(['{', '('])
}

/// Adds values, and copies only the fewer.
fn add_to_larger(values: &mut Vec<HiddenValue>, mut added: Vec<HiddenValue>) {
    if values.len() < added.len() {
        std::mem::swap(values, &mut added);
    }
    values.append(&mut added);
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
            assert_eq!(masked(source), expected, "{source}");
            assert_eq!(masked(&expected), expected, "{source} twice");
        }
    }

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
            (r#"{"key":"kept.jpg"}"#, false),
            (r#"{"Key":"photos/kept","Size":1}"#, false),
            (r#"{"Key":"kept","LastModified":"kept","ETag":"kept","Size":1}"#, false),
        ] {
            assert_eq!(super::super::json(source).contains(MASK), is_hidden, "{source}");
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
            (r#"{"k":"fish","kty":"oct"}"#, r##"{"k":"#","kty":"oct"}"##),
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

                let searched = work::during(|| PairScan::new(&text).run()) - text.len();

                assert!(searched <= 4 * text.len(), "{start} {piece}: {searched}");
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
            r#"{"kty": "RSA", "n": "kept", "e": "AQAB", "kid": "kept"}"#,
            r#"{"d": "kept", "p": "kept"}"#,
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
