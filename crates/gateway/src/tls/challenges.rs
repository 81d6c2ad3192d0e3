//! Challenges by which an authority sees that a host name leads here (RFC 8555, section 8).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ClientHello;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use ginnel_net::tls::{any_client, crypto_provider, server_config};

use crate::tls::certificate_error::CertificateError;

/// The protocol that an authority asks for, and nobody else (RFC 8737, section 6.2).
pub const ACME_TLS: &str = "acme-tls/1";
/// Where an authority asks over HTTP (RFC 8555, section 8.3).
const HTTP_FOLDER: &str = "/.well-known/acme-challenge/";

/// The challenges that are open now. There are none but for the moments in which a certificate is
/// obtained.
#[derive(Default)]
pub struct Challenges {
    open: ArcSwap<OpenChallenges>,
    /// Held while the table is replaced.
    changes: Mutex<()>,
}

#[derive(Clone, Default)]
struct OpenChallenges {
    /// What is answered, by token.
    http: HashMap<String, Arc<str>>,
    /// How TLS is spoken, by name.
    tls: HashMap<String, Arc<ServerConfig>>,
}

impl Challenges {
    /// What is answered at a path; none where it is no open challenge.
    pub fn http_answer(&self, path: &str) -> Option<Arc<str>> {
        let token = path.strip_prefix(HTTP_FOLDER)?;
        self.open.load().http.get(token).cloned()
    }

    /// How TLS is spoken with an authority; none where somebody else asks.
    pub fn tls_config(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let open = self.open.load();
        if open.tls.is_empty() || !hello.alpn()?.eq([ACME_TLS.as_bytes()]) {
            return None;
        }
        open.tls.get(&hello.server_name()?.to_ascii_lowercase()).cloned()
    }

    fn update_open(&self, change: impl FnOnce(&mut OpenChallenges)) {
        let _changing = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = OpenChallenges::clone(&self.open.load());
        change(&mut open);
        self.open.store(Arc::new(open));
    }
}

/// A challenge that is open for as long as this lives.
pub struct OpenChallenge {
    challenges: Arc<Challenges>,
    key: ChallengeKey,
}

enum ChallengeKey {
    Token(String),
    Name(String),
}

impl OpenChallenge {
    /// Answers requests for a token.
    pub fn open_http(challenges: &Arc<Challenges>, token: &str, answer: &str) -> Self {
        challenges.update_open(|open| drop(open.http.insert(token.to_owned(), answer.into())));
        Self { challenges: challenges.clone(), key: ChallengeKey::Token(token.to_owned()) }
    }

    /// Answers handshakes for a name with a certificate that holds a digest.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub fn open_tls(
        challenges: &Arc<Challenges>,
        name: &str,
        digest: &[u8],
    ) -> Result<Self, CertificateError> {
        let config = challenge_config(name, digest)?;
        challenges.update_open(|open| drop(open.tls.insert(name.to_owned(), config)));
        Ok(Self { challenges: challenges.clone(), key: ChallengeKey::Name(name.to_owned()) })
    }
}

impl Drop for OpenChallenge {
    fn drop(&mut self) {
        self.challenges.update_open(|open| match &self.key {
            ChallengeKey::Token(token) => drop(open.http.remove(token)),
            ChallengeKey::Name(name) => drop(open.tls.remove(name)),
        });
    }
}

/// How TLS is spoken with an authority: the certificate signs itself and holds the digest (RFC 8737,
/// section 3).
fn challenge_config(name: &str, digest: &[u8]) -> Result<Arc<ServerConfig>, CertificateError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?;
    let private = PrivateKeyDer::try_from(key.serialize_der())
        .map_err(|problem| rustls::Error::General(problem.to_owned()))?;
    let signing = crypto_provider().key_provider.load_private_key(private)?;
    let certified = CertifiedKey::new(vec![certificate.der().clone()], signing);
    let resolver = Arc::new(SingleCertAndKey::from(Arc::new(certified)));
    let mut config = server_config(rustls::DEFAULT_VERSIONS, any_client(), resolver)?;
    config.alpn_protocols = vec![ACME_TLS.as_bytes().to_vec()];
    Ok(Arc::new(config))
}
