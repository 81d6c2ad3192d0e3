//! The local certificate authority: one per database, so that a machine without DNS and without an
//! account has TLS all the same.
//!
//! It vouches for every name that a visitor asks for. Who asks for none, because addresses are no names
//! in TLS, gets the certificate of this machine: for `localhost`, `127.0.0.1` and `::1`, for the
//! addresses that are listened on, and for the host of the public URL. A certificate that was uploaded
//! for a name, was given, or was obtained by ACME, is shown in its place for the names that it covers.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use chrono::{Datelike, Days, NaiveDate, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::api::{Timestamp, mask};
use crate::files;
use crate::gateway::tls::challenges::Challenges;
use crate::gateway::tls::interfaces;
use crate::gateway::tls::named::NamedCertificates;
use crate::gateway::tls::policy::TlsParams;
use crate::net::tls::certificate::{self, Unusable};
use crate::net::tls::x509::CertificateFields;
use crate::net::tls::{provider, server_config};

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

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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

/// A certificate authority with the certificates that it has issued.
pub struct Authority {
    pem: String,
    path: Option<PathBuf>,
    issuer: Issuer<'static, KeyPair>,
    /// One key serves all certificates: making one takes longer than signing.
    key: KeyPair,
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
    fn names(&self) -> BTreeSet<String> {
        let mut names = self.hosts.clone();
        names.extend(LOCAL_NAMES.map(str::to_owned));
        if self.everywhere {
            names.extend(interfaces::addresses().iter().map(IpAddr::to_string));
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
}

impl Authority {
    /// The authority of a database; made when there is none. Without a database it ends with the
    /// process.
    ///
    /// # Errors
    /// When its files cannot be read or written, or hold something else.
    pub fn open(database: Option<&Path>) -> Result<Arc<Self>, CertificateError> {
        let (path, (pem, signing)) = match database {
            None => (None, make()?),
            Some(database) => {
                let (certificate, key) =
                    (files::beside(database, "-ca.pem"), files::beside(database, "-ca.key"));
                let kept = read_or_create(&certificate, &key)?;
                (Some(certificate), kept)
            }
        };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let issuer = Issuer::new(authority_params(&signing), signing);
        Ok(Arc::new(Self {
            pem,
            path,
            issuer,
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

    /// The file that holds [`Authority::pem`], if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Shows a given certificate from now on for the names that it covers; connections stay.
    ///
    /// `chain` and `key` are PEM files, the leaf first.
    ///
    /// # Errors
    /// When a file cannot be read, or the two do not belong together; the old one stays then.
    pub fn provide(&self, chain: &Path, key: &Path) -> Result<(), CertificateError> {
        let certified = certified(chain, key)?;
        let leaf = certified.end_entity_cert()?.clone().into_owned();
        let provided = ProvidedCertificate { certified, leaf };
        *self.provided.write().unwrap_or_else(PoisonError::into_inner) = Some(provided);
        Ok(())
    }

    /// The certificates that belong to single names.
    pub(crate) fn named(&self) -> &NamedCertificates {
        &self.named
    }

    /// Whether a name has a certificate that was uploaded or given, and has not expired.
    pub(crate) fn has_other(&self, name: &str) -> bool {
        let is_valid = |certified: &Arc<CertifiedKey>| {
            let leaf = certified.end_entity_cert().ok();
            let fields = leaf.and_then(|leaf| CertificateFields::read(leaf));
            fields.is_some_and(|fields| fields.not_after.0 > Timestamp::at(SystemTime::now()).0)
        };
        self.named.uploaded.find(name).is_some()
            || self.provided_for(name).is_some_and(|it| is_valid(&it))
    }

    /// The challenges that are open now.
    pub(crate) fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Shows the given certificate no longer.
    pub fn withdraw(&self) {
        *self.provided.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Vouches for an address that is listened on; for any address of this machine where that is said
    /// to be all of them.
    pub fn add_address(&self, address: IpAddr) {
        let mut local = self.local();
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
        let mut local = self.local();
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
        self.config(protocols, TlsParams::default())
    }

    /// The same for a listener that does not take TLS from just anybody.
    pub(crate) fn config(
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
    fn certificate(&self, name: Option<&str>) -> Result<Arc<CertifiedKey>, CertificateError> {
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
        let made = issue(&self.issuer, &self.key, &[name.to_owned()])?;
        issued.insert(name.to_owned(), made.clone());
        Ok(made.certified)
    }

    fn local_certificate(&self) -> Result<Arc<CertifiedKey>, CertificateError> {
        let mut local = self.local();
        let is_known = local.is_known();
        if let Some((_, issued)) =
            local.issued.as_ref().filter(|(_, issued)| is_known && !issued.is_old())
        {
            return Ok(issued.certified.clone());
        }
        let names = local.names();
        local.checked_at = Some(Instant::now());
        if let Some((known, issued)) = &local.issued
            && *known == names
            && !issued.is_old()
        {
            return Ok(issued.certified.clone());
        }
        let made = issue(&self.issuer, &self.key, &names.iter().cloned().collect::<Vec<_>>())?;
        local.issued = Some((names, made.clone()));
        Ok(made.certified)
    }

    fn local(&self) -> MutexGuard<'_, LocalCertificate> {
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
struct CertificateResolver(Arc<Authority>);

impl fmt::Debug for CertificateResolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Resolver")
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Without a certificate the handshake fails, which is all that can be said to a visitor.
        self.0.certificate(hello.server_name()).ok()
    }
}

/// Makes sure that a certificate and its key, both PEM files, can be shown.
///
/// # Errors
/// As those of [`Authority::provide`].
pub fn check_certificate(chain: &Path, key: &Path) -> Result<(), CertificateError> {
    certified(chain, key).map(drop)
}

fn certified(chain: &Path, key: &Path) -> Result<Arc<CertifiedKey>, CertificateError> {
    let content =
        |path: &Path, problem: String| CertificateError::Content { path: path.to_owned(), problem };
    let read = certificate::certified(&read_file(chain)?, &read_file(key)?);
    read.map_err(|unusable| match unusable {
        Unusable::Certificate(problem) => content(chain, problem),
        Unusable::Key(problem) => content(key, problem),
    })
}

/// What says who the authority is; the same for the same key, so that it need not be read back.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let id = params.key_identifier(key);
    let fast_path_target: String = id.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("ginnel local authority {fast_path_target}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(2025, 1, 1);
    params.not_after = date_time_ymd(2050, 1, 1);
    params
}

fn make() -> Result<(String, KeyPair), CertificateError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let pem = authority_params(&key).self_signed(&key)?.pem();
    Ok((pem, key))
}

fn issue(
    issuer: &Issuer<'static, KeyPair>,
    key: &KeyPair,
    names: &[String],
) -> Result<IssuedCertificate, CertificateError> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "ginnel");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let day = |day: NaiveDate| {
        let part = |number: u32| u8::try_from(number).unwrap_or(1);
        date_time_ymd(day.year(), part(day.month()), part(day.day()))
    };
    let today = Utc::now().date_naive();
    // From yesterday on, since not all clocks agree.
    params.not_before = day(today.checked_sub_days(Days::new(1)).unwrap_or(today));
    params.not_after = day(today.checked_add_days(Days::new(VALID_DAYS)).unwrap_or(today));
    let leaf = params.signed_by(key, issuer)?;
    let private = PrivateKeyDer::try_from(key.serialize_der())
        .map_err(|problem| rustls::Error::General(problem.to_owned()))?;
    let signing = provider().key_provider.load_private_key(private)?;
    let certified = Arc::new(CertifiedKey::new(vec![leaf.der().clone()], signing));
    Ok(IssuedCertificate { certified, made: Instant::now() })
}

/// The authority in two files, which are made when there is neither.
///
/// One without the other is refused: whoever trusts the old authority would not trust a new one.
fn read_or_create(
    certificate: &Path,
    private: &Path,
) -> Result<(String, KeyPair), CertificateError> {
    if is_there(private)? && !is_there(certificate)? {
        finish(certificate, private)?;
    }
    match (is_there(certificate)?, is_there(private)?) {
        (true, true) => read(certificate, private),
        (false, false) => {
            let (pem, key) = make()?;
            write(certificate, &pem, private, &key.serialize_pem())?;
            Ok((pem, key))
        }
        (true, false) => Err(alone(private, certificate)),
        (false, true) => Err(alone(certificate, private)),
    }
}

fn read(certificate: &Path, private: &Path) -> Result<(String, KeyPair), CertificateError> {
    let text = |path: &Path| {
        String::from_utf8(read_file(path)?).map_err(|problem| content(path, problem.to_string()))
    };
    let (pem, key) = (text(certificate)?, text(private)?);
    let der = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|problem| content(certificate, problem.to_string()))?;
    let signing =
        KeyPair::from_pem(&key).map_err(|problem| content(private, problem.to_string()))?;
    let der_key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|problem| content(private, problem.to_string()))?;
    CertifiedKey::from_der(vec![der], der_key, &provider()).map_err(|problem| {
        content(private, format!("does not belong to {}: {problem}", certificate.display()))
    })?;
    Ok((pem, signing))
}

/// Writes both files; a process that is killed in between leaves what [`finish`] completes.
fn write(certificate: &Path, pem: &str, private: &Path, key: &str) -> Result<(), CertificateError> {
    let failed = |source| CertificateError::File { path: private.to_owned(), source };
    let staged_pem = files::stage(certificate, pem.as_bytes(), files::PUBLIC_MODE);
    let staged_pem = staged_pem.map_err(failed)?;
    let staged_key = files::stage(private, key.as_bytes(), files::SECRET_MODE);
    let staged_key = staged_key.map_err(failed)?;
    files::sync_folder(private).map_err(failed)?;
    // The key first: an authority that is published without its key could never issue.
    std::fs::rename(staged_key, private).map_err(failed)?;
    std::fs::rename(staged_pem, certificate).map_err(failed)?;
    files::sync_folder(private).map_err(failed)
}

/// Gives a certificate its name where a process was killed after its key had got one.
fn finish(certificate: &Path, private: &Path) -> Result<(), CertificateError> {
    let staged = files::staged(certificate);
    if is_there(&staged)? && read(&staged, private).is_ok() {
        let failed = |source| CertificateError::File { path: certificate.to_owned(), source };
        std::fs::rename(&staged, certificate).map_err(failed)?;
        files::sync_folder(certificate).map_err(failed)?;
    }
    Ok(())
}

fn is_there(path: &Path) -> Result<bool, CertificateError> {
    path.try_exists().map_err(|source| CertificateError::File { path: path.to_owned(), source })
}

fn alone(missing: &Path, other: &Path) -> CertificateError {
    let other = other.display();
    let problem = format!(
        "is missing, but {other} is there; put it back, or move the other away for a new authority"
    );
    content(missing, problem)
}

fn content(path: &Path, problem: String) -> CertificateError {
    CertificateError::Content { path: path.to_owned(), problem }
}

fn read_file(path: &Path) -> Result<Vec<u8>, CertificateError> {
    certificate::read_file(path)
        .map_err(|source| CertificateError::File { path: path.to_owned(), source })
}
