//! TLS towards the service, towards local services, and for visitors whose TLS ends here.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use super::Error;
use crate::net::certificate::{self, Unusable};

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
        match certificate::read_file(path) {
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
                for certificate in certificate::certificates(pem).map_err(Error::Certificates)? {
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

/// How visitors are answered whose TLS ends here: with this certificate and key, PEM, and where there
/// are authorities, also PEM, only those who show a certificate of theirs.
///
/// # Errors
/// With the field that is unusable, and why.
pub fn server(
    certificate: &[u8],
    key: &[u8],
    authorities: Option<&[u8]>,
) -> Result<Arc<ServerConfig>, (&'static str, String)> {
    let provider = Arc::new(ring::default_provider());
    let certified =
        certificate::certified(certificate, key).map_err(|unusable| match unusable {
            Unusable::Certificate(problem) => ("crt", problem),
            Unusable::Key(problem) => ("key", problem),
        })?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| ("crt", error.to_string()))?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let wrong = |problem: String| ("mutual_tls_cas", problem);
            let roots = Trust::Pem(pem.to_vec()).roots();
            let roots = Arc::new(roots.map_err(|error| wrong(error.to_string()))?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| wrong(error.to_string()))?)
        }
    };
    Ok(Arc::new(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))))
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
