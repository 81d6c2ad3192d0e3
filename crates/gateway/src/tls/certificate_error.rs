//! Why there is no certificate.

use std::io;
use std::path::PathBuf;

use ginnel_api::mask;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file of the authority, or a given one, cannot be read or written.
    #[error("cannot use {path}: {source}", path = mask::path(.path))]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// What a file holds is not what it should.
    #[error("{path}: {problem}", path = mask::path(.path))]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A given certificate or its key cannot be used.
    #[error("{field}: {problem}")]
    Unusable {
        /// The option of tunnels that holds it.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Making a certificate failed.
    #[error("cannot make a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// The TLS library takes a key or a setting for wrong.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}
