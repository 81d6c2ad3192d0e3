//! TLS with visitors: certificates, and what is asked of whom.

pub(crate) mod authority;
pub(crate) mod authority_key;
pub(crate) mod certificate_error;
pub(crate) mod challenges;
mod interfaces;
mod leaf;
pub(crate) mod named;
mod nodes;
pub(crate) mod policy;

pub use authority::LocalAuthority;
pub use authority_key::AuthorityKey;
pub use certificate_error::CertificateError;
pub use nodes::NodeTls;
