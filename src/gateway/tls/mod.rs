//! TLS with visitors: certificates, and what is asked of whom.

pub(crate) mod authority;
pub(crate) mod challenges;
mod interfaces;
pub(crate) mod named;
pub(crate) mod policy;

pub use authority::{Authority, CertificateError};
