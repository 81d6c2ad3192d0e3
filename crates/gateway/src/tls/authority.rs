//! The local certificate authority: one per database, so that a machine without DNS and without an
//! account has TLS all the same.
//!
//! It vouches for every name that a visitor asks for. Who asks for none, because addresses are no names
//! in TLS, gets the certificate of this machine: for `localhost`, `127.0.0.1` and `::1`, for the
//! addresses that are listened on, and for the host of the public URL. A certificate that was uploaded
//! for a name, was given, or was obtained by ACME, is shown in its place for the names that it covers.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use rcgen::{ExtendedKeyUsagePurpose, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use ginnel_api::Timestamp;
use ginnel_net::tls::certificate::{self, Unusable};
use ginnel_net::tls::server_config;
use ginnel_net::tls::x509::CertificateFields;

use crate::tls::authority_key::{AuthorityFiles, AuthorityKey};
use crate::tls::certificate_error::CertificateError;
use crate::tls::challenges::Challenges;
use crate::tls::leaf::{certified_key, leaf_params};
use crate::tls::named::NamedCertificates;
use crate::tls::policy::TlsParams;

/// The names of this machine, for visitors who ask for none.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// How long the addresses of this machine are taken for known: they may change at any time.
const INTERFACES_TTL: Duration = Duration::from_secs(10);
/// How many names have a certificate ready; a visitor may ask for any.
const MAX_CACHED_CERTIFICATES: usize = 4096;
/// How long a certificate is valid: what browsers accept from any authority.
const VALID_DAYS: u64 = 397;
/// When a certificate is made anew, long before it ends.
const RENEW_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Tells the key for the cookies of logins from all else that could be derived from the same secret.
const LOGIN_SALT: &[u8] = b"ginnel: logins of visitors";

/// A certificate authority with the certificates that it has issued.
pub struct LocalAuthority {
    pem: String,
    path: Option<PathBuf>,
    pub(super) issuer: Issuer<'static, KeyPair>,
    /// One key serves all certificates: making one takes longer than signing.
    key: KeyPair,
    /// What all who have the authority share for the cookies of logins.
    login_key: Prk,
    local: Mutex<LocalCertificate>,
    issued: Mutex<HashMap<String, IssuedCertificate>>,
    provided: RwLock<Option<ProvidedCertificate>>,
    /// Those of single names.
    named: NamedCertificates,
    /// What authorities of the public ask, while a certificate is obtained from them.
    challenges: Arc<Challenges>,
}

/// A certificate that the authority has made.
#[derive(Clone)]
struct IssuedCertificate {
    certified: Arc<CertifiedKey>,
    made: Instant,
}

/// The certificate of this machine.
#[derive(Default)]
struct LocalCertificate {
    /// What it is asked to be for, beside the usual names.
    hosts: BTreeSet<String>,
    /// True when any address of this machine leads here.
    everywhere: bool,
    /// The certificate, and what it is for.
    issued: Option<(BTreeSet<String>, IssuedCertificate)>,
    /// When the addresses of this machine were looked at.
    checked_at: Option<Instant>,
}

impl LocalCertificate {
    /// What the certificate is to be for.
    fn certificate_names(&self) -> BTreeSet<String> {
        let mut names = self.hosts.clone();
        names.extend(LOCAL_NAMES.map(str::to_owned));
        if self.everywhere {
            // If the system does not list its interfaces, only the names above remain.
            let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
            names.extend(interfaces.iter().map(|interface| interface.ip().to_string()));
        }
        names
    }

    fn is_known(&self) -> bool {
        self.checked_at
            .is_some_and(|checked_at| !self.everywhere || checked_at.elapsed() < INTERFACES_TTL)
    }
}

/// A certificate that was given.
struct ProvidedCertificate {
    certified: Arc<CertifiedKey>,
    leaf: CertificateDer<'static>,
    ends: Option<Timestamp>,
}

impl LocalAuthority {
    /// The authority of a database; made when there is none. Without a database it ends with the
    /// process.
    ///
    /// # Errors
    /// When its files cannot be read or written, or hold something else.
    pub fn open(database: Option<&Path>) -> Result<Arc<Self>, CertificateError> {
        let Some(database) = database else { return Self::from_key(AuthorityKey::new()?) };
        let files = AuthorityFiles::for_database(database);
        Self::with_key(files.find_or_make()?, Some(files.certificate))
    }

