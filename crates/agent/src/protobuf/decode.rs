//! Messages as JSON, by their descriptions.
//!
//! The names are those of the files. What the mapping of Protocol Buffers to JSON has a form of its own for
//! (times, durations, wrappers, `Struct`, `Any`) is in that form; whole numbers are numbers, also those of 64
//! bits. What the description does not have stands under the number of its field.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, Number, Value};

use super::definitions::Scalar;
use super::schema::{FieldKind, FieldSchema, Schema};
use super::wire::{WireFields, WireValue, read_varint};

/// How deep messages may stand in each other.
const MAX_DEPTH: usize = 64;
/// How many values one message may have; a packed one takes much less room on the wire than here.
const MAX_VALUES: usize = 50_000;
/// Where the name of a type begins in an `Any`.
const GOOGLE: &str = "google.protobuf.";

/// A message by its description.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecodedMessage {
    /// The full name of its type.
    pub type_name: String,
    pub value: Value,
}

/// How bytes that are no text are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BytesDisplay {
    /// As base64.
    Shown,
    /// By their number alone.
    Counted,
}

/// Reads a message of this type; none if it is no such message.
pub(super) fn decode_message(
    schema: &Schema,
    name: &str,
    data: &[u8],
    bytes: BytesDisplay,
) -> Option<Value> {
    MessageDecoder { schema, bytes, values: 0 }.message_value(name, data, 0)
}

struct MessageDecoder<'a> {
    schema: &'a Schema,
    bytes: BytesDisplay,
    values: usize,
}

