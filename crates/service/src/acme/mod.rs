//! Certificates by ACME (RFC 8555): obtained for the host names that visitors reach over HTTPS, and
//! renewed at two thirds of their life.
//!
//! `names` says which names need a certificate, `plan` which of them are due, `limits` how many orders
//! are allowed, and `manager` carries the plan out in the background. `order` is one order from its
//! beginning to the certificate, with the `account` that it belongs to, over `transport`. What is known
//! of each name is kept in the store ([`ManagedName`](super::certificates::ManagedName)), so that a
//! restart goes on where it ended. `shared` is what the nodes of a cluster share of it. Certificates for wildcards need DNS, and OCSP is at its end: neither is
//! part of this.

mod account;
mod failure;
mod limits;
mod manager;
mod names;
mod options;
mod order;
mod plan;
mod progress;
mod shared;
mod transport;

pub(super) use manager::{AcmeManager, ManagedService};
pub use options::{AcmeChallenge, AcmeOptions};
pub(super) use progress::CertificateProgress;
pub(super) use shared::SharedChallenges;