    /// The authority with a key that is kept elsewhere.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn from_key(key: AuthorityKey) -> Result<Arc<Self>, CertificateError> {
        Self::with_key(key, None)
    }

    fn with_key(
        authority: AuthorityKey,
        path: Option<PathBuf>,
    ) -> Result<Arc<Self>, CertificateError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Ok(Arc::new(Self {
            pem: authority.pem().to_owned(),
            login_key: Salt::new(HKDF_SHA256, LOGIN_SALT).extract(authority.key_pem().as_bytes()),
            path,
            issuer: authority.into_issuer(),
            key,
            local: Mutex::default(),
            issued: Mutex::default(),
            provided: RwLock::default(),
            named: NamedCertificates::default(),
            challenges: Arc::default(),
        }))
    }

    /// The certificate that clients must trust, as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The key that the cookies of logins are sealed with, the same for all nodes of a database.
    pub fn login_key(&self) -> Prk {
        self.login_key.clone()
    }

    /// The file that holds [`LocalAuthority::pem`], if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Shows a given certificate from now on for the names that it covers; connections stay.
    ///
    /// `chain` and `key` are PEM files, the leaf first.
    ///
    /// # Errors
    /// When a file cannot be read, or the two do not belong together; the old one stays then.
    pub fn provide_certificate(&self, chain: &Path, key: &Path) -> Result<(), CertificateError> {
        let certified = read_certified_key(chain, key)?;
        let leaf = certified.end_entity_cert()?.clone().into_owned();
        let ends = CertificateFields::from_der(&leaf).map(|fields| fields.not_after);
        let provided = ProvidedCertificate { certified, leaf, ends };
        *self.provided.write().unwrap_or_else(PoisonError::into_inner) = Some(provided);
        Ok(())
    }

    /// When the configured certificate ends.
    pub fn provided_end(&self) -> Option<Timestamp> {
        let provided = self.provided.read().unwrap_or_else(PoisonError::into_inner);
        provided.as_ref().and_then(|provided| provided.ends.clone())
    }

    /// The certificates that belong to single names.
    pub fn named_certificates(&self) -> &NamedCertificates {
        &self.named
    }

    /// Whether a name has a certificate that was uploaded or given, and has not expired.
    pub fn has_other(&self, name: &str) -> bool {
        let is_valid = |certified: &Arc<CertifiedKey>| {
            let leaf = certified.end_entity_cert().ok();
            let fields = leaf.and_then(|leaf| CertificateFields::from_der(leaf));
            fields.is_some_and(|fields| {
                fields.not_after.0 > Timestamp::from_system_time(SystemTime::now()).0
            })
        };
        self.named.uploaded.find(name).is_some()
            || self.provided_for(name).is_some_and(|it| is_valid(&it))
    }

    /// The challenges that are open now.
    pub fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Shows the given certificate no longer.
    pub fn withdraw_certificate(&self) {
        *self.provided.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Vouches for an address that is listened on; for any address of this machine where that is said
    /// to be all of them.
    pub fn add_address(&self, address: IpAddr) {
        let mut local = self.lock_local();
        match address.is_unspecified() {
            true => local.everywhere = true,
            false => drop(local.hosts.insert(address.to_canonical().to_string())),
        }
        local.checked_at = None;
    }

    /// Vouches for a host by which this machine is known: a name or an address.
    pub fn add_host(&self, host: &str) {
        if let Ok(address) = host.parse() {
            return self.add_address(address);
        }
        let mut local = self.lock_local();
        // No certificate can be for what is no name.
        if ServerName::try_from(host).is_ok() {
            local.hosts.insert(host.to_ascii_lowercase());
        }
        local.checked_at = None;
    }

    /// How a listener speaks TLS; `protocols` are offered by ALPN, best first.
    ///
    /// # Errors
    /// When the TLS library refuses its own defaults.
    pub fn server_config(
        self: &Arc<Self>,
        protocols: &[&str],
    ) -> Result<Arc<ServerConfig>, CertificateError> {
        self.config_with_params(protocols, TlsParams::default())
    }

    /// The same for a listener that does not take TLS from just anybody.
    pub fn config_with_params(
        self: &Arc<Self>,
        protocols: &[&str],
        tls_params: TlsParams,
    ) -> Result<Arc<ServerConfig>, CertificateError> {
        let resolver = Arc::new(CertificateResolver(self.clone()));
        let mut config = server_config(tls_params.versions, tls_params.visitors, resolver)?;
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Arc::new(config))
    }

    /// The certificate for a name, or for this machine where a visitor names none.
    fn select_certificate(
        &self,
        name: Option<&str>,
    ) -> Result<Arc<CertifiedKey>, CertificateError> {
        let Some(name) = name else { return self.local_certificate() };
        let chosen = || self.named.uploaded.find(name);
        let chosen = chosen().or_else(|| self.provided_for(name));
        if let Some(found) = chosen.or_else(|| self.named.obtained.find(name)) {
            return Ok(found);
        }
        if name == LOCAL_NAMES[0] {
            return self.local_certificate();
        }
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = issued.get(name).filter(|ready| !ready.is_old()) {
            return Ok(ready.certified.clone());
        }
        if issued.len() >= MAX_CACHED_CERTIFICATES {
            issued.clear();
        }
        let made = issue_certificate(&self.issuer, &self.key, &[name.to_owned()])?;
        issued.insert(name.to_owned(), made.clone());
        Ok(made.certified)
    }

    fn local_certificate(&self) -> Result<Arc<CertifiedKey>, CertificateError> {
        let mut local = self.lock_local();
        let is_known = local.is_known();
        if let Some((_, issued)) =
            local.issued.as_ref().filter(|(_, issued)| is_known && !issued.is_old())
        {
            return Ok(issued.certified.clone());
        }
        let names = local.certificate_names();
        local.checked_at = Some(Instant::now());
        if let Some((known, issued)) = &local.issued
            && *known == names
            && !issued.is_old()
        {
            return Ok(issued.certified.clone());
        }
        let made =
            issue_certificate(&self.issuer, &self.key, &names.iter().cloned().collect::<Vec<_>>())?;
        local.issued = Some((names, made.clone()));
        Ok(made.certified)
    }

    fn lock_local(&self) -> MutexGuard<'_, LocalCertificate> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn provided_for(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let provided = self.provided.read().unwrap_or_else(PoisonError::into_inner);
        let provided = provided.as_ref()?;
        let parsed = ParsedCertificate::try_from(&provided.leaf).ok()?;
        let name = ServerName::try_from(name).ok()?;
        rustls::client::verify_server_name(&parsed, &name).ok()?;
        Some(provided.certified.clone())
    }
}

