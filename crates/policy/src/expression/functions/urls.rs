//! Functions of URLs and query strings.

use std::collections::BTreeMap;

use cel::ExecutionError;
use cel::common::value::{CowVal, Val};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value as Json, json};

use super::super::value;
use super::Argument::{Any, Text};
use super::{
    Arguments, Function, FunctionResult, argument_at, function_error, global_function,
    member_function, some_text, some_truth, text_argument,
};
use crate::url::UrlParts;

pub(super) const FUNCTIONS: &[Function] = &[
    global_function("queryString.encode", &[Any], encode_query),
    member_function("encodeQueryString", &[Any], encode_query),
    global_function("queryString.decode", &[Text], decode_query),
    member_function("decodeQueryString", &[Text], decode_query),
    member_function("isQueryString", &[Text], is_query),
    global_function("url.escape", &[Text], escape_text),
    member_function("escapeUrl", &[Text], escape_text),
    global_function("url.unescape", &[Text], unescape_text),
    member_function("unescapeUrl", &[Text], unescape_text),
    global_function("url.parse", &[Text], parse_url),
    member_function("parseUrl", &[Text], parse_url),
    member_function("isURL", &[Text], is_url),
];

/// What is escaped: everything that means something somewhere in a URL.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn encode_query<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let Json::Object(fields) =
        value::value_to_json(&value::to_plain_value(argument_at(&arguments, 0)?)?)?
    else {
        return Err(function_error("queryString.encode", "not a map"));
    };
    let pairs = fields.iter().flat_map(|(name, value)| encode_pairs(name, value));
    some_text(pairs.collect::<Vec<_>>().join("&"))
}

/// A list becomes one pair for each of its entries.
fn encode_pairs(name: &str, value: &Json) -> Vec<String> {
    let entries = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    entries
        .iter()
        .map(|entry| format!("{}={}", percent_encode(name), percent_encode(&plain_text(entry))))
        .collect()
}

fn plain_text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn decode_query<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_json(&parse_query(text_argument(&arguments, 0)?)?)
}

fn is_query<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let text = text_argument(&arguments, 0)?;
    // A sentence is none, although it can be decoded (RFC 3986 §3.4).
    some_truth(!text.contains(char::is_whitespace) && parse_query(text).is_ok())
}

fn parse_query(text: &str) -> Result<Json, ExecutionError> {
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode(&value.replace('+', " "))?;
        fields.entry(percent_decode(&name.replace('+', " "))?).or_default().push(value);
    }
    Ok(json!(fields))
}

fn escape_text<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_text(percent_encode(text_argument(&arguments, 0)?))
}

fn unescape_text<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_text(percent_decode(text_argument(&arguments, 0)?)?)
}

/// The parts of a URL; those it does not have are empty.
fn parse_url<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let url = UrlParts::parse(text_argument(&arguments, 0)?);
    let url = url.ok_or_else(|| function_error("url.parse", "not a URL"))?;
    some_json(&json!({
        "scheme": url.scheme,
        "user_password": url.user_password,
        "authority": url.authority,
        "host": url.host,
        "port": url.port,
        "path": url.path,
        "query": url.query,
        "fragment": url.fragment,
        "query_params": parse_query(url.query)?,
    }))
}

fn is_url<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_truth(UrlParts::parse(text_argument(&arguments, 0)?).is_some())
}

fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

fn percent_decode(text: &str) -> Result<String, ExecutionError> {
    let broken = text.split('%').skip(1).any(|rest| {
        let digits = rest.bytes().take(2).filter(u8::is_ascii_hexdigit);
        digits.count() != 2
    });
    if broken {
        return Err(function_error("url.unescape", "a percent sign without two digits"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|error| function_error("url.unescape", error))?.into_owned())
}

fn some_json<'b, 'v>(json: &Json) -> FunctionResult<'b, 'v> {
    let value: Box<dyn Val + 'v> = value::from_json(json)?;
    Ok(CowVal::Owned(value))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evaluate, result};
    use serde_json::json;

    #[test]
    fn query_strings_go_both_ways() {
        assert_eq!(
            result("queryString.encode({'b': ['1', '2'], 'a': 'x y'})"),
            json!("a=x%20y&b=1&b=2")
        );
        assert_eq!(
            result("'a=1&a=2&b=x+y'.decodeQueryString()"),
            json!({"a": ["1", "2"], "b": ["x y"]})
        );
        assert_eq!(result("'a=%zz'.isQueryString()"), json!(false));
        assert_eq!(result("'a=x+y&b'.isQueryString()"), json!(true));
        assert_eq!(result("'not a query string'.isQueryString()"), json!(false));
    }

    #[test]
    fn escaping_goes_both_ways() {
        assert_eq!(result("url.escape('a b/ä')"), json!("a%20b%2F%C3%A4"));
        assert_eq!(result("'a%20b'.unescapeUrl()"), json!("a b"));
        assert!(evaluate("'%2'.unescapeUrl()", json!({})).is_err());
    }

    #[test]
    fn a_url_has_parts() {
        let source = "url.parse('https://me:pw@example.com:8443/a/b?x=1#top')";

        assert_eq!(result(&format!("{source}.host")), json!("example.com"));
        assert_eq!(result(&format!("{source}.port")), json!(8443));
        assert_eq!(result(&format!("{source}.path")), json!("/a/b"));
        assert_eq!(result(&format!("{source}.query_params.x[0]")), json!("1"));
        assert_eq!(result("'not a url'.isURL()"), json!(false));
    }
}
