//! Certificates with their keys, for whoever ends TLS: read from PEM, with the reason where they cannot
//! be used.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys};

use ginnel_api::mask;

use super::{crypto_provider, x509};
use crate::secret_file::warn_if_readable;

/// The version of X.509 that has extensions, and with them the names that a certificate is for.
const VERSION_WITH_NAMES: u32 = 3;
/// What is wrong with the name of a file that is what the file should hold.
pub const CONTENT: &str = "holds PEM text; name a file";
/// What is wrong with the key of another certificate.
pub const MISMATCH: &str = "is not the key of the certificate";
/// Where the process's own descriptors are, such as a pipe of the shell in `--ca <(command)`.
const DESCRIPTORS: [&str; 2] = ["/dev/fd", "/dev/stdin"];
/// What the names of all sections of PEM have that hold a private key.
const PRIVATE_KEY: &str = "PRIVATE KEY";
/// How long a line of PEM is.
const PEM_LINE: usize = 64;
/// How DER begins, whatever it holds.
const DER: u8 = 0x30;

/// Why a certificate or its key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The certificate is wrong.
    #[error("{0}")]
    Certificate(String),
    /// The key is wrong.
    #[error("{0}")]
    Key(String),
}

/// Reads the file of a certificate or a key; never waits for what is no file.
///
/// # Errors
/// When it cannot be read, is not a regular file, or when `path` is what a file should hold.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if mask::is_content(path) {
        return Err(io::Error::new(ErrorKind::InvalidInput, CONTENT));
    }
    if DESCRIPTORS.iter().any(|folder| path.starts_with(folder)) {
        return std::fs::read(path);
    }
    // To open a pipe waits for somebody to write to it, and to open a device may do anything.
    check_regular(&std::fs::metadata(path)?)?;
    let mut file = open_nonblocking(path)?;
    check_regular(&file.metadata()?)?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Reads the file of a private key as [`read_file`] does, and logs a warning if every user may read the file.
///
/// # Errors
/// As [`read_file`].
pub fn read_key_file(path: &Path) -> io::Result<Vec<u8>> {
    let content = read_file(path)?;
    warn_if_readable(path);
    Ok(content)
}

fn open_nonblocking(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // It may have become something else meanwhile.
    #[cfg(unix)]
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    options.read(true).open(path)
}

fn check_regular(found: &std::fs::Metadata) -> io::Result<()> {
    let problem = match found {
        found if found.is_file() => return Ok(()),
        found if found.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        _ => "is not a regular file",
    };
    Err(io::Error::new(ErrorKind::InvalidInput, problem))
}

/// Reads a certificate with those that signed it, the leaf first, and its key; both are PEM.
///
/// When it ends is for those to judge who are shown it.
///
/// # Errors
/// When one of them cannot be read, they do not belong together, or TLS has no use for them.
pub fn parse_certified_key(chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, Unusable> {
    let certificates = parse_certificates(chain).map_err(Unusable::Certificate)?;
    for (index, certificate) in certificates.iter().enumerate() {
        check_version(certificate, index).map_err(Unusable::Certificate)?;
    }
    let key = private_key(key).map_err(Unusable::Key)?;
    let certified = CertifiedKey::from_der(certificates, key, &crypto_provider());
    certified.map(Arc::new).map_err(|problem| match problem {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            Unusable::Key(MISMATCH.to_owned())
        }
        Error::InvalidCertificate(CertificateError::BadEncoding) => {
            Unusable::Certificate("is damaged".to_owned())
        }
        Error::InvalidCertificate(problem) => {
            Unusable::Certificate(format!("cannot be used: {problem:?}"))
        }
        problem => Unusable::Key(format!("cannot be used: {problem}")),
    })
}

/// Reads certificates in PEM; at least one.
///
/// # Errors
/// When there is none, or one is damaged.
pub fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = check_form(pem)?;
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|problem| format!("is damaged: {problem}"))?;
    if read.is_empty() { Err("holds no certificate in PEM".to_owned()) } else { Ok(read) }
}

