//! TLS with visitors: certificates, and what is asked of whom.

pub mod authority;
pub mod authority_key;
pub mod certificate_error;
pub mod challenges;
mod leaf;
pub mod named;
mod nodes;
pub mod policy;

pub use authority::LocalAuthority;
pub use authority_key::AuthorityKey;
pub use certificate_error::CertificateError;
pub use nodes::NodeTls;
