//! The key of a certificate authority, with the certificate that clients trust.
//!
//! It is kept in two files beside a database, or by whoever calls [`AuthorityKey::from_pem`].

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, date_time_ymd,
};

use ginnel_base::files;
use ginnel_net::tls::certificate::{self, Unusable};

use crate::tls::certificate_error::CertificateError;

/// The key of an authority, with its certificate.
pub struct AuthorityKey {
    pem: String,
    key: KeyPair,
}

impl AuthorityKey {
    /// That of a new authority.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn new() -> Result<Self, CertificateError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let pem = authority_params(&key).self_signed(&key)?.pem();
        Ok(Self { pem, key })
    }

    /// One that was kept: its certificate and its key, as PEM.
    ///
    /// # Errors
    /// When one of them cannot be read, or they do not belong together.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, Unusable> {
        certificate::parse_certified_key(certificate.as_bytes(), key.as_bytes())?;
        let signing = KeyPair::from_pem(key).map_err(|error| Unusable::Key(error.to_string()))?;
        Ok(Self { pem: certificate.to_owned(), key: signing })
    }

    /// The certificate that clients must trust.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The key, which nobody else may know.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// What signs certificates.
    pub(super) fn into_issuer(self) -> Issuer<'static, KeyPair> {
        Issuer::new(authority_params(&self.key), self.key)
    }
}

/// What says who the authority is; the same for the same key, so that it need not be read back.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let id = params.key_identifier(key);
    let digits = ginnel_base::hex(&id[..id.len().min(4)]);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("ginnel local authority {digits}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(2025, 1, 1);
    params.not_after = date_time_ymd(2050, 1, 1);
    params
}

/// The two files beside a database that hold its authority.
pub struct AuthorityFiles {
    pub(super) certificate: PathBuf,
    private: PathBuf,
}

impl AuthorityFiles {
    /// Those of the database in a file; they need not be there.
    pub fn for_database(database: &Path) -> Self {
        Self {
            certificate: files::with_suffix(database, "-ca.pem"),
            private: files::with_suffix(database, "-ca.key"),
        }
    }

    /// The authority, if there is one.
    ///
    /// # Errors
    /// When there is one file without the other, for whoever trusts the old authority would not trust a
    /// new one; or they cannot be read, or hold something else.
    pub fn find_authority(&self) -> Result<Option<AuthorityKey>, CertificateError> {
        let Self { certificate, private } = self;
        if is_there(private)? && !is_there(certificate)? {
            complete_rename(certificate, private)?;
        }
        match (is_there(certificate)?, is_there(private)?) {
            (true, true) => read_authority(certificate, private).map(Some),
            (false, false) => Ok(None),
            (true, false) => Err(missing_file_error(private, certificate)),
            (false, true) => Err(missing_file_error(certificate, private)),
        }
    }

    /// The authority, which is made when there is none.
    pub(super) fn find_or_make(&self) -> Result<AuthorityKey, CertificateError> {
        if let Some(found) = self.find_authority()? {
            return Ok(found);
        }
        let made = AuthorityKey::new()?;
        self.write_authority(&made)?;
        Ok(made)
    }

    /// Writes an authority to files that are not there; false when they are there and are of this one.
    ///
    /// # Errors
    /// When there are files of another one, or they cannot be written.
    pub fn store_authority(&self, authority: &AuthorityKey) -> Result<bool, CertificateError> {
        match self.find_authority()? {
            None => self.write_authority(authority).map(|()| true),
            Some(found) if found.key_pem() == authority.key_pem() => Ok(false),
            Some(_) => Err(content_error(
                &self.certificate,
                "is of another authority; move it and its key away".to_owned(),
            )),
        }
    }

    /// Removes the files.
    ///
    /// # Errors
    /// When that fails.
    pub fn remove(&self) -> std::io::Result<()> {
        std::fs::remove_file(&self.certificate)?;
        std::fs::remove_file(&self.private)
    }

    fn write_authority(&self, authority: &AuthorityKey) -> Result<(), CertificateError> {
        write_files(&self.certificate, authority.pem(), &self.private, &authority.key_pem())
    }
}

fn read_authority(certificate: &Path, private: &Path) -> Result<AuthorityKey, CertificateError> {
    let text = |path: &Path, bytes: std::io::Result<Vec<u8>>| {
        let failed = |source| CertificateError::File { path: path.to_owned(), source };
        String::from_utf8(bytes.map_err(failed)?)
            .map_err(|problem| content_error(path, problem.to_string()))
    };
    let pem = text(certificate, certificate::read_file(certificate))?;
    let key = text(private, certificate::read_key_file(private))?;
    AuthorityKey::from_pem(&pem, &key).map_err(|unusable| match unusable {
        Unusable::Certificate(problem) => content_error(certificate, problem),
        Unusable::Key(problem) => content_error(
            private,
            format!("{problem} (the certificate is {})", certificate.display()),
        ),
    })
}

/// Writes both files; a process that is killed in between leaves what [`complete_rename`] completes.
fn write_files(
    certificate: &Path,
    pem: &str,
    private: &Path,
    key: &str,
) -> Result<(), CertificateError> {
    let failed = |source| CertificateError::File { path: private.to_owned(), source };
    let staged_pem = files::stage_file(certificate, pem.as_bytes(), files::PUBLIC_MODE);
    let staged_pem = staged_pem.map_err(failed)?;
    let staged_key = files::stage_file(private, key.as_bytes(), files::SECRET_MODE);
    let staged_key = staged_key.map_err(failed)?;
    files::sync_folder(private).map_err(failed)?;
    // The key first: an authority that is published without its key could never issue.
    std::fs::rename(staged_key, private).map_err(failed)?;
    std::fs::rename(staged_pem, certificate).map_err(failed)?;
    files::sync_folder(private).map_err(failed)
}

/// Gives a certificate its name where a process was killed after its key had got one.
fn complete_rename(certificate: &Path, private: &Path) -> Result<(), CertificateError> {
    let staged = files::staged_path(certificate);
    if is_there(&staged)? && read_authority(&staged, private).is_ok() {
        let failed = |source| CertificateError::File { path: certificate.to_owned(), source };
        std::fs::rename(&staged, certificate).map_err(failed)?;
        files::sync_folder(certificate).map_err(failed)?;
    }
    Ok(())
}

fn is_there(path: &Path) -> Result<bool, CertificateError> {
    path.try_exists().map_err(|source| CertificateError::File { path: path.to_owned(), source })
}

fn missing_file_error(missing: &Path, other: &Path) -> CertificateError {
    let other = other.display();
    let problem = format!(
        "is missing, but {other} is there; put it back, or move the other away for a new authority"
    );
    content_error(missing, problem)
}

fn content_error(path: &Path, problem: String) -> CertificateError {
    CertificateError::Content { path: path.to_owned(), problem }
}