/// A certificate as PEM, without a line break at its end.
pub fn encode_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(PEM_LINE));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem + "-----END CERTIFICATE-----"
}

/// Certificates as PEM, and nothing else.
pub fn encode_pem_chain(certificates: &[CertificateDer<'_>]) -> String {
    certificates.iter().map(|certificate| encode_pem(certificate) + "\n").collect()
}

/// What may be shown of a text with certificates: the certificates alone, where it has a private key too.
pub fn without_private_keys(text: String) -> String {
    if !text.contains(PRIVATE_KEY) {
        return text;
    }
    parse_certificates(text.as_bytes())
        .map_or_else(|_| mask::MASK.to_owned(), |read| encode_pem_chain(&read))
}

fn check_version(der: &[u8], index: usize) -> Result<(), String> {
    let number = index + 1;
    match x509::certificate_version(der) {
        Some(VERSION_WITH_NAMES) => Ok(()),
        None => Err(format!("certificate {number} is damaged")),
        Some(_) if index > 0 => Ok(()),
        Some(version) => Err(format!(
            "certificate {number} is X.509 version {version}, which has no names of hosts; \
             TLS needs version {VERSION_WITH_NAMES}"
        )),
    }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let pem = check_form(pem)?;
    let is_encrypted = pem.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED);
    PrivateKeyDer::from_pem_slice(pem).map_err(|problem| match problem {
        _ if is_encrypted => "is encrypted; decrypt it first".to_owned(),
        rustls::pki_types::pem::Error::NoItemsFound => "holds no private key in PEM".to_owned(),
        problem => format!("is damaged: {problem}"),
    })
}

/// What says in PEM that a key needs a password, in both forms.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// Returns PEM without the byte order mark that editors of Windows write.
fn check_form(pem: &[u8]) -> Result<&[u8], String> {
    match pem.strip_prefix(b"\xef\xbb\xbf").unwrap_or(pem) {
        [] => Err("is empty".to_owned()),
        [DER, ..] => Err("is DER, not PEM".to_owned()),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Err("is in UTF-16; save it as UTF-8".to_owned()),
        pem => Ok(pem),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn made() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["a.test".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn refused(chain: &[u8], key: &[u8]) -> Unusable {
        parse_certified_key(chain, key).map(|_| ()).unwrap_err()
    }

    #[test]
    fn a_certificate_is_read_with_what_stands_around_it() {
        let (chain, key) = made();
        let around = format!("some words\n{chain}\nmore words\n{chain}");

        let read = parse_certified_key(around.as_bytes(), key.as_bytes()).unwrap();

        assert_eq!(read.cert.len(), 2);
        assert_eq!(x509::certificate_version(&read.cert[0]), Some(3));
    }

    #[test]
    fn what_is_wrong_is_told() {
        let ((chain, key), (_, other)) = (made(), made());
        let (chain, key) = (chain.as_bytes(), key.as_bytes());
        let der = parse_certificates(chain).unwrap()[0].to_vec();
        let encrypted =
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let of = |text: &str| Unusable::Certificate(text.to_owned());
        let key_is = |text: &str| Unusable::Key(text.to_owned());

        assert_eq!(refused(b"", key), of("is empty"));
        assert_eq!(refused(&der, key), of("is DER, not PEM"));
        assert_eq!(refused(b"words", key), of("holds no certificate in PEM"));
        assert_eq!(refused(key, key), of("holds no certificate in PEM"));
        assert_eq!(refused(chain, b""), key_is("is empty"));
        assert_eq!(refused(chain, chain), key_is("holds no private key in PEM"));
        assert_eq!(refused(chain, encrypted), key_is("is encrypted; decrypt it first"));
        assert_eq!(refused(chain, other.as_bytes()), key_is("is not the key of the certificate"));
    }
}
