//! Why public traffic cannot be taken.

use crate::tls::certificate_error::CertificateError;

/// Why public traffic cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address, `host:port`.
        address: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// There is no certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}
