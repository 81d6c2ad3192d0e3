//! What values look like on the wire, as data that can be walked.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// What a value looks like on the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Text, at most `max` bytes of UTF-8 where the specification gives a limit.
    Text {
        /// The limit in bytes.
        max: Option<usize>,
    },
    /// Text that may also be given as a whole number, such as an address that is only a port.
    TextOrNumber,
    /// Text that must not be shown: tokens, passwords.
    Secret,
    /// A moment, RFC 3339 text.
    Time,
    /// Bytes, as base64 text.
    Bytes,
    /// `true` or `false`.
    Bool,
    /// A number without a fraction, 64 bits, signed.
    Integer,
    /// Any number.
    Number,
    /// Any JSON value.
    Json,
    /// A JSON object with any members.
    Object,
    /// A list of one kind.
    List(&'static Kind),
    /// An object whose members all are of one kind.
    Map(&'static Kind),
    /// An object with known fields.
    Record(&'static Shape),
}

impl Kind {
    /// Returns true for secrets, and for lists, maps and records that contain one.
    pub fn has_secrets(&self) -> bool {
        match self {
            Self::Secret => true,
            Self::List(inner) | Self::Map(inner) => inner.has_secrets(),
            Self::Record(shape) => shape.has_secrets(),
            _ => false,
        }
    }
}

impl Shape {
    /// Returns true if a field is a secret or contains one.
    pub fn has_secrets(&self) -> bool {
        self.fields.iter().any(|field| field.kind.has_secrets())
    }
}

/// A type of the wire: its name and its fields.
#[derive(Debug, PartialEq)]
pub struct Shape {
    /// The type's name, the same in Rust and Python.
    pub name: &'static str,
    /// The source file that declares it.
    pub file: &'static str,
    /// What the type stands for.
    pub doc: &'static str,
    /// The fields in the order of their declaration.
    pub fields: &'static [Field],
}

/// One field of a [`Shape`], or one parameter of an operation.
#[derive(Debug, PartialEq)]
pub struct Field {
    /// The key on the wire.
    pub name: &'static str,
    /// What the field means; empty where the name of a parameter says it all.
    pub doc: &'static str,
    /// What its value looks like.
    pub kind: Kind,
    /// False for a field that may be null or absent.
    pub required: bool,
    /// True where its texts may be shown to others than who may fetch the resource. What is not declared so
    /// is masked.
    pub is_public: bool,
}

/// A Rust type that has a form on the wire.
pub trait Typed {
    /// That form.
    const KIND: Kind;
    /// False for types that stand for null or absent values as well.
    const REQUIRED: bool = true;

    /// True for a value whose key is left out of responses.
    fn is_left_out(&self) -> bool {
        false
    }
}

/// Text of at most `MAX` bytes of UTF-8; the limit is checked where a request is made or answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text<const MAX: usize>(pub String);

impl<const MAX: usize> Text<MAX> {
    /// The limit, in bytes.
    pub const MAX: usize = MAX;
}

/// The words of an owner about a resource.
pub type Description = Text<255>;
/// Machine-readable data of an owner, stored and returned unread.
pub type Metadata = Text<4096>;

/// Text that is kept out of debug output.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

/// A moment as RFC 3339 text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub String);

/// Bytes, on the wire as standard base64 text with padding.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Base64(pub Bytes);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(serde::de::Error::custom)?;
        Ok(Self(bytes.into()))
    }
}

impl fmt::Debug for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Base64({} bytes)", self.0.len())
    }
}

/// A number that is written without a fraction where it has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Every whole number below this is exact.
        const EXACT: f64 = (1_i64 << 53) as f64;
        if self.0.fract() == 0.0 && self.0.abs() < EXACT {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

/// Text that may also be given as a whole number, such as an address that is only a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TextOrNumber(pub String);

impl<'de> Deserialize<'de> for TextOrNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Number(number) if !number.is_f64() => Ok(Self(number.to_string())),
            _ => Err(serde::de::Error::custom("expected text or a whole number")),
        }
    }
}

