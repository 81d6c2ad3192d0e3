//! TLS between the two processes, with a certificate that nobody checks.

use std::io::{Error, Result};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

pub struct Acceptor(TlsAcceptor);

impl Acceptor {
    pub fn new() -> Result<Self> {
        let made =
            rcgen::generate_simple_self_signed(vec!["localhost".into()]).map_err(Error::other)?;
        let key =
            PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(Error::other)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .map_err(Error::other)?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub async fn accept(&self, socket: TcpStream) -> Result<server::TlsStream<TcpStream>> {
        socket.set_nodelay(true)?;
        self.0.accept(socket).await
    }
}

#[derive(Clone)]
pub struct Dialler(TlsConnector, u16);

impl Dialler {
    pub fn new(port: u16) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config)), port))
    }

    /// Connects, and says what the connection is for.
    pub async fn dial(&self) -> Result<client::TlsStream<TcpStream>> {
        let socket = TcpStream::connect(("127.0.0.1", self.1)).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(Error::other)?;
        self.0.connect(name, socket).await
    }
}

#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
