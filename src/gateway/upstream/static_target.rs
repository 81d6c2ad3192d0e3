//! Targets at one fixed address, with or without TLS.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio_rustls::TlsConnector;

use crate::gateway::Io;
use crate::gateway::routing::target::{
    BoxFuture, ConnectionReuse, DialError, RouteRef, Target, Visitor,
};
use crate::net::private;
use crate::reuse::Socket;

/// A target at one fixed address.
pub(crate) struct StaticTarget {
    key: String,
    address: String,
    tls: Option<TlsConnector>,
}

impl StaticTarget {
    /// A target at `host:port`. The APIs of this process are no targets.
    ///
    /// TLS hides the traffic; whose certificate it is is not asked, because nothing in the
    /// configuration could say whom to trust.
    pub(crate) fn new(address: &str, tls: bool) -> Result<Self, rustls::Error> {
        let config = if tls { Some(TlsConnector::from(Arc::new(config()?))) } else { None };
        let scheme = if tls { "tls" } else { "tcp" };
        Ok(Self { key: format!("{scheme}://{address}"), address: address.to_owned(), tls: config })
    }
}

impl Target for StaticTarget {
    fn key(&self) -> &str {
        &self.key
    }

    fn reuse(&self) -> ConnectionReuse {
        ConnectionReuse::Everybody
    }

    fn dial<'a>(&'a self, _: &'a Visitor, _: &'a RouteRef) -> BoxFuture<'a, Result<Io, DialError>> {
        Box::pin(async {
            let dialed = async {
                let stream = private::connect(&self.address).await?;
                stream.set_nodelay(true)?;
                let stream = Socket(stream);
                let Some(tls) = &self.tls else { return Ok(Box::new(stream) as Io) };
                let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
                let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
                let name = name.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(Box::new(tls.connect(name, stream).await?) as Io)
            };
            dialed.await.map_err(|problem| DialError::Unreachable(problem.to_string()))
        })
    }
}

fn config() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions()?.dangerous();
    let config = builder.with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)));
    Ok(config.with_no_client_auth())
}

/// Takes every certificate, as long as the other side has its key.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
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
