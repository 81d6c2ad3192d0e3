//! Texts in which `{{ … }}` stands for a value of the request.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::matcher::RequestView;

/// What a text may name.
const NAMES: [&str; 10] =
    ["method", "path", "query", "header", "host", "tunnel_name", "body", "id", "now", "target"];

/// What a request has for texts that name its values.
#[derive(Debug)]
pub struct TemplateValues<'a> {
    /// The head.
    pub request: RequestView<'a>,
    /// The body, as far as it was kept.
    pub body: &'a [u8],
    /// The identifier of the captured request; empty where it is not captured.
    pub id: &'a str,
}

/// A text, or the name of a value between two.
enum TemplatePart<'t> {
    Text(&'t str),
    Name(&'t str),
}

/// The parts of a text; an error where a name has no end.
fn parse_parts(text: &str) -> Result<Vec<TemplatePart<'_>>, String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, behind)) = rest.split_once("{{") {
        let (name, after) =
            behind.split_once("}}").ok_or_else(|| "has {{ without }}".to_owned())?;
        parts.extend([TemplatePart::Text(before), TemplatePart::Name(name.trim())]);
        rest = after;
    }
    parts.push(TemplatePart::Text(rest));
    Ok(parts)
}

/// Makes sure that a text names nothing that no request has.
pub(super) fn check_text(text: &str) -> Result<(), String> {
    for part in parse_parts(text)? {
        let TemplatePart::Name(name) = part else { continue };
        let word = name.split('.').next().unwrap_or_default();
        if !NAMES.contains(&word) || name == "header" {
            let known = NAMES.join(", ");
            return Err(format!(
                "{{{{ {name} }}}} is none of {known}; `header.NAME` is one header"
            ));
        }
    }
    Ok(())
}

/// The same for all texts in a JSON value.
pub(super) fn check_json(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => check_text(text),
        Value::Array(items) => items.iter().try_for_each(check_json),
        Value::Object(members) => members.values().try_for_each(check_json),
        _ => Ok(()),
    }
}

impl TemplateValues<'_> {
    /// A text with the values of this request; what it has none of is empty.
    pub fn render_text(&self, text: &str) -> String {
        let mut rendered = String::with_capacity(text.len());
        // What cannot be read was refused before it came here.
        for part in parse_parts(text).unwrap_or_default() {
            match part {
                TemplatePart::Text(text) => rendered.push_str(text),
                TemplatePart::Name(name) => {
                    rendered.push_str(&self.resolve_name(name).unwrap_or_default())
                }
            }
        }
        rendered
    }

    /// The same for all texts in a JSON value.
    pub fn render_json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.render_text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.render_json(item)).collect(),
            Value::Object(members) => Value::Object(
                members.iter().map(|(name, it)| (name.clone(), self.render_json(it))).collect(),
            ),
            other => other.clone(),
        }
    }

    fn resolve_name(&self, name: &str) -> Option<Cow<'_, str>> {
        let (word, rest) =
            name.split_once('.').map_or((name, None), |(word, rest)| (word, Some(rest)));
        let request = &self.request;
        Some(match (word, rest) {
            ("method", _) => request.method().into(),
            ("target", _) => request.target.into(),
            ("host", _) => request.host.into(),
            ("tunnel_name", _) => request.tunnel_name.into(),
            ("id", _) => self.id.into(),
            ("now", _) => chrono::Utc::now().to_rfc3339().into(),
            ("path", None) => request.path().into(),
            // The first segment stands behind the first slash.
            ("path", Some(at)) => request.path().split('/').nth(at.parse().ok()?)?.into(),
            ("query", None) => request.query().into(),
            ("query", Some(name)) => form_value(request.query().as_bytes(), name)?.into(),
            ("header", Some(name)) => request.header_values(name).next()?.to_owned().into(),
            ("body", None) => String::from_utf8_lossy(self.body),
            ("body", Some(path)) => self.body_value(path)?.into(),
            _ => return None,
        })
    }

    /// Returns a value inside a body of JSON as it is written there, or a field of a form.
    fn body_value(&self, path: &str) -> Option<String> {
        let Ok(json) = serde_json::from_slice::<&RawValue>(self.body) else {
            return form_value(self.body, path);
        };
        let found = path.split('.').try_fold(json, find_member)?.get();
        match found.as_bytes().first()? {
            b'"' => serde_json::from_str(found).ok(),
            b'n' => None,
            _ => Some(without_blanks(found)),
        }
    }
}

