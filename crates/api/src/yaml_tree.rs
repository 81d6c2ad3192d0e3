//! YAML with the place, the tag and the spelling of each value.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Spanned, Tagged};

use super::yaml::without_values;

/// Where something stands in a text; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextPlace {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl TextPlace {
    /// That of a value which stands in no text.
    pub const NONE: Self = Self { line: 0, column: 0 };
}

/// A value of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum YamlValue {
    /// Text.
    Text(String),
    /// A number. Its spelling is in [`YamlNode::written`].
    Number(serde_json::Number),
    /// `true` or `false`.
    Bool(bool),
    /// No value.
    Null,
    /// A list.
    List(Vec<YamlNode>),
    /// Keys and their values, in the order of the text; no key comes twice.
    Map(Vec<(YamlKey, YamlNode)>),
}

/// The same without places.
impl From<YamlValue> for serde_json::Value {
    fn from(value: YamlValue) -> Self {
        match value {
            YamlValue::Text(text) => Self::String(text),
            YamlValue::Number(number) => Self::Number(number),
            YamlValue::Bool(truth) => Self::Bool(truth),
            YamlValue::Null => Self::Null,
            YamlValue::List(items) => {
                items.into_iter().map(|node| Self::from(node.value)).collect()
            }
            YamlValue::Map(entries) => {
                entries.into_iter().map(|(key, node)| (key.name, Self::from(node.value))).collect()
            }
        }
    }
}

impl From<serde_json::Value> for YamlValue {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value;
        match value {
            Value::String(text) => Self::Text(text),
            Value::Number(number) => Self::Number(number),
            Value::Bool(truth) => Self::Bool(truth),
            Value::Null => Self::Null,
            Value::Array(items) => Self::List(items.into_iter().map(YamlNode::from_json).collect()),
            Value::Object(members) => {
                let key = |name| YamlKey { name, place: TextPlace::NONE };
                Self::Map(
                    members
                        .into_iter()
                        .map(|(name, it)| (key(name), YamlNode::from_json(it)))
                        .collect(),
                )
            }
        }
    }
}

impl YamlNode {
    /// A value that stands in no text.
    pub fn from_json(value: serde_json::Value) -> Self {
        Self::new(value.into(), TextPlace::NONE)
    }

    /// Returns a single value as it was written. Null, lists and maps give `None`.
    ///
    /// YAML 1.1 and 1.2 read `0x50`, `8_080` and `010` as different numbers, so that only the spelling is certain.
    /// A fraction with an unknown spelling gives `None`, too.
    pub fn scalar_text(&self) -> Option<String> {
        match (&self.value, &self.written) {
            (YamlValue::Text(text), _) => Some(text.clone()),
            (YamlValue::Number(_), Some(written)) => Some(written.to_string()),
            (YamlValue::Number(number), None) => (!number.is_f64()).then(|| number.to_string()),
            (YamlValue::Bool(truth), _) => Some(truth.to_string()),
            (YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_), _) => None,
        }
    }

    /// A value without a tag and without a spelling of its own.
    pub fn new(value: YamlValue, place: TextPlace) -> Self {
        Self { value, place, written: None, has_tag: false }
    }
}

/// A value and where it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlNode {
    /// What it is.
    pub value: YamlValue,
    /// Where it stands; for an alias, where that stands.
    pub place: TextPlace,
    /// The spelling of a scalar without quotes that is not text (`0123`), or that YAML 1.1 does not read
    /// as text (`yes`).
    pub written: Option<Box<str>>,
    /// True if the value has a tag (`!!str`, `!`), and for a map also if a key or a merged value has one.
    pub has_tag: bool,
}

/// A key and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlKey {
    /// The key.
    pub name: String,
    /// Where it stands.
    pub place: TextPlace,
}

/// Why a text is no YAML; it shows nothing of the text but keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// What is wrong.
    pub problem: String,
    /// Where, if that is known.
    pub place: Option<TextPlace>,
}

