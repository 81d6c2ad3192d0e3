//! Calls of the two APIs: the operation tables declare which of their fields are secret.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::body::body;
use super::fields::url;
use super::json::{conceal_in_form, value, value_in_form};
use super::mark::MASK;
use super::message::message;
use crate::secrets::last_word;
use crate::{Field, Info, Kind, Output, Shape, local, remote};

/// The operations that may match a call, with the secret fields of its bodies.
///
/// A captured call may have any server and any prefix of its path. If several operations match, the secrets of
/// all of them are masked.
#[derive(Debug, Default)]
pub struct CallMask(Vec<&'static Info>);

/// The side of a call that a body belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CallSide {
    Request,
    Response,
}

impl CallMask {
    /// Finds the operations that a request of this method and target may call.
    pub fn for_request(method: &str, target: &str) -> Self {
        let path = target.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        let all = remote::operations().chain(local::operations());
        Self(
            all.filter(|info| info.method.as_str() == method && ends_with(path, info.path))
                .collect(),
        )
    }

    /// Masks a body: the secret fields of these operations, and what [`body`] masks.
    pub fn body(&self, media_type: &str, bytes: &[u8], side: CallSide) -> Option<Vec<u8>> {
        let has_own = self.has_secrets(side);
        if !has_own && !self.has_secrets(CallSide::Request) {
            return body(media_type, bytes);
        }
        let Ok(mut value) = serde_json::from_slice::<Value>(bytes) else {
            return match has_own && !bytes.is_empty() {
                true => Some(MASK.as_bytes().to_vec()),
                false => body(media_type, bytes),
            };
        };
        let before = value.clone();
        self.conceal_fields(&mut value, side);
        if value == before {
            return body(media_type, bytes);
        }
        let concealed = value.to_string().into_bytes();
        Some(body("application/json", &concealed).unwrap_or(concealed))
    }

    /// Masks a JSON body and keeps its form, so that it can be decoded as a body of the call. Captured messages
    /// inside of it are masked as messages.
    pub fn value_in_form(&self, shown: &mut Value, side: CallSide) {
        self.conceal_fields(shown, side);
        for info in &self.0 {
            mask_fields(info, side, shown, &mask_bytes);
        }
        mask_raw_messages(shown);
        value_in_form(shown);
    }

    /// Conceals secret fields. A response may repeat the request, as errors of some servers do.
    fn conceal_fields(&self, shown: &mut Value, side: CallSide) {
        for info in &self.0 {
            mask_fields(info, CallSide::Request, shown, &conceal_secret);
            if side == CallSide::Response {
                mask_fields(info, side, shown, &conceal_secret);
            }
        }
    }

    fn has_secrets(&self, side: CallSide) -> bool {
        self.0.iter().any(|info| match side {
            CallSide::Request => info.parameters.iter().any(|it| it.kind.has_secrets()),
            CallSide::Response => output_shape(info).is_some_and(|(_, shape)| shape.has_secrets()),
        })
    }
}

/// Masks the arguments of an operation: its secret fields, and what their names declare.
pub fn arguments(info: &Info, shown: &mut Value) {
    mask_fields(info, CallSide::Request, shown, &conceal_secret);
    value(shown);
}

/// Masks the secret fields of a value of this shape.
pub fn record(shape: &Shape, shown: &mut Value) {
    mask_members(shape.fields, shown, &conceal_secret);
}

/// A function that masks a value of one kind.
type MaskField = dyn Fn(&Kind, &str, &mut Value);

fn conceal_secret(kind: &Kind, name: &str, value: &mut Value) {
    match kind {
        Kind::Secret => conceal_in_form(value, true),
        Kind::Text { .. } | Kind::TextOrNumber => conceal_login(name, value),
        _ => {}
    }
}

/// The last words of fields that have addresses.
const ADDRESS_WORDS: [&str; 8] =
    ["addr", "address", "domain", "host", "hostname", "uri", "url", "upstream"];
/// Letters of other texts than addresses, which may have a colon and an at sign as well.
const TEXT_LETTERS: [char; 5] = ['{', '[', '"', '<', '\n'];

