//! TLS towards the service and towards local services.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::Error;

/// Whose certificates are trusted.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// Those of the system.
    #[default]
    System,
    /// Those signed by these, in PEM.
    Pem(Vec<u8>),
    /// Any certificate at all.
    Anything,
}

impl Trust {
    /// The certificates of a PEM file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn file(path: &Path) -> Result<Self, Error> {
        match std::fs::read(path) {
            Ok(pem) => Ok(Self::Pem(pem)),
            Err(source) => Err(Error::File { path: path.to_owned(), source }),
        }
    }

    /// How to connect with this trust.
    ///
    /// # Errors
    /// When there is no certificate to trust.
    pub fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Certificates(error.to_string()))?;
        let config = match self {
            Self::Anything => {
                let verifier = Arc::new(AnyCertificate(provider));
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
            trust => builder.with_root_certificates(trust.roots()?),
        };
        Ok(Arc::new(config.with_no_client_auth()))
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        match self {
            Self::Pem(pem) => {
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    let certificate =
                        certificate.map_err(|error| Error::Certificates(error.to_string()))?;
                    roots
                        .add(certificate)
                        .map_err(|error| Error::Certificates(error.to_string()))?;
                }
            }
            _ => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err(Error::Certificates("there is no certificate to trust".to_owned()));
        }
        Ok(roots)
    }
}

/// Accepts the certificate of any local service: most sign their own.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