/// Reads one document; an empty one is [`YamlValue::Null`].
///
/// `yes`, `on` and their like are text: only `true` and `false` are truth values.
///
/// # Errors
/// When the text is no YAML, has a key twice, or holds more than one document.
pub fn read_tree(text: &str) -> Result<YamlNode, YamlError> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        // Their spelling is kept as text.
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
    };
    // Spans count from the first character behind the byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let read = serde_saphyr::from_str_with_options::<RawNode>(text, options);
    let read = read.map_err(|error| explain_error(&error))?;
    let merges = tagged_merges(text)?;
    Ok(read.with_spelling(&SourceText { text, merges }))
}

/// The text of a document, and the places of the maps in it that merge a value with a tag.
struct SourceText<'t> {
    text: &'t str,
    merges: BTreeSet<(u64, u64)>,
}

/// The key whose value is merged into its map.
const MERGE_KEY: &str = "<<";

/// Finds the maps that merge values with tags: the library merges a value without a word about its tag.
fn tagged_merges(text: &str) -> Result<BTreeSet<(u64, u64)>, YamlError> {
    let mut places = BTreeSet::new();
    // Nearly all documents end here: others are read a second time.
    if !text.contains('!') || !text.contains(MERGE_KEY) {
        return Ok(places);
    }
    let options = serde_saphyr::options! {
        // A map may have more than one `<<`. The first reading has found all other keys that are there twice.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
    };
    let read = serde_saphyr::from_str_with_options::<RawNode>(text, options);
    let read = read.map_err(|error| explain_error(&error))?;
    read.find_tagged_merges(&mut places);
    Ok(places)
}

/// The truth values of YAML 1.1 that are text in YAML 1.2.
const OLD_BOOLEANS: [(&str, bool); 6] =
    [("yes", true), ("y", true), ("on", true), ("no", false), ("n", false), ("off", false)];

/// Returns the truth value that YAML 1.1 reads from `text`, if YAML 1.2 reads text.
pub fn old_boolean(text: &str) -> Option<bool> {
    let known = OLD_BOOLEANS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    known.map(|(_, value)| *value)
}

/// How problems begin in words of the library that mean nothing to others, and ours.
const WORDS: [(&str, &str); 4] = [
    ("multiple YAML documents", "there is more than one document"),
    ("cannot deserialize null into string", "a key has no name"),
    ("recursive references require", "an alias stands within what it stands for"),
    ("expected string scalar", "a key must be text"),
];

fn explain_error(error: &serde_saphyr::Error) -> YamlError {
    let message = error.without_snippet().to_string();
    let message = message.lines().next().unwrap_or_default().trim_start_matches("error: ");
    // The place is told apart from the problem, and options of the library are of no use to anybody.
    let problem = message.split(" at line ").next().unwrap_or_default();
    let problem = problem.split(", set DuplicateKeyPolicy").next().unwrap_or_default();
    let known = WORDS.iter().find(|(start, _)| problem.starts_with(start));
    let problem = known.map_or(problem, |(_, ours)| ours);
    YamlError { problem: without_values(problem), place: error.location().map(TextPlace::from) }
}

impl From<Location> for TextPlace {
    fn from(location: Location) -> Self {
        Self { line: location.line(), column: location.column() }
    }
}

/// A value as the library reads it.
type RawNode = Spanned<Tagged<RawValue>>;

/// The raw form of a [`YamlValue`]: numbers need not be finite.
enum RawValue {
    Text(String),
    Integer(serde_json::Number),
    Float(f64),
    Bool(bool),
    Null,
    List(Vec<RawNode>),
    Map(Vec<(RawKey, RawNode)>),
}

type RawKey = Spanned<Tagged<String>>;

