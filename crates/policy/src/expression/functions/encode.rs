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
    Arguments, Function, FunctionResult, argument_at, bytes_of, function_error, global_function,
    member_function, some_text, some_truth, text_argument,
};

pub(super) const FUNCTIONS: &[Function] = &[
    global_function("base64.encode", &[Any], encode_base64),
    member_function("encodeBase64", &[Any], encode_base64),
    global_function("base64.decode", &[Text], decode_base64),
    member_function("decodeBase64", &[Text], decode_base64),
    global_function("json.encode", &[Any], encode_json),
    member_function("encodeJson", &[Any], encode_json),
    global_function("json.decode", &[Text], decode_json),
    member_function("decodeJson", &[Text], decode_json),
    member_function("isJson", &[Text], is_json),
    global_function("basic_auth.encode", &[Text, Text], encode_basic_auth),
];

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn encode_base64<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_text(value::to_base64(bytes_of(argument_at(&arguments, 0)?)?))
}

fn decode_base64<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let bytes = LENIENT.decode(text_argument(&arguments, 0)?);
    let bytes = bytes.map_err(|error| function_error("base64.decode", error))?;
    some_text(String::from_utf8(bytes).map_err(|error| function_error("base64.decode", error))?)
}

fn encode_json<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_text(
        value::value_to_json(&value::to_plain_value(argument_at(&arguments, 0)?)?)?.to_string(),
    )
}

fn decode_json<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let json: Json = serde_json::from_str(text_argument(&arguments, 0)?)
        .map_err(|error| function_error("json.decode", error))?;
    Ok(CowVal::Owned(value::from_json(&json)?))
}

fn is_json<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_truth(serde_json::from_str::<Json>(text_argument(&arguments, 0)?).is_ok())
}

/// The value of an `Authorization` header.
fn encode_basic_auth<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let (user, password) = (text_argument(&arguments, 0)?, text_argument(&arguments, 1)?);
    some_text(format!("Basic {}", value::to_base64(format!("{user}:{password}").as_bytes())))
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