impl MessageDecoder<'_> {
    fn message_value(&mut self, name: &str, data: &[u8], depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        if name == "google.protobuf.Any" {
            return self.any_value(data, depth);
        }
        let members = self.message_members(name, data, depth)?;
        Some(match name.strip_prefix(GOOGLE) {
            Some(known) => well_known_value(known, members),
            None => Value::Object(members),
        })
    }

    fn message_members(
        &mut self,
        name: &str,
        data: &[u8],
        depth: usize,
    ) -> Option<Map<String, Value>> {
        let schema = self.schema;
        let message = schema.find_message(name)?;
        let mut members = Map::new();
        for read in WireFields::from_bytes(data) {
            let (number, wire) = read?;
            let field = message.fields.get(&number);
            let done = field.and_then(|field| self.add_field(field, wire, &mut members, depth));
            if done.is_none() {
                let shown = self.unknown_value(wire)?;
                append_value(&mut members, &number.to_string(), shown);
            }
        }
        Some(members)
    }

    /// Enters a field; none if it is not what the description says.
    fn add_field(
        &mut self,
        field: &FieldSchema,
        wire: WireValue<'_>,
        members: &mut Map<String, Value>,
        depth: usize,
    ) -> Option<()> {
        let packed = match (&field.kind, wire) {
            (FieldKind::Scalar(Scalar::String | Scalar::Bytes) | FieldKind::Message(_), _) => None,
            (_, WireValue::Bytes(data)) if field.is_repeated => Some(data),
            _ => None,
        };
        if let Some(mut data) = packed {
            let mut values = Vec::new();
            while !data.is_empty() {
                let (value, rest) = next_packed(&field.kind, data)?;
                values.push(self.field_value(field, value, depth)?);
                data = rest;
            }
            return repeated_list(members, &field.name).map(|list| list.append(&mut values));
        }
        if let (FieldKind::Message(name), WireValue::Bytes(data)) = (&field.kind, wire)
            && self.schema.find_message(name).is_some_and(|message| message.is_map_entry)
        {
            return self.add_map_entry(name, data, &field.name, members, depth);
        }
        let value = self.field_value(field, wire, depth)?;
        if field.is_repeated {
            return repeated_list(members, &field.name).map(|list| list.push(value));
        }
        members.insert(field.name.clone(), value);
        Some(())
    }

    /// Enters an entry of a map.
    fn add_map_entry(
        &mut self,
        name: &str,
        data: &[u8],
        map: &str,
        members: &mut Map<String, Value>,
        depth: usize,
    ) -> Option<()> {
        self.count_value()?;
        let mut entry = self.message_members(name, data, depth + 1)?;
        let fields = &self.schema.find_message(name)?.fields;
        let kind = |number| fields.get(&number).map(|field| &field.kind);
        let key = match entry.remove("key").or_else(|| self.default(kind(1)?)) {
            Some(Value::String(key)) => key,
            key => key?.to_string(),
        };
        let value = match entry.remove("value") {
            Some(value) => value,
            None => self.default(kind(2)?)?,
        };
        let entries = members.entry(map).or_insert_with(|| Value::Object(Map::new()));
        entries.as_object_mut()?.insert(key, value);
        Some(())
    }

    /// What stands for a value that is not sent.
    fn default(&mut self, kind: &FieldKind) -> Option<Value> {
        match kind {
            FieldKind::Scalar(Scalar::String | Scalar::Bytes) => Some("".into()),
            FieldKind::Scalar(Scalar::Bool) => Some(false.into()),
            FieldKind::Scalar(Scalar::Double | Scalar::Float) => Some(0.0.into()),
            FieldKind::Scalar(_) => Some(0.into()),
            FieldKind::Enum(name) => Some(self.enum_value(name, 0)),
            FieldKind::Message(name) => self.message_value(name, &[], MAX_DEPTH),
        }
    }

    fn field_value(
        &mut self,
        field: &FieldSchema,
        wire: WireValue<'_>,
        depth: usize,
    ) -> Option<Value> {
        self.count_value()?;
        match (&field.kind, wire) {
            (FieldKind::Message(name), WireValue::Bytes(data) | WireValue::Group(data)) => {
                self.message_value(name, data, depth + 1)
            }
            // Negative numbers have 64 bits on the wire.
            (FieldKind::Enum(name), WireValue::Varint(number)) => {
                Some(self.enum_value(name, low_bits(number)))
            }
            (FieldKind::Scalar(scalar), wire) => self.scalar_value(*scalar, wire),
            _ => None,
        }
    }

    fn enum_value(&self, name: &str, number: i32) -> Value {
        self.schema.enum_value_name(name, number).map_or_else(|| number.into(), Value::from)
    }

    fn scalar_value(&self, scalar: Scalar, wire: WireValue<'_>) -> Option<Value> {
        use WireValue::{Bytes, Fixed32, Fixed64, Varint};
        Some(match (scalar, wire) {
            (Scalar::Int32, Varint(bits)) => low_bits(bits).into(),
            (Scalar::Int64, Varint(bits)) => bits.cast_signed().into(),
            (Scalar::Uint32, Varint(bits)) => (bits & u64::from(u32::MAX)).into(),
            (Scalar::Uint64, Varint(bits)) => bits.into(),
            (Scalar::Sint32 | Scalar::Sint64, Varint(bits)) => {
                ((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed()).into()
            }
            (Scalar::Bool, Varint(bits)) => (bits != 0).into(),
            (Scalar::Fixed32, Fixed32(bits)) => bits.into(),
            (Scalar::Sfixed32, Fixed32(bits)) => bits.cast_signed().into(),
            (Scalar::Float, Fixed32(bits)) => float_value(shortest_float(f32::from_bits(bits))),
            (Scalar::Fixed64, Fixed64(bits)) => bits.into(),
            (Scalar::Sfixed64, Fixed64(bits)) => bits.cast_signed().into(),
            (Scalar::Double, Fixed64(bits)) => float_value(f64::from_bits(bits)),
            (Scalar::String, Bytes(data)) => std::str::from_utf8(data).ok()?.into(),
            (Scalar::Bytes, Bytes(data)) => self.bytes_value(data),
            _ => return None,
        })
    }

    /// Bytes: as text where they can be read.
    fn bytes_value(&self, data: &[u8]) -> Value {
        let is_readable =
            |text: &&str| !text.chars().any(|it| it.is_control() && !it.is_whitespace());
        match (std::str::from_utf8(data).ok().filter(is_readable), self.bytes) {
            (Some(text), _) => text.into(),
            (None, BytesDisplay::Shown) => STANDARD.encode(data).into(),
            (None, BytesDisplay::Counted) => format!("({} bytes)", data.len()).into(),
        }
    }

    /// What the description does not have.
    fn unknown_value(&mut self, wire: WireValue<'_>) -> Option<Value> {
        self.count_value()?;
        Some(match wire {
            WireValue::Varint(bits) | WireValue::Fixed64(bits) => bits.into(),
            WireValue::Fixed32(bits) => bits.into(),
            WireValue::Bytes(data) | WireValue::Group(data) => self.bytes_value(data),
        })
    }

    /// A message of a type that it names itself.
    fn any_value(&mut self, data: &[u8], depth: usize) -> Option<Value> {
        let (mut url, mut content) = ("", [].as_slice());
        for read in WireFields::from_bytes(data) {
            match read? {
                (1, WireValue::Bytes(bytes)) => url = std::str::from_utf8(bytes).ok()?,
                (2, WireValue::Bytes(bytes)) => content = bytes,
                _ => {}
            }
        }
        let name = url.rsplit_once('/').map_or(url, |(_, name)| name);
        let mut shown = Map::from_iter([("@type".to_owned(), url.into())]);
        match self.message_value(name, content, depth + 1) {
            Some(Value::Object(members)) => shown.extend(members),
            Some(value) => drop(shown.insert("value".to_owned(), value)),
            None => drop(shown.insert("value".to_owned(), self.bytes_value(content))),
        }
        Some(Value::Object(shown))
    }

    fn count_value(&mut self) -> Option<()> {
        self.values += 1;
        (self.values <= MAX_VALUES).then_some(())
    }
}