trait WithSpelling {
    /// Makes a node from a value of the library, which was read from `source`.
    fn with_spelling(self, source: &SourceText<'_>) -> YamlNode;

    /// Adds the places of maps that merge values with tags; the merges have not been made.
    fn find_tagged_merges(&self, places: &mut BTreeSet<(u64, u64)>);

    /// Returns true if the value, or a value in it, has a tag.
    fn has_tag_inside(&self) -> bool;
}

impl WithSpelling for RawNode {
    fn with_spelling(self, whole: &SourceText<'_>) -> YamlNode {
        let Tagged(value, tag) = self.value;
        let source = source_of(self.defined, whole.text).unwrap_or_default();
        let mut has_tag = tag.is_some();
        let (value, is_spelled) = match value {
            RawValue::Text(value) => {
                let is_word = value == source && old_boolean(&value).is_some();
                (YamlValue::Text(value), is_word)
            }
            RawValue::Integer(number) => (YamlValue::Number(number), true),
            RawValue::Float(number) => match serde_json::Number::from_f64(number) {
                Some(number) => (YamlValue::Number(number), true),
                None => (YamlValue::Text(source.to_owned()), false),
            },
            RawValue::Bool(truth) => (YamlValue::Bool(truth), true),
            RawValue::Null => (YamlValue::Null, false),
            RawValue::List(items) => {
                let items = items.into_iter().map(|item| item.with_spelling(whole));
                (YamlValue::List(items.collect()), false)
            }
            RawValue::Map(entries) => {
                let entries = entries.into_iter().map(|(key, value)| {
                    let Tagged(name, tag) = key.value;
                    has_tag |= tag.is_some();
                    let key = YamlKey { name, place: key.referenced.into() };
                    (key, value.with_spelling(whole))
                });
                let entries = entries.collect();
                has_tag |= whole.merges.contains(&place_of(self.defined));
                (YamlValue::Map(entries), false)
            }
        };
        let written = (is_spelled && !source.is_empty()).then(|| source.into());
        YamlNode { value, place: self.referenced.into(), written, has_tag }
    }

    fn find_tagged_merges(&self, places: &mut BTreeSet<(u64, u64)>) {
        match &self.value.0 {
            RawValue::List(items) => items.iter().for_each(|item| item.find_tagged_merges(places)),
            RawValue::Map(entries) => {
                for (key, value) in entries {
                    let is_tagged = key.value.1.is_some() || value.has_tag_inside();
                    if key.value.0 == MERGE_KEY && is_tagged {
                        places.insert(place_of(self.defined));
                    }
                    value.find_tagged_merges(places);
                }
            }
            _ => {}
        }
    }

    fn has_tag_inside(&self) -> bool {
        let Tagged(value, tag) = &self.value;
        tag.is_some()
            || match value {
                RawValue::List(items) => items.iter().any(Self::has_tag_inside),
                RawValue::Map(entries) => entries
                    .iter()
                    .any(|(key, value)| key.value.1.is_some() || value.has_tag_inside()),
                _ => false,
            }
    }
}

fn place_of(location: Location) -> (u64, u64) {
    (location.line(), location.column())
}

/// The part of a text that a scalar is written in.
fn source_of(location: Location, text: &str) -> Option<&str> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
    text.get(start..end).map(str::trim)
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawValueVisitor)
    }
}

struct RawValueVisitor;

impl<'de> Visitor<'de> for RawValueVisitor {
    type Value = RawValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<RawValue, E> {
        Ok(RawValue::Text(text.to_owned()))
    }

    fn visit_bool<E>(self, truth: bool) -> Result<RawValue, E> {
        Ok(RawValue::Bool(truth))
    }