/// Hides the user and the password of an address, which need no scheme in front of them.
fn conceal_login(name: &str, value: &mut Value) {
    match value {
        Value::String(text) => {
            let word = last_word(name);
            let is_address = ADDRESS_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known));
            let is_word = !text.contains(char::is_whitespace) && !text.contains(TEXT_LETTERS);
            let has_login = text.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'));
            if has_login && (is_address || is_word) {
                *text = url(text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| conceal_login(name, item)),
        Value::Object(members) => members.values_mut().for_each(|it| conceal_login(name, it)),
        _ => {}
    }
}

/// Masks bytes, which are messages or bodies of messages.
fn mask_bytes(kind: &Kind, name: &str, value: &mut Value) {
    if let (Kind::Bytes, Value::String(coded)) = (kind, value) {
        mask_coded(name, coded);
    }
}

fn mask_coded(name: &str, coded: &mut String) {
    let Ok(bytes) = STANDARD.decode(coded.as_bytes()) else { return };
    let masked = if name == "raw" { message(&bytes) } else { body("", &bytes) };
    if let Some(masked) = masked {
        *coded = STANDARD.encode(masked);
    }
}

/// Masks captured messages wherever they are: other servers than ours may have them in other places.
fn mask_raw_messages(shown: &mut Value) {
    match shown {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(coded) if name == "raw" => mask_coded(name, coded),
                    member => mask_raw_messages(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_raw_messages),
        _ => {}
    }
}

/// Masks the fields of a request or a response.
fn mask_fields(info: &Info, side: CallSide, shown: &mut Value, mask: &MaskField) {
    match side {
        CallSide::Request => mask_members(info.parameters, shown, mask),
        CallSide::Response => match output_shape(info) {
            Some((Some(field), shape)) => {
                for item in shown.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
                {
                    mask_members(shape.fields, item, mask);
                }
            }
            Some((None, shape)) => mask_members(shape.fields, shown, mask),
            None => {}
        },
    }
}

/// Returns the shape of an operation's result, and the field of a page that has the items.
fn output_shape(info: &Info) -> Option<(Option<&'static str>, &'static Shape)> {
    match info.output {
        Output::Nothing => None,
        Output::One(shape) => Some((None, shape)),
        Output::Page { field, item } => Some((Some(field), item)),
    }
}

fn mask_members(known: &[Field], shown: &mut Value, mask: &MaskField) {
    for field in known {
        if let Some(value) = shown.get_mut(field.name) {
            mask_field(&field.kind, field.name, value, mask);
        }
    }
}

fn mask_field(kind: &Kind, name: &str, shown: &mut Value, mask: &MaskField) {
    match (kind, &mut *shown) {
        (Kind::List(item), Value::Array(values)) => {
            values.iter_mut().for_each(|value| mask_field(item, name, value, mask));
        }
        (Kind::Map(item), Value::Object(values)) => {
            values.values_mut().for_each(|value| mask_field(item, name, value, mask));
        }
        (Kind::Record(shape), Value::Object(_)) => mask_members(shape.fields, shown, mask),
        // A value that is not as it is declared may be anything.
        (Kind::List(inner) | Kind::Map(inner), _) if inner.has_secrets() => {
            mask_field(inner, name, shown, mask);
        }
        _ => mask(kind, name, shown),
    }
}