impl IssuedCertificate {
    fn is_old(&self) -> bool {
        self.made.elapsed() > RENEW_AFTER
    }
}

/// Finds the certificate for the name that a visitor asks for.
struct CertificateResolver(Arc<LocalAuthority>);

impl fmt::Debug for CertificateResolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Resolver")
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Without a certificate the handshake fails, which is all that can be said to a visitor.
        self.0.select_certificate(hello.server_name()).ok()
    }
}

/// Makes sure that a certificate and its key, both PEM files, can be shown.
///
/// # Errors
/// As those of [`LocalAuthority::provide_certificate`].
pub fn check_certificate(chain: &Path, key: &Path) -> Result<(), CertificateError> {
    read_certified_key(chain, key).map(drop)
}

fn read_certified_key(chain: &Path, key: &Path) -> Result<Arc<CertifiedKey>, CertificateError> {
    let content =
        |path: &Path, problem: String| CertificateError::Content { path: path.to_owned(), problem };
    let read = certificate::parse_certified_key(&read_file(chain)?, &read_key_file(key)?);
    read.map_err(|unusable| match unusable {
        Unusable::Certificate(problem) => content(chain, problem),
        Unusable::Key(problem) => content(key, problem),
    })
}

fn issue_certificate(
    issuer: &Issuer<'static, KeyPair>,
    key: &KeyPair,
    names: &[String],
) -> Result<IssuedCertificate, CertificateError> {
    let usages = [ExtendedKeyUsagePurpose::ServerAuth];
    let leaf = leaf_params(names, &usages, VALID_DAYS)?.signed_by(key, issuer)?;
    Ok(IssuedCertificate { certified: certified_key(&leaf, key)?, made: Instant::now() })
}

fn read_file(path: &Path) -> Result<Vec<u8>, CertificateError> {
    certificate::read_file(path)
        .map_err(|source| CertificateError::File { path: path.to_owned(), source })
}

fn read_key_file(path: &Path) -> Result<Vec<u8>, CertificateError> {
    certificate::read_key_file(path)
        .map_err(|source| CertificateError::File { path: path.to_owned(), source })
}