    fn visit_u64<E>(self, number: u64) -> Result<RawValue, E> {
        Ok(RawValue::Integer(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<RawValue, E> {
        Ok(RawValue::Integer(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<RawValue, E> {
        Ok(RawValue::Float(number))
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<RawNode>()? {
            list.push(item);
        }
        Ok(RawValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawValue, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry::<RawKey, RawNode>()? {
            map.push(entry);
        }
        Ok(RawValue::Map(map))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<(String, YamlValue, (u64, u64))> {
        let YamlValue::Map(entries) = read_tree(text).unwrap().value else { unreachable!() };
        let entries = entries.into_iter();
        let shown =
            entries.map(|(key, node)| (key.name, node.value, (node.place.line, node.place.column)));
        shown.collect()
    }

    fn problem(text: &str) -> (String, Option<(u64, u64)>) {
        let error = read_tree(text).unwrap_err();
        (error.problem, error.place.map(|place| (place.line, place.column)))
    }

    #[test]
    fn values_have_their_places_and_their_text() {
        let text = |text: &str| YamlValue::Text(text.to_owned());

        let actual = entries("\u{feff}port: 4000\r\nhost: yes # c\r\nratio: 1.5\nempty:\n");

        let expected = [
            ("port", YamlValue::Number(4000.into()), (1, 7)),
            ("host", text("yes"), (2, 7)),
            ("ratio", serde_json::Number::from_f64(1.5).map(YamlValue::Number).unwrap(), (3, 8)),
            ("empty", YamlValue::Null, (4, 6)),
        ];
        assert_eq!(actual, expected.map(|(key, value, place)| (key.to_owned(), value, place)));
    }

    #[test]
    fn an_alias_is_the_value_that_it_names() {
        let [_, (_, value, place)] = &entries("a: &x 7\nb: *x\n")[..] else { unreachable!() };

        assert_eq!((value, *place), (&YamlValue::Number(7.into()), (2, 4)));
    }

    #[test]
    fn all_merges_of_a_map_are_read_whether_the_text_has_tags_or_not() {
        let shared = "x: &x {k: 1, m: a}\ny: &y {k: 2, n: 3}\n";
        for key in ["", "  1: b\n", "  2: c\n  1: b\n"] {
            let read = |rest: &str| {
                let text = format!("{shared}z:\n{key}  <<: *x\n  <<: *y\n  o: {rest}\n");
                let YamlValue::Map(entries) = read_tree(&text).unwrap().value else {
                    unreachable!("{text}")
                };
                entries.into_iter().next_back().unwrap().1
            };
            let (plain, with_mark) = (read("GET"), read("'GET!'"));
            let json = |node: &YamlNode| serde_json::Value::from(node.value.clone());
            assert_eq!(json(&plain)["k"], 1, "the first of them has precedence");
            assert_eq!((&json(&plain)["n"], &json(&plain)["m"]), (&3.into(), &"a".into()));
            assert_eq!(json(&with_mark)["o"], "GET!");
            assert_eq!(json(&with_mark)["k"], 1);
            assert!(!with_mark.has_tag && !plain.has_tag);
        }
        for tagged in ["<<: !t {a: 1}\n<<: {b: 2}\n", "<<: {a: 1}\n<<: !t {b: 2}\n1: c\n"] {
            assert!(read_tree(tagged).unwrap().has_tag, "{tagged}");
        }
    }

    #[test]
    fn an_empty_document_holds_nothing() {
        for text in ["", "\n", "# only a comment\n", "---\n"] {
            assert_eq!(read_tree(text).unwrap().value, YamlValue::Null, "{text:?}");
        }
    }

    #[test]
    fn problems_have_their_places_and_no_values() {
        let at = |problem: &str, line, column| (problem.to_owned(), Some((line, column)));

        assert_eq!(problem("a: 1\na: 2\n"), at("duplicate mapping key: a", 2, 1));
        assert_eq!(problem("a: 1\n---\nb: 2\n"), at("there is more than one document", 3, 1));
        assert_eq!(problem("a: *swordfish\n"), at("alias references unknown anchor", 1, 4));
        assert_eq!(problem("a: b\n\tc: d\n").1, Some((1, 4)));
        assert!(!problem("a: [swordfish\n").0.contains("sword"));
    }

    #[test]
    fn a_document_that_grows_without_end_is_refused() {
        let mut text = "a0: &a0 [x]\n".to_owned();
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 10].join(",");
            text += &format!("a{level}: &a{level} [{items}]\n");
        }

        assert!(problem(&text).0.contains("budget"), "{:?}", problem(&text));
        assert!(problem(&"[".repeat(100_000)).0.contains("recursion"));
    }
}
