//! Which names are secret, as Python asks.

use pyo3::prelude::*;

use crate::api::secrets;

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