/// Returns true if a path ends with the segments of a template, in which `{…}` matches any segment.
fn ends_with(path: &str, template: &str) -> bool {
    let mut segments = path.rsplit('/');
    template.rsplit('/').filter(|expected| !expected.is_empty()).all(|expected| {
        segments.next().is_some_and(|segment| {
            !segment.is_empty() && (expected.starts_with('{') || expected == segment)
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(method: &str, target: &str, body: &str) -> String {
        let masked = CallMask::for_request(method, target).body(
            "application/json",
            body.as_bytes(),
            CallSide::Request,
        );
        masked.map_or(body.to_owned(), |masked| String::from_utf8(masked).unwrap())
    }

    #[test]
    fn fields_that_the_table_declares_secret_are_masked() {
        let body = r#"{"name":"value","value":"swordfish"}"#;
        let masked = format!(r#"{{"name":"value","value":"{MASK}"}}"#);
        for target in ["/vault_secrets", "http://a.test/prefix/vault_secrets/?x=1"] {
            assert_eq!(shown("POST", target, body), masked, "{target}");
        }
        assert_eq!(shown("PATCH", "/vault_secrets/secret_1", body), masked);
        for (method, target) in [("POST", "/vaults"), ("GET", "/vault_secrets"), ("POST", "/x")] {
            assert_eq!(shown(method, target, body), body, "{method} {target}");
        }
        let tunnel = r#"{"addr":"80","basic_auth":["a:swordfish"]}"#;
        let masked = format!(r#"{{"addr":"80","basic_auth":"{MASK}"}}"#);
        assert_eq!(shown("POST", "/api/tunnels", tunnel), masked);
    }

    #[test]
    fn a_response_that_repeats_the_request_is_masked() {
        let mask = CallMask::for_request("POST", "/vault_secrets");
        let response = |body: &str| {
            let masked = mask.body("text/plain", body.as_bytes(), CallSide::Response);
            masked.map_or(body.to_owned(), |masked| String::from_utf8(masked).unwrap())
        };

        let expected = format!(r#"{{"value":"{MASK}"}}"#);
        assert_eq!(response(r#"{"value":"swordfish"}"#), expected);
        assert_eq!(response("no such vault"), "no such vault");
    }

    #[test]
    fn arguments_with_addresses_show_no_login() {
        let info = remote::operations()
            .find(|info| info.path == "/endpoints" && info.method.as_str() == "POST")
            .unwrap();
        for (shown, expected) in [
            (
                json!({"url": "https://ada:swordfish@a.test/b"}),
                json!({"url": format!("https://{MASK}@a.test/b")}),
            ),
            (json!({"url": "ada:swordfish@127.1:80"}), json!({"url": format!("{MASK}@127.1:80")})),
            (json!({"url": "ada:sword fish@a.test"}), json!({"url": format!("{MASK}@a.test")})),
            (json!({"url": ["ada:swordfish@a.test"]}), json!({"url": [format!("{MASK}@a.test")]})),
            (
                json!({"description": "ada:swordfish@a.test"}),
                json!({"description": format!("{MASK}@a.test")}),
            ),
            (
                json!({"description": "mail: ada@a.test"}),
                json!({"description": "mail: ada@a.test"}),
            ),
            (
                json!({"metadata": "{\"a\":\"b@a.test\"}"}),
                json!({"metadata": "{\"a\":\"b@a.test\"}"}),
            ),
            (json!({"url": "https://a.test:80"}), json!({"url": "https://a.test:80"})),
        ] {
            let mut masked = shown.clone();
            arguments(info, &mut masked);
            assert_eq!(masked, expected, "{shown}");
        }
    }

    #[test]
    fn a_body_that_cannot_be_read_is_hidden() {
        assert_eq!(shown("POST", "/vault_secrets", r#"{"value": "sword"#), MASK);
    }

    #[test]
    fn a_secret_field_of_another_kind_is_masked() {
        let mut value = json!({"value": ["swordfish", 1]});
        CallMask::for_request("POST", "/vault_secrets")
            .value_in_form(&mut value, CallSide::Request);
        assert_eq!(value, json!({"value": [MASK, 0]}));
    }

    #[test]
    fn captured_messages_are_masked_inside_of_their_base64() {
        let coded = |text: &str| STANDARD.encode(text);
        let mut value = json!({"requests": [{"request": {
            "raw": coded("POST /a?token=swordfish HTTP/1.1\r\nCookie: a=swordfish\r\n\r\n{\"token\":[\"swordfish\"]}"),
        }}]});

        CallMask::for_request("GET", "/api/requests/http")
            .value_in_form(&mut value, CallSide::Response);

        let raw = value["requests"][0]["request"]["raw"].as_str().unwrap();
        let raw = String::from_utf8(STANDARD.decode(raw).unwrap()).unwrap();
        let expected = "POST /a?token=# HTTP/1.1\r\nCookie: a=#\r\n\r\n{\"token\":\"#\"}";
        assert_eq!(raw, expected.replace('#', MASK));
    }
}