/// A remark that is made or left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Flag(pub bool);

impl Typed for Flag {
    const KIND: Kind = Kind::Bool;
    const REQUIRED: bool = false;

    fn is_left_out(&self) -> bool {
        !self.0
    }
}

/// Headers that came after a body: each name with its values in order. Left out where there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trailers(pub BTreeMap<String, Vec<String>>);

/// Headers to add, in order; on the wire an object, in which a name occurs once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderList(pub Vec<(String, String)>);

impl Serialize for HeaderList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for HeaderList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let headers = BTreeMap::<String, String>::deserialize(deserializer)?;
        Ok(Self(headers.into_iter().collect()))
    }
}

impl<'h> IntoIterator for &'h HeaderList {
    type Item = (&'h String, &'h String);
    type IntoIter = std::iter::Map<
        std::slice::Iter<'h, (String, String)>,
        fn(&'h (String, String)) -> (&'h String, &'h String),
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

impl Typed for HeaderList {
    const KIND: Kind = <BTreeMap<String, String>>::KIND;
}

/// Text that is left out where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Note(pub String);

impl Typed for Note {
    const KIND: Kind = String::KIND;
    const REQUIRED: bool = false;

    fn is_left_out(&self) -> bool {
        self.0.is_empty()
    }
}

impl Typed for Trailers {
    const KIND: Kind = <BTreeMap<String, Vec<String>>>::KIND;
    const REQUIRED: bool = false;

    fn is_left_out(&self) -> bool {
        self.0.is_empty()
    }
}

impl Timestamp {
    /// A moment in UTC, whole seconds (remote API sheet, section 3).
    pub fn from_system_time(moment: std::time::SystemTime) -> Self {
        let moment = chrono::DateTime::<chrono::Utc>::from(moment);
        Self(moment.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
    }

    /// A moment in seconds since the Unix epoch.
    pub fn at_unix(seconds: u64) -> Self {
        Self::from_system_time(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
    }

    /// The moment in seconds since the Unix epoch; none where it is before that, or no moment.
    pub fn unix_seconds(&self) -> Option<u64> {
        let moment = chrono::DateTime::parse_from_rfc3339(&self.0).ok()?;
        u64::try_from(moment.timestamp()).ok()
    }
}

impl<const MAX: usize> Deref for Text<MAX> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> From<&str> for Text<MAX> {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<const MAX: usize> From<String> for Text<MAX> {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl<const MAX: usize> Typed for Text<MAX> {
    const KIND: Kind = Kind::Text { max: Some(MAX) };
}

impl<T: Typed> Typed for Option<T> {
    const KIND: Kind = T::KIND;
    const REQUIRED: bool = false;
}

impl<T: Typed> Typed for Vec<T> {
    const KIND: Kind = Kind::List(&T::KIND);
}

impl<T: Typed> Typed for BTreeMap<String, T> {
    const KIND: Kind = Kind::Map(&T::KIND);
}

macro_rules! typed {
    ($($rust:ty => $kind:expr),+ $(,)?) => {
        $(impl Typed for $rust { const KIND: Kind = $kind; })+
    };
}

typed! {
    String => Kind::Text { max: None },
    Secret => Kind::Secret,
    Timestamp => Kind::Time,
    Base64 => Kind::Bytes,
    bool => Kind::Bool,
    i64 => Kind::Integer,
    f64 => Kind::Number,
    Number => Kind::Number,
    TextOrNumber => Kind::TextOrNumber,
    Value => Kind::Json,
    Map<String, Value> => Kind::Object,
}

/// The name of a field as the wire has it: `r#type` is `type` there.
pub const fn wire_name(name: &'static str) -> &'static str {
    let bytes = name.as_bytes();
    if bytes.len() > 2 && bytes[0] == b'r' && bytes[1] == b'#' { name.split_at(2).1 } else { name }
}
