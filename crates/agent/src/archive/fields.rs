//! The fields of an archive that are read, so that others can be reported.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// How many unread fields are reported.
const MAX_UNREAD_FIELDS: usize = 100;
/// The longest name that is reported.
const MAX_NAME_BYTES: usize = 100;

const LOG_FIELDS: &[&str] = &["version", "creator", "comment", "entries"];
const ENTRY_FIELDS: &[&str] = &[
    "startedDateTime",
    "time",
    "request",
    "response",
    "timings",
    "comment",
    "_id",
    "_tunnel",
    "_clientAddress",
    "_note",
    "_replayOf",
    "_resourceType",
    "_webSocketMessages",
];
const REQUEST_FIELDS: &[&str] = &[
    "method",
    "url",
    "httpVersion",
    "cookies",
    "headers",
    "queryString",
    "postData",
    "headersSize",
    "bodySize",
    "_rawTarget",
];
const RESPONSE_FIELDS: &[&str] = &[
    "status",
    "statusText",
    "httpVersion",
    "cookies",
    "headers",
    "content",
    "redirectURL",
    "headersSize",
    "bodySize",
    "comment",
    "_error",
    "_transferSize",
];

/// Fields of an archive that have a value and are not kept, such as `entries[].serverIPAddress`.
#[derive(Debug, Default)]
pub(super) struct UnreadFields(BTreeSet<String>);

impl UnreadFields {
    pub fn add_log(&mut self, log: &Map<String, Value>) {
        self.add("", log, LOG_FIELDS);
    }

    pub fn add_entry(&mut self, entry: &Value) {
        for (value, place, known) in [
            (entry, "entries[].", ENTRY_FIELDS),
            (&entry["request"], "entries[].request.", REQUEST_FIELDS),
            (&entry["response"], "entries[].response.", RESPONSE_FIELDS),
        ] {
            value.as_object().into_iter().for_each(|fields| self.add(place, fields, known));
        }
    }

    pub fn into_names(self) -> Vec<String> {
        self.0.into_iter().collect()
    }

    fn add(&mut self, place: &str, fields: &Map<String, Value>, known: &[&str]) {
        let unread = fields.iter().filter(|(name, value)| {
            !known.contains(&name.as_str()) && name.len() <= MAX_NAME_BYTES && has_content(value)
        });
        for (name, _) in unread {
            if self.0.len() < MAX_UNREAD_FIELDS {
                self.0.insert(format!("{place}{name}"));
            }
        }
    }
}

fn has_content(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}
