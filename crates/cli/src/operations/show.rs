//! Answers on standard output: as a table for people, or as JSON and CSV for programs.

use std::io::IsTerminal;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use ginnel_api::{Info, Kind, Shape, mask};

use crate::marks::RequestMarks;
use crate::output::print_line;

/// How answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputFormat {
    Table,
    Json,
    Jsonl,
    Csv,
    /// JSON as the API sends it: of a list, one page.
    Wire,
}

/// How wide a cell of a list may be.
const MAX_COLUMN_CHARS: usize = 40;

impl OutputFormat {
    pub(super) fn from_name(name: Option<&String>) -> Self {
        match name.map(String::as_str) {
            Some("json") => Self::Json,
            Some("jsonl") => Self::Jsonl,
            Some("csv") => Self::Csv,
            _ => Self::Table,
        }
    }
}

/// A value as tables show it: what an agent has captured, without the secrets of those who sent it.
///
/// The other formats are exact, because programs read them.
fn mask_object(shape: &Shape, object: &Value) -> Value {
    let mut shown = object.clone();
    mask::record(shape, &mut shown);
    mask_record(shape, &mut shown);
    shown
}

fn mask_record(shape: &Shape, object: &mut Value) {
    match shape.name {
        "RequestMessage" | "ResponseMessage" => return mask_message(object),
        "StreamMessage" => return mask_stream_message(object),
        "CapturedRequest" => mask_rules(object),
        _ => {}
    }
    for field in shape.fields {
        let Some(value) = object.get_mut(field.name) else { continue };
        match &field.kind {
            Kind::Record(inner) => mask_record(inner, value),
            Kind::List(Kind::Record(inner)) => {
                for item in value.as_array_mut().into_iter().flatten() {
                    mask_record(inner, item);
                }
            }
            // Policies, headers and addresses; secrets in them are known by their names.
            Kind::Json | Kind::Object => mask::value(value),
            Kind::Text { .. } | Kind::List(_) | Kind::Map(_) if !field.is_public => {
                mask::value(value)
            }
            _ => {}
        }
    }
}

/// The expressions of rules, which may name what is secret.
fn mask_rules(request: &mut Value) {
    let rules = request.get_mut("rules").and_then(Value::as_array_mut);
    for rule in rules.into_iter().flatten() {
        let expressions = rule.get_mut("expressions").and_then(Value::as_array_mut);
        for expression in expressions.into_iter().flatten() {
            *expression = mask::text(expression.as_str().unwrap_or_default()).into();
        }
    }
}

/// A captured request in one line, without secrets: when, what, how it ended, how long it took, its marks.
pub(super) fn captured_line(request: &Value) -> String {
    let target = mask::target(request["request"]["uri"].as_str().unwrap_or_default()).into_owned();
    let text = |value: &Value| format_cell(value);
    let milliseconds = request["duration"].as_f64().unwrap_or_default() / 1e6;
    let status = match &request["response"]["status_code"] {
        Value::Null => "-".to_owned(),
        status => text(status),
    };
    let has = |field: &str| !request[field].is_null();
    let marks = RequestMarks {
        mocked: has("mock_id"),
        held: has("hold_id"),
        edited: has("edited"),
        policy: has("rules"),
        pinned: has("pinned"),
        imported: has("imported"),
        replay: has("replay_of"),
        failed: has("error") || request["grpc_status"].as_i64().is_some_and(|status| status != 0),
    };
    let note = request["note"].as_str().map(|note| format!(" note: {}", format_cell(&note.into())));
    let line = format!(
        "{}  {:7} {:3} {:>9}  {}",
        text(&request["start"]),
        text(&request["request"]["method"]),
        status,
        format!("{milliseconds:.1} ms"),
        format_cell(&target.into()),
    );
    format!("{line}{}{}", marks.suffix(), note.unwrap_or_default())
}

