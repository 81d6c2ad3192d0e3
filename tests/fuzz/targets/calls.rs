//! Calls of the management API: which arguments are in a path, a query and a body of JSON.

use std::sync::LazyLock;

use ginnel_api::{Info, encode_arguments, remote};
use ginnel_service::decode_arguments;

use crate::fuzz::random::Random;

static OPERATIONS: LazyLock<Vec<&Info>> = LazyLock::new(|| remote::operations().collect());

/// The first line names the operation; the rest is its body, or its query if it has none. What is
/// decoded can be encoded, and decodes to itself.
pub fn target(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (info, rest) = (operation(&data[..end]), &data[end + 1..]);
    let path = path(info);
    let has_body = info.method.has_body();
    let query = if has_body { None } else { std::str::from_utf8(rest).ok() };
    let Ok(arguments) = decode_arguments(info, &path, query, has_body.then_some(rest)) else {
        return;
    };

    let call = encode_arguments(info, arguments.clone()).expect("what was decoded can be encoded");
    let (path, query) = match call.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (call.target.as_str(), None),
    };
    let again = decode_arguments(info, path, query, call.body.as_deref());

    assert_eq!(again.expect("what was encoded can be decoded"), arguments);
}

/// The operation of that name; any other text stands for one of them.
fn operation(name: &[u8]) -> &'static Info {
    let is_named = |info: &&Info| format!("{}.{}", info.resource, info.name).as_bytes() == name;
    let other = || Random::of(name).below(OPERATIONS.len());
    OPERATIONS[OPERATIONS.iter().position(is_named).unwrap_or_else(other)]
}

/// A path that fits the template.
fn path(info: &Info) -> String {
    let segment = |text| if str::starts_with(text, '{') { "x%2F%C3%A9" } else { text };
    info.path.split('/').map(segment).collect::<Vec<_>>().join("/")
}
