//! Functions of headers, query parameters and cookies.
//!
//! In a document they are called `getReqHeader` and so on; the variable they look into is added
//! to the arguments when an expression is compiled.

use std::collections::HashMap;

use cel::ExecutionError;
use cel::common::types::{CelList, CelMap, CelMapKey, CelNull, CelString};
use cel::common::value::{CowVal, Val};

use super::super::value::{to_plain_value, unexpected_type};
use super::Argument::{Any, Text};
use super::{
    Arguments, Function, FunctionResult, argument_at, global_function, require_iterable,
    some_truth, text_argument, text_of,
};

pub(super) const FUNCTIONS: &[Function] = &[
    global_function("@header", &[Any, Text], header_value),
    global_function("@has_header", &[Any, Text], has_header),
    global_function("@entry", &[Any, Text], entry_value),
    global_function("@has_entry", &[Any, Text], has_entry),
    global_function("@cookie", &[Any, Text], request_cookie),
    global_function("@response_cookie", &[Any, Text], response_cookie),
];

/// The fields of a cookie, and how they were called before.
const COOKIE_FIELDS: &[(&str, &str)] = &[
    ("name", "Name"),
    ("value", "Value"),
    ("domain", "Domain"),
    ("path", "Path"),
    ("expires", "Expires"),
    ("max_age", "MaxAge"),
    ("secure", "Secure"),
    ("http_only", "HttpOnly"),
    ("same_site", "SameSite"),
];

fn header_value<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let name = text_argument(&arguments, 1)?.to_lowercase();
    found_or_empty(find_entry(argument_at(&arguments, 0)?, &name)?)
}

fn has_header<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    let name = text_argument(&arguments, 1)?.to_lowercase();
    some_truth(find_entry(argument_at(&arguments, 0)?, &name)?.is_some())
}

fn entry_value<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    found_or_empty(find_entry(argument_at(&arguments, 0)?, text_argument(&arguments, 1)?)?)
}

fn has_entry<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    some_truth(find_entry(argument_at(&arguments, 0)?, text_argument(&arguments, 1)?)?.is_some())
}

/// The first cookie of the name; null when there is none.
fn request_cookie<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    choose_cookie(&arguments, |_, _| false)
}

/// The cookie of the name with the longest path, the first of several.
fn response_cookie<'b, 'v>(arguments: Arguments<'b, 'v>) -> FunctionResult<'b, 'v> {
    choose_cookie(&arguments, |best, other| path_length(other) > path_length(best))
}

/// What a map holds under a name.
fn find_entry<'v>(
    map: &(dyn Val + 'v),
    name: &str,
) -> Result<Option<Box<dyn Val + 'v>>, ExecutionError> {
    let fields = map.as_indexer().ok_or_else(|| unexpected_type(map, "map"))?;
    match fields.get(&CelString::from(name)) {
        Ok(found) => Ok(Some(found.into_owned())),
        Err(ExecutionError::NoSuchKey(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn found_or_empty<'b, 'v>(found: Option<Box<dyn Val + 'v>>) -> FunctionResult<'b, 'v> {
    Ok(match found {
        Some(found) => CowVal::Owned(found),
        None => CowVal::owned(CelList::from(Vec::new())),
    })
}

fn choose_cookie<'b, 'v>(
    arguments: &Arguments<'b, 'v>,
    is_better: impl Fn(&dyn Val, &dyn Val) -> bool,
) -> FunctionResult<'b, 'v> {
    let name = text_argument(arguments, 1)?;
    let Some(cookies) = find_entry(argument_at(arguments, 0)?, name)? else {
        return Ok(CowVal::owned(CelNull));
    };
    let mut cookies = require_iterable(cookies.as_ref())?.iter();
    let Some(mut best) = cookies.next() else { return Ok(CowVal::owned(CelNull)) };
    while let Some(cookie) = cookies.next() {
        if is_better(best, cookie) {
            best = cookie;
        }
    }
    with_old_names(best)
}

fn path_length(cookie: &dyn Val) -> usize {
    let path = find_entry(cookie, "path").ok().flatten();
    path.and_then(|path| text_of(path.as_ref()).map(str::len).ok()).unwrap_or(0)
}

/// The fields of a cookie under both of their names.
fn with_old_names<'b, 'v>(cookie: &dyn Val) -> FunctionResult<'b, 'v> {
    let mut fields: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = HashMap::new();
    for (name, old_name) in COOKIE_FIELDS {
        if let Some(value) = find_entry(cookie, name)? {
            let value = copy_value(value.as_ref())?;
            fields.insert(CelMapKey::from((*old_name).to_owned()), value.clone());
            fields.insert(CelMapKey::from((*name).to_owned()), value);
        }
    }
    Ok(CowVal::owned(CelMap::from(fields)))
}

/// A copy that borrows nothing from the cookie.
fn copy_value(value: &dyn Val) -> Result<Box<dyn Val>, ExecutionError> {
    Box::try_from(to_plain_value(value)?)
}

#[cfg(test)]
mod tests {
    use super::super::tests::evaluate;
    use serde_json::{Value, json};

    fn value(source: &str) -> Value {
        let variables = json!({
            "req.headers": {"accept": ["text/html", "*/*"]},
            "req.url.query_params": {"Page": ["1"]},
            "req.cookies": {"session": [{"name": "session", "value": "abc"}]},
            "res.headers": {},
            "res.cookies": {"theme": [
                {"value": "root", "path": "/"},
                {"value": "blog", "path": "/blog", "http_only": true},
                {"value": "shop", "path": "/shop"},
            ]},
        });
        evaluate(source, variables).unwrap()
    }

    #[test]
    fn headers_are_found_in_any_case() {
        assert_eq!(value("getReqHeader('Accept')"), json!(["text/html", "*/*"]));
        assert_eq!(value("hasReqHeader('ACCEPT') && !hasResHeader('accept')"), json!(true));
        assert_eq!(value("getResHeader('accept')"), json!([]));
    }

    #[test]
    fn query_parameters_are_found_as_they_are_written() {
        assert_eq!(value("getQueryParam('Page')[0]"), json!("1"));
        assert_eq!(value("hasQueryParam('page')"), json!(false));
    }

    #[test]
    fn a_cookie_has_both_names_of_its_fields() {
        assert_eq!(value("getReqCookie('session').value"), json!("abc"));
        assert_eq!(value("getReqCookie('session').Value"), json!("abc"));
        assert_eq!(value("getReqCookie('other')"), json!(null));
        assert_eq!(value("hasReqCookie('other')"), json!(false));
    }

    #[test]
    fn the_response_cookie_with_the_longest_path_wins() {
        assert_eq!(value("getResCookie('theme').value"), json!("blog"));
        assert_eq!(value("getResCookie('theme').HttpOnly"), json!(true));
    }
}
