//! Functions that encode and decode.
//!
//! What is decoded is text: bytes that are no UTF-8 are an error.

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use cel::common::value::CowVal;
use serde_json::Value as Json;

use super::super::value;
use super::Argument::{Any, Text};
use super::{
    Arguments, Function, FunctionResult, argument, bytes_of, failure, global, method, some_text,
    some_truth, text_argument,
};

pub(super) const FUNCTIONS: &[Function] = &[
    global("base64.encode", &[Any], encode_base64),
    method("encodeBase64", &[Any], encode_base64),
    global("base64.decode", &[Text], decode_base64),
    method("decodeBase64", &[Text], decode_base64),
    global("json.encode", &[Any], encode_json),
    method("encodeJson", &[Any], encode_json),
    global("json.decode", &[Text], decode_json),
    method("decodeJson", &[Text], decode_json),
    method("isJson", &[Text], is_json),
    global("basic_auth.encode", &[Text, Text], encode_basic_auth),
];

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn encode_base64<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_text(value::base64(bytes_of(argument(&arguments, 0)?)?))
}

fn decode_base64<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let bytes = LENIENT.decode(text_argument(&arguments, 0)?);
    let bytes = bytes.map_err(|error| failure("base64.decode", error))?;
    some_text(String::from_utf8(bytes).map_err(|error| failure("base64.decode", error))?)
}

fn encode_json<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_text(value::json(&value::plain(argument(&arguments, 0)?)?)?.to_string())
}

fn decode_json<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let json: Json = serde_json::from_str(text_argument(&arguments, 0)?)
        .map_err(|error| failure("json.decode", error))?;
    Ok(CowVal::Owned(value::from_json(&json)?))
}

fn is_json<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_truth(serde_json::from_str::<Json>(text_argument(&arguments, 0)?).is_ok())
}

/// The value of an `Authorization` header.
fn encode_basic_auth<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let (user, password) = (text_argument(&arguments, 0)?, text_argument(&arguments, 1)?);
    some_text(format!("Basic {}", value::base64(format!("{user}:{password}").as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evaluate, result};
    use serde_json::json;

    #[test]
    fn base64_goes_both_ways() {
        assert_eq!(result("base64.encode('hi') + b'hi'.encodeBase64()"), json!("aGk=aGk="));
        assert_eq!(result("base64.decode('aGk=') + 'aGk'.decodeBase64()"), json!("hihi"));
        assert!(evaluate("base64.decode('/w==')", json!({})).is_err());
    }

    #[test]
    fn json_goes_both_ways() {
        assert_eq!(
            result("{'b': 1, 'a': [true, null]}.encodeJson()"),
            json!(r#"{"a":[true,null],"b":1}"#)
        );
        assert_eq!(result(r#"json.decode('{"n": 2}').n + 1"#), json!(3));
        assert_eq!(result("'{'.isJson() || !'3'.isJson()"), json!(false));
        assert!(evaluate("'{'.decodeJson()", json!({})).is_err());
    }

    #[test]
    fn basic_auth_is_a_header_value() {
        assert_eq!(result("basic_auth.encode('u', 'p')"), json!("Basic dTpw"));
    }
}