/// Returns an item of a list, or a member of an object. Numbers keep their digits, which `serde_json::Value` would round.
fn find_member<'j>(json: &'j RawValue, step: &str) -> Option<&'j RawValue> {
    let text = json.get();
    if text.starts_with('[') {
        let items = serde_json::from_str::<Vec<&RawValue>>(text).ok()?;
        return items.get(step.parse::<usize>().ok()?).copied();
    }
    serde_json::from_str::<HashMap<String, &RawValue>>(text).ok()?.remove(step)
}

/// Returns JSON without the blanks between its tokens.
fn without_blanks(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let kept = json.chars().filter(|letter| {
        let is_kept = is_text || !letter.is_ascii_whitespace();
        if *letter == '"' && !is_escaped {
            is_text = !is_text;
        }
        is_escaped = *letter == '\\' && !is_escaped;
        is_kept
    });
    kept.collect()
}

fn form_value(form: &[u8], name: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(form);
    pairs.find(|(own, _)| own == name).map(|(_, value)| value.into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values<'a>(body: &'a [u8]) -> TemplateValues<'a> {
        let head = b"PUT /shop/7?q=a%20b&q=c HTTP/1.1\r\nX-Trace: t1\r\n\r\n";
        let request =
            RequestView { tunnel_name: "web", host: "x.test", target: "/shop/7?q=a%20b&q=c", head };
        TemplateValues { request, body, id: "0a" }
    }

    #[test]
    fn values_of_the_request_stand_where_they_are_named() {
        let json = br#"{"a": {"b": [1, "two"]}, "n": null}"#;
        for (text, expected) in [
            ("no names", "no names"),
            ("{{method}} {{ path }} {{ path.2 }} {{path.9}}", "PUT /shop/7 7 "),
            ("{{ query.q }}|{{ query.none }}|{{ query }}", "a b||q=a%20b&q=c"),
            ("{{ header.x-trace }} {{ host }} {{ tunnel_name }} {{ id }}", "t1 x.test web 0a"),
            ("{{ body.a.b.1 }} {{ body.a.b.0 }} {{ body.n }} {{ body.a.b }}", "two 1  [1,\"two\"]"),
            ("{{ target }}", "/shop/7?q=a%20b&q=c"),
        ] {
            check_text(text).unwrap();
            assert_eq!(values(json).render_text(text), expected, "{text}");
        }
        let numbers = br#"{"a": [123456789012345678901234567890, 10.00, 1e2, -0.0, { "b" : "c d\" " }], "a.b": 1}"#;
        let text = "{{ body.a.0 }} {{ body.a.1 }} {{ body.a.2 }} {{ body.a.3 }} {{ body.a.4 }}";
        let expected = r#"123456789012345678901234567890 10.00 1e2 -0.0 {"b":"c d\" "}"#;
        assert_eq!(values(numbers).render_text(text), expected);
        assert_eq!(values(b"a=1&b=x+y").render_text("{{ body.b }}"), "x y");
        let rendered = values(br#"{"t": "\"}"}"#).render_json(&json!({"t": ["{{ body.t }}", 1]}));
        assert_eq!(rendered.to_string(), r#"{"t":["\"}",1]}"#);
    }

    #[test]
    fn unknown_names_are_refused() {
        for text in ["{{ bdoy }}", "{{ }}", "{{ header }}", "{{ body"] {
            assert!(check_text(text).is_err(), "{text}");
        }
        assert!(check_json(&json!([{"a": "{{ bdoy }}"}])).is_err());
    }
}