/// The list of a repeated field.
fn repeated_list<'a>(
    members: &'a mut Map<String, Value>,
    name: &str,
) -> Option<&'a mut Vec<Value>> {
    members.entry(name).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
}

/// Enters what may be there several times.
fn append_value(members: &mut Map<String, Value>, name: &str, value: Value) {
    match members.get_mut(name) {
        None => drop(members.insert(name.to_owned(), value)),
        Some(Value::Array(list)) => list.push(value),
        Some(first) => *first = Value::Array(vec![first.take(), value]),
    }
}

fn next_packed<'a>(kind: &FieldKind, data: &'a [u8]) -> Option<(WireValue<'static>, &'a [u8])> {
    use Scalar::{Double, Fixed32, Fixed64, Float, Sfixed32, Sfixed64};
    match kind {
        FieldKind::Scalar(Fixed64 | Sfixed64 | Double) => {
            let (bytes, rest) = data.split_first_chunk()?;
            Some((WireValue::Fixed64(u64::from_le_bytes(*bytes)), rest))
        }
        FieldKind::Scalar(Fixed32 | Sfixed32 | Float) => {
            let (bytes, rest) = data.split_first_chunk()?;
            Some((WireValue::Fixed32(u32::from_le_bytes(*bytes)), rest))
        }
        _ => read_varint(data).map(|(bits, rest)| (WireValue::Varint(bits), rest)),
    }
}

/// The lower half, as a number with a sign.
fn low_bits(bits: u64) -> i32 {
    let [a, b, c, d, ..] = bits.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// The number with the fewest digits that is this one in 32 bits.
fn shortest_float(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| f64::from(number))
}

/// JSON has no words for what is no number.
fn float_value(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => "NaN".into(),
        None if number > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

/// Types of `google.protobuf` in the form that JSON has for them.
fn well_known_value(name: &str, mut members: Map<String, Value>) -> Value {
    let number = |name: &str| members.get(name).and_then(Value::as_i64).unwrap_or_default();
    let own = match name {
        "Timestamp" => {
            let nanos = u32::try_from(number("nanos")).ok();
            let time = nanos.and_then(|nanos| DateTime::from_timestamp(number("seconds"), nanos));
            time.map(|time| time.to_rfc3339_opts(SecondsFormat::AutoSi, true).into())
        }
        "Duration" => Some(format_duration(number("seconds"), number("nanos")).into()),
        "FieldMask" => {
            let paths = members.get("paths").and_then(Value::as_array);
            let paths = paths.into_iter().flatten().filter_map(Value::as_str);
            Some(paths.collect::<Vec<_>>().join(",").into())
        }
        "Struct" => Some(members.remove("fields").unwrap_or_else(|| Map::new().into())),
        "ListValue" => Some(members.remove("values").unwrap_or_else(|| Vec::<Value>::new().into())),
        "Value" if members.contains_key("null_value") => Some(Value::Null),
        "Value" => members.values_mut().next().map(Value::take),
        _ if name.ends_with("Value") => members.remove("value"),
        _ => None,
    };
    own.unwrap_or(Value::Object(members))
}

fn format_duration(seconds: i64, nanos: i64) -> String {
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    let (seconds, nanos) = (seconds.unsigned_abs(), nanos.unsigned_abs());
    if nanos == 0 {
        return format!("{sign}{seconds}s");
    }
    let digits = format!("{nanos:09}");
    format!("{sign}{seconds}.{}s", digits.trim_end_matches('0'))
}
