//! What is secret in captured traffic, and what stands for it, as Python asks.

use pyo3::prelude::*;

use serde_json::Value;

use ginnel_api::mask::{CallMask, CallSide};
use ginnel_api::{mask, secrets};

/// What stands for a secret in Python; tables and cards have little room.
const MASK: &str = "•••";

/// Whether a header, a member or an element of this name holds a secret.
#[pyfunction]
pub(super) fn is_secret(name: &str) -> bool {
    secrets::is_secret(name)
}

/// Whether a parameter of a query or a form holds a secret.
#[pyfunction]
pub(super) fn is_secret_parameter(name: &str) -> bool {
    secrets::is_secret_parameter(name)
}

/// For each member of an object, whether its value is a secret. Members come with their values if these are texts.
#[pyfunction]
pub(super) fn secret_members(members: Vec<(String, Option<String>)>) -> Vec<bool> {
    mask::secret_members(members.iter().map(|(name, text)| (name.as_str(), text.as_deref())))
}

/// Returns true if a list, as JSON, is visible below the name of a secret.
#[pyfunction]
pub(super) fn is_visible_list(items: &str) -> bool {
    secrets::is_visible_scalar("", items, true)
}

/// A text without what looks like a secret.
#[pyfunction]
pub(super) fn mask_text(shown: &str) -> String {
    shorten_mask(&mask::text(shown))
}

/// The value of a header without secrets.
#[pyfunction]
pub(super) fn mask_header(name: &str, value: &str) -> String {
    shorten_mask(&mask::header(name, value))
}

/// A path or an address without secrets.
#[pyfunction]
pub(super) fn mask_target(target: &str) -> String {
    shorten_mask(&mask::target(target))
}

/// Parameters of a query or a form without secrets.
#[pyfunction]
pub(super) fn mask_parameters(parameters: &str) -> String {
    shorten_mask(&mask::pairs(parameters))
}

/// A body without secrets, as text. Returns None if it has no secrets. With method and target, the operation
/// tables are asked as well.
#[pyfunction]
#[pyo3(signature = (media_type, body, method="", target="", is_response=false))]
pub(super) fn mask_body(
    media_type: &str,
    body: &[u8],
    method: &str,
    target: &str,
    is_response: bool,
) -> Option<String> {
    let masked =
        CallMask::for_request(method, target).body(media_type, body, call_side(is_response))?;
    Some(shorten_mask(&String::from_utf8_lossy(&masked)))
}

/// JSON text without secrets and in the same form. Returns None if it cannot be parsed.
#[pyfunction]
pub(super) fn mask_call(
    json: &str,
    method: &str,
    target: &str,
    is_response: bool,
) -> Option<String> {
    let mut value: Value = serde_json::from_str(json).ok()?;
    CallMask::for_request(method, target).value_in_form(&mut value, call_side(is_response));
    Some(value.to_string().replace(mask::MASK, MASK))
}

pub(super) fn call_side(is_response: bool) -> CallSide {
    if is_response { CallSide::Response } else { CallSide::Request }
}

pub(super) fn shorten_mask(masked: &str) -> String {
    masked.replace(mask::MASK, MASK)
}
