//! What is secret in captured traffic, and what stands for it, as Python asks.

use pyo3::prelude::*;

use crate::api::{mask, secrets};

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

/// A text without what looks like a secret.
#[pyfunction]
pub(super) fn mask_text(shown: &str) -> String {
    short(&mask::text(shown))
}

/// The value of a header without secrets.
#[pyfunction]
pub(super) fn mask_header(name: &str, value: &str) -> String {
    short(&mask::header(name, value))
}

/// A path or an address without secrets.
#[pyfunction]
pub(super) fn mask_target(target: &str) -> String {
    short(&mask::target(target))
}

/// Parameters of a query or a form without secrets.
#[pyfunction]
pub(super) fn mask_parameters(parameters: &str) -> String {
    short(&mask::pairs(parameters))
}

fn short(masked: &str) -> String {
    masked.replace(mask::MASK, MASK)
}
