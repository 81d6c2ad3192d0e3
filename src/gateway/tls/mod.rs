//! TLS with visitors: certificates, and what is asked of whom.

pub(crate) mod authority;
mod interfaces;
pub(crate) mod named;
pub(crate) mod policy;

pub use authority::{Authority, CertificateError};
