//! TLS, for all that speak it: one provider of cryptography, whom to trust, and handshakes that end.
//!
//! [`certificate`] reads certificates and keys from PEM, [`x509`] says what a certificate is for, and
//! [`AcceptedSocket`] is a socket with or without TLS.

mod accepted_socket;
pub mod certificate;
mod verifier;
pub mod x509;

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    Accepted, Acceptor, ClientHello, NoClientAuth, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, ServerConfig, SupportedProtocolVersion,
    WantsVerifier,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

pub use accepted_socket::AcceptedSocket;
pub use accepted_socket::AsyncReadWrite;
use verifier::{AnyCertificate, GivenCertificates, GivenClients};

use ginnel_base::address::Host;
use ginnel_base::logging::or_debug;

/// How long the first message of a client may be that is looked at before it is read, in bytes: less than
/// the kernel holds of a connection from which nothing is read.
const MAX_HELLO_BYTES: usize = 32 << 10;
/// How much of it is looked at first: most are not longer.
const FIRST_HELLO_BYTES: usize = 4 << 10;
/// How long after one look at it is looked whether there is more, at first and at most.
const MIN_PEEK_PAUSE: Duration = Duration::from_millis(5);
const MAX_PEEK_PAUSE: Duration = Duration::from_millis(320);

/// What makes keys and signatures. It is never made the default of the process, which others share.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(ring::default_provider()));
    PROVIDER.clone()
}

fn client_builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions()
}

/// How to connect to servers whose certificates these have signed.
pub fn client_config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    Ok(client_builder()?.with_root_certificates(roots).with_no_client_auth())
}

/// The same, for a client that shows this certificate to servers which ask for one.
pub fn client_config_as(
    roots: RootCertStore,
    identity: Arc<CertifiedKey>,
) -> Result<ClientConfig, rustls::Error> {
    let resolver = Arc::new(SingleCertAndKey::from(identity));
    Ok(client_builder()?.with_root_certificates(roots).with_client_cert_resolver(resolver))
}

/// Returns a configuration that trusts certificates in PEM: each of them as the certificate of a server, and all
/// certificates that the authorities among them have signed.
///
/// # Errors
/// If the text has no certificate, or one of them cannot be used.
pub fn client_config_trusting(pem: &[u8]) -> Result<ClientConfig, String> {
    let certificates = certificate::parse_certificates(pem)?;
    let verifier = GivenCertificates::new(parse_roots(pem)?, certificates, crypto_provider());
    let verifier = Arc::new(verifier.map_err(|problem| problem.to_string())?);
    let builder = client_builder().map_err(|problem| problem.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    Ok(builder.with_no_client_auth())
}

/// Returns a configuration that verifies nothing, neither the certificate of a server nor that the server has its
/// key. TLS only hides the traffic from those who do not tamper with it.
pub fn unverified_client_config() -> Result<ClientConfig, rustls::Error> {
    let verifier = Arc::new(AnyCertificate);
    let builder: ConfigBuilder<ClientConfig, WantsClientCert> =
        client_builder()?.dangerous().with_custom_certificate_verifier(verifier);
    Ok(builder.with_no_client_auth())
}

/// How to serve clients that this verifier lets in. Each configuration has tickets of its own, so that a
/// session begun under one is none under another.
pub fn server_config(
    versions: &[&'static SupportedProtocolVersion],
    clients: Arc<dyn ClientCertVerifier>,
    certificates: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, rustls::Error> {
    let builder =
        ServerConfig::builder_with_provider(crypto_provider()).with_protocol_versions(versions)?;
    let asks_clients = clients.offer_client_auth();
    let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(certificates);
    // Clients keep their sessions in tickets, of which there is no end; the table that is usual has room
    // for 256. A session that a client certificate began stays in the table: a ticket would speak for it
    // longer than anybody here remembers.
    if !asks_clients {
        config.ticketer = ring::Ticketer::new()?;
    }
    Ok(config)
}

/// The certificates that the system trusts.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Damaged entries of a system's store are common and concern nobody else.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// The certificates of a PEM file; at least one.
///
/// # Errors
/// With what is wrong with them.
pub fn parse_roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificate::parse_certificates(pem)? {
        roots.add(certificate).map_err(|problem| problem.to_string())?;
    }
    Ok(roots)
}

/// Asks no client for a certificate.
pub fn any_client() -> Arc<dyn ClientCertVerifier> {
    Arc::new(NoClientAuth)
}

/// Returns a verifier that accepts only clients whose certificate is one of these, in PEM, or is signed by one of them.
///
/// # Errors
/// If the text has no certificate, or one of them cannot be used.
pub fn only_signed_by(authorities: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let given = certificate::parse_certificates(authorities)?;
    let roots = Arc::new(parse_roots(authorities)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, crypto_provider()).build();
    let signed = verifier.map_err(|problem| problem.to_string())?;
    Ok(Arc::new(GivenClients { signed, given }))
}

/// Returns the name that the certificate of a host must be for.
///
/// # Errors
/// If certificates cannot contain the name.
pub fn server_name(host: &Host) -> io::Result<ServerName<'static>> {
    match host.ip() {
        Some(address) => Ok(ServerName::from(address)),
        None => ServerName::try_from(host.to_string()).map_err(io::Error::other),
    }
}

/// Agrees on TLS with a client.
///
/// # Errors
/// When there is no agreement, or none within the limit.
pub async fn accept_tls<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    config: Arc<ServerConfig>,
    limit: Duration,
) -> io::Result<TlsStream<S>> {
    timeout(limit, TlsAcceptor::from(config).accept(stream)).await?
}