/// Masks the data of a message of a stream, and its decoded form.
fn mask_stream_message(message: &mut Value) {
    let Some(fields) = message.as_object_mut() else { return };
    if let Some(Value::String(id)) = fields.get_mut("event_id") {
        *id = mask::text(id).into_owned();
    }
    if let Some(decoded) = fields.get_mut("message") {
        mask::value(decoded);
    }
    if let Some(Value::String(data)) = fields.get_mut("data") {
        let decoded = STANDARD.decode(&*data).ok().and_then(|it| String::from_utf8(it).ok());
        *data = match decoded {
            Some(text) if text.trim_start().starts_with(['{', '[']) => mask::json(&text),
            Some(text) => mask::text(&text).into_owned(),
            None => describe_bytes(data),
        };
    }
}

fn mask_message(message: &mut Value) {
    let Some(fields) = message.as_object_mut() else { return };
    if let Some(Value::String(target)) = fields.get_mut("uri") {
        *target = mask::target(target).into_owned();
    }
    for part in ["headers", "trailers"] {
        let Some(Value::Object(headers)) = fields.get_mut(part) else { continue };
        for (name, values) in headers {
            for value in values.as_array_mut().into_iter().flatten() {
                *value = mask::header(name, value.as_str().unwrap_or_default()).into();
            }
        }
    }
}

/// The result of an operation; a secret that it issues is shown.
pub(super) fn format_result(
    info: &Info,
    shape: &Shape,
    object: &Value,
    format: OutputFormat,
) -> String {
    match format {
        OutputFormat::Table if info.issues_secret => {
            let mut rows = Vec::new();
            flatten_fields(shape, object, "", &mut rows);
            align_columns(&rows, false)
        }
        format => format_object(shape, object, format),
    }
}

/// One object.
fn format_object(shape: &Shape, object: &Value, format: OutputFormat) -> String {
    match format {
        OutputFormat::Json | OutputFormat::Wire => pretty_json(object),
        OutputFormat::Jsonl => object.to_string(),
        OutputFormat::Csv => format_csv(shape, std::slice::from_ref(object)),
        OutputFormat::Table => {
            let mut rows = Vec::new();
            flatten_fields(shape, &mask_object(shape, object), "", &mut rows);
            align_columns(&rows, false)
        }
    }
}

/// The items of a list as they come in.
pub(super) struct ListPrinter {
    shape: &'static Shape,
    format: OutputFormat,
    items: Vec<Value>,
    count: usize,
}

impl ListPrinter {
    pub(super) fn new(shape: &'static Shape, format: OutputFormat) -> Self {
        Self { shape, format, items: Vec::new(), count: 0 }
    }

    /// Takes the items of a page; true when there are as many as were wanted.
    pub(super) fn add_items(&mut self, items: Vec<Value>, max: Option<usize>) -> bool {
        for item in items {
            if max.is_some_and(|max| self.count >= max) {
                return true;
            }
            self.count += 1;
            // A line is complete in itself: whoever reads need not wait for the last page.
            if self.format == OutputFormat::Jsonl {
                print_line(&item.to_string());
            } else {
                self.items.push(item);
            }
        }
        max.is_some_and(|max| self.count >= max)
    }

    pub(super) fn print_items(self) {
        match self.format {
            OutputFormat::Jsonl => {}
            OutputFormat::Json | OutputFormat::Wire => {
                print_line(&pretty_json(&Value::Array(self.items)));
            }
            OutputFormat::Csv => print_line(&format_csv(self.shape, &self.items)),
            OutputFormat::Table => print_line(&format_table(self.shape, &self.items)),
        }
    }
}

