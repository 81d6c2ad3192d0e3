//! Bodies, headers and addresses whose secrets are masked.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use ginnel_api::mask;

const SECRET: &str = "swordfish-7391";
const TYPES: [&str; 12] = [
    "",
    "text/plain",
    "application/json",
    "application/x-www-form-urlencoded",
    "application/yaml",
    "application/xml",
    "application/graphql",
    "multipart/form-data",
    "text/css",
    "text/event-stream",
    "text/html",
    "text/javascript",
];

/// A secret in front of any text is hidden in each format, and masks in the form of a value keep its members.
pub fn target(data: &[u8]) {
    mask::body(TYPES[data.len() % TYPES.len()], data);
    let text = String::from_utf8_lossy(data);
    mask::header("X-Text", &text);
    mask::url(&text);
    for (media_type, body) in bodies(&text) {
        let shown = mask::body(media_type, body.as_bytes()).unwrap_or(body.clone().into_bytes());
        let shown = String::from_utf8_lossy(&shown);
        assert!(!shown.contains(SECRET), "{media_type}: {body} as {shown}");
    }
    if let Ok(value) = serde_json::from_slice::<Value>(data) {
        let mut shown = value.clone();
        mask::value_in_form(&mut shown);
        assert_same_members(&value, &shown);
    }
}

/// Bodies with a secret in front of a text that says nothing.
fn bodies(text: &str) -> [(&'static str, String); 5] {
    let coded = utf8_percent_encode(text, NON_ALPHANUMERIC);
    let quoted = Value::from(text).to_string();
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    [
        ("application/json", format!("{{\"password\": \"{SECRET}\", \"a\": {quoted}}}")),
        ("application/x-www-form-urlencoded", format!("password={SECRET}&a={coded}")),
        ("application/yaml", format!("password: {SECRET}\na: {quoted}\n")),
        ("application/xml", format!("<a><password>{SECRET}</password><b>{escaped}</b></a>")),
        (
            "multipart/form-data",
            format!(
                "--B\nContent-Disposition: form-data; name=password\n\n{SECRET}\n--B\n\n{text}\n--B--"
            ),
        ),
    ]
}

fn assert_same_members(value: &Value, shown: &Value) {
    match (value, shown) {
        (Value::Object(value), Value::Object(shown)) => {
            assert!(value.keys().eq(shown.keys()));
            value.values().zip(shown.values()).for_each(|(a, b)| assert_same_members(a, b));
        }
        (Value::Array(value), Value::Array(shown)) => {
            assert_eq!(value.len(), shown.len());
            value.iter().zip(shown).for_each(|(a, b)| assert_same_members(a, b));
        }
        (value, shown) => assert_eq!(std::mem::discriminant(value), std::mem::discriminant(shown)),
    }
}