/// What a client asks for, all of whose bytes stay to be read; none where it does not say so in time.
pub async fn peeked_hello(stream: &TcpStream, limit: Duration) -> Option<Accepted> {
    let peeking = async {
        let (mut bytes, mut before, mut pause) = (vec![0; FIRST_HELLO_BYTES], 0, MIN_PEEK_PAUSE);
        loop {
            let read = stream.peek(&mut bytes).await?;
            if read > before
                && let Some(hello) = parse_client_hello(&bytes[..read])?
            {
                return Ok(Some(hello));
            }
            before = read;
            if read == bytes.len() && read < MAX_HELLO_BYTES {
                bytes.resize(2 * read, 0);
                continue;
            }
            let is_over = stream.ready(Interest::READABLE).await?.is_read_closed();
            if is_over || read == 0 || read == bytes.len() {
                return Ok(None);
            }
            // What was peeked at stays readable, so that nothing says when there is more.
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PEEK_PAUSE);
        }
    };
    let peeked: io::Result<Option<Accepted>> = timeout(limit, peeking).await.ok()?;
    or_debug!(peeked, "what a client wants to speak is no TLS").flatten()
}

/// The first message of a client, as far as it has come; none while a part is missing.
fn parse_client_hello(mut bytes: &[u8]) -> io::Result<Option<Accepted>> {
    let mut acceptor = Acceptor::default();
    while !bytes.is_empty() {
        acceptor.read_tls(&mut bytes)?;
        match acceptor.accept() {
            Ok(None) => {}
            Ok(accepted) => return Ok(accepted),
            Err((error, _)) => return Err(io::Error::other(error)),
        }
    }
    Ok(None)
}

/// The same, in the way that is chosen for what the client asks for; with none, not at all.
pub async fn accept_by_name<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    choose: impl FnOnce(&ClientHello<'_>) -> Option<Arc<ServerConfig>>,
    limit: Duration,
) -> io::Result<TlsStream<S>> {
    let handshake = async {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let config = choose(&hello.client_hello());
        let unserved = || io::Error::other("the name that the client asks for is not served so");
        hello.into_stream(config.ok_or_else(unserved)?).await
    };
    timeout(limit, handshake).await?
}