pub(super) fn pretty_json(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

/// The fields of an object that have a value, with those of what is inside under dotted names. What
/// this version does not know comes last.
fn flatten_fields(shape: &Shape, object: &Value, above: &str, rows: &mut Vec<Vec<String>>) {
    for field in shape.fields {
        let (name, value) = (format!("{above}{}", field.name), &object[field.name]);
        match (&field.kind, value) {
            (_, Value::Null) => {}
            (Kind::Record(inner), Value::Object(_)) => {
                flatten_fields(inner, value, &format!("{name}."), rows);
            }
            (Kind::Bytes, Value::String(text)) => rows.push(vec![name, describe_bytes(text)]),
            _ => rows.push(vec![name, format_cell(value)]),
        }
    }
    let known = |name: &str| shape.fields.iter().any(|field| field.name == name);
    for (name, value) in object.as_object().into_iter().flatten() {
        if !known(name) && !value.is_null() {
            rows.push(vec![format!("{above}{name}"), format_cell(value)]);
        }
    }
}

/// Bytes in base64 by their number: nobody reads them in a table.
fn describe_bytes(text: &str) -> String {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    format!("{} bytes", (text.len() / 4 * 3).saturating_sub(padding))
}

/// A row for each item; columns that are empty everywhere are left out, and so is the address.
fn format_table(shape: &'static Shape, items: &[Value]) -> String {
    let items = items.iter().map(|item| mask_object(shape, item)).collect::<Vec<_>>();
    let filled = |path: &Vec<&str>| items.iter().any(|item| !value_at(item, path).is_null());
    let columns: Vec<_> = table_columns(shape).into_iter().filter(filled).collect();
    if columns.is_empty() {
        return "no items".to_owned();
    }
    let head = columns.iter().map(|path| path.join(".").to_uppercase()).collect();
    let rows = items.iter().map(|item| {
        columns
            .iter()
            .map(|path| truncate_cell(format_cell(value_at(item, path))))
            .collect::<Vec<_>>()
    });
    align_columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>(), true)
}

/// What a list shows: the fields, and the plain ones of what is inside.
fn table_columns(shape: &'static Shape) -> Vec<Vec<&'static str>> {
    let mut columns = Vec::new();
    for field in shape.fields.iter().filter(|field| field.name != "uri") {
        match &field.kind {
            Kind::Record(inner) => {
                let plain = inner.fields.iter().filter(|inner| is_short(&inner.kind));
                columns.extend(plain.map(|inner| vec![field.name, inner.name]));
            }
            _ => columns.push(vec![field.name]),
        }
    }
    columns
}

/// What a column has room for.
fn is_short(kind: &Kind) -> bool {
    !matches!(
        kind,
        Kind::Record(_) | Kind::List(_) | Kind::Map(_) | Kind::Bytes | Kind::Json | Kind::Object
    )
}

/// What is inside an object, by the names on the way.
fn value_at<'v>(object: &'v Value, path: &[&str]) -> &'v Value {
    path.iter().fold(object, |value, name| &value[*name])
}

/// Columns as wide as their widest cell.
fn align_columns(rows: &[Vec<String>], headed: bool) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let bold = headed && is_colourful();
    let lines = rows.iter().enumerate().map(|(number, row)| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ").trim_end().to_owned();
        if bold && number == 0 { format!("\x1b[1m{line}\x1b[0m") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Colours are for terminals whose owner does not mind.
fn is_colourful() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// A value in one line. Characters that would command a terminal are written out.
fn format_cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let shown = text.chars().map(|character| match character {
        character if character.is_control() => character.escape_default().to_string(),
        character => character.to_string(),
    });
    shown.collect()
}

fn truncate_cell(text: String) -> String {
    if text.chars().count() <= MAX_COLUMN_CHARS {
        return text;
    }
    text.chars().take(MAX_COLUMN_CHARS - 1).chain(['…']).collect()
}

/// RFC 4180, with a column for each field of the shape.
fn format_csv(shape: &Shape, items: &[Value]) -> String {
    let head = shape.fields.iter().map(|field| field.name.to_owned()).collect::<Vec<_>>().join(",");
    let rows = items.iter().map(|item| {
        let cells = shape.fields.iter().map(|field| match &item[field.name] {
            Value::Null => String::new(),
            Value::String(text) => escape_csv(text),
            other => escape_csv(&other.to_string()),
        });
        cells.collect::<Vec<_>>().join(",")
    });
    std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\r\n")
}

fn escape_csv(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ginnel_api::{Operation, Output, local};

    fn listed<O: Operation>() -> &'static Shape {
        match O::INFO.output {
            Output::Page { item, .. } => item,
            other => unreachable!("{other:?} is no list"),
        }
    }

    #[test]
    fn a_followed_request_is_one_line_with_its_marks_and_without_secrets() {
        let request = json!({"method": "GET", "uri": "/a?token=swordfish\u{1b}[2J"});
        let captured = json!({
            "start": "2026-11-23T10:00:00Z", "duration": 12_340_000, "request": request, "pinned": true,
            "response": {"status_code": 201}, "rules": [{}], "mock_id": "m", "note": "a\nb",
        });

        let line = captured_line(&captured);

        assert!(
            line.starts_with("2026-11-23T10:00:00Z  GET     201   12.3 ms  /a?token="),
            "{line}"
        );
        assert!(line.ends_with("  [mock, policy, pinned] note: a\\nb"), "{line}");
        assert!(!line.contains("swordfish") && !line.contains('\u{1b}'), "{line}");
        assert!(captured_line(&json!({"duration": 1})).contains(" - "));
    }

    #[test]
    fn tables_of_what_was_captured_show_no_secrets() {
        let message = json!({
            "method": "GET", "proto": "HTTP/1.1", "uri": "/?token=swordfish", "raw": "",
            "headers": {"Authorization": ["Bearer swordfish"]},
        });
        let held = json!({"id": "1", "hold_id": "h", "request": message});
        let captured = json!({"id": "1", "request": message});
        let said = |data: &[u8]| {
            json!({"index": 1, "kind": "text", "data": STANDARD.encode(data),
            "event_id": "Bearer swordfish0123456789"})
        };
        let said = [&b"{\"password\": \"swordfish\"}"[..], b"\xffswordfish"].map(said);

        let shown = [
            format_object(listed::<local::held_requests::List>(), &held, OutputFormat::Table),
            format_table(listed::<local::held_requests::List>(), &[held]),
            format_object(listed::<local::requests::List>(), &captured, OutputFormat::Table),
            format_table(listed::<local::requests::Messages>(), &said),
        ];

        for text in &shown {
            assert!(!text.contains("swordfish") && text.contains(mask::MASK), "{text}");
        }
        assert!(shown[3].contains("10 bytes"), "{}", shown[3]);
    }
    /// A value of this kind with `marker` in each secret field.
    fn sample(kind: &Kind, marker: &str) -> Value {
        match kind {
            Kind::Secret => marker.into(),
            Kind::List(item) => json!([sample(item, marker)]),
            Kind::Map(item) => json!({ "name": sample(item, marker) }),
            Kind::Record(shape) => record(shape, marker),
            Kind::Bool => true.into(),
            Kind::Integer | Kind::Number => 1.into(),
            Kind::Bytes => "".into(),
            Kind::Json | Kind::Object => json!({"password": marker, "tokens": [marker]}),
            Kind::Text { .. } | Kind::TextOrNumber | Kind::Time => "kept".into(),
        }
    }

    fn record(shape: &Shape, marker: &str) -> Value {
        let fields = shape.fields.iter();
        fields.map(|field| (field.name.to_owned(), sample(&field.kind, marker))).collect()
    }

    #[test]
    fn tables_show_secrets_only_where_an_operation_issues_them() {
        let all = ginnel_api::remote::operations().chain(local::operations());
        let mut issuing = Vec::new();
        for info in all {
            let (Output::One(shape) | Output::Page { item: shape, .. }) = info.output else {
                continue;
            };
            let object = record(shape, "swordfish");

            let shown = format_result(info, shape, &object, OutputFormat::Table);
            let listed = format_table(shape, std::slice::from_ref(&object));

            assert!(!listed.contains("swordfish"), "{} {}: {listed}", info.resource, info.name);
            match info.issues_secret {
                true => issuing.push((info.resource, info.name)),
                false => assert!(
                    !shown.contains("swordfish"),
                    "{} {}: {shown}",
                    info.resource,
                    info.name
                ),
            }
        }
        let expected = [
            ("api_keys", "create"),
            ("credentials", "create"),
            ("event_destinations", "create"),
            ("event_destinations", "update"),
        ];
        issuing.sort_unstable();
        assert_eq!(issuing, expected);
    }
}
