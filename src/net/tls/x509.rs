//! What a certificate says of itself. Whether it can be trusted is for the TLS library to say.

use chrono::DateTime;
use x509_parser::asn1_rs::{FromDer, Oid};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::OID_X509_EXT_EXTENDED_KEY_USAGE;
use x509_parser::time::ASN1Time;

use crate::api::Timestamp;

/// What a key may be for, in the order of their bits (RFC 5280, section 4.2.1.3).
const USAGES: [&str; 9] = [
    "digitalSignature",
    "contentCommitment",
    "keyEncipherment",
    "dataEncipherment",
    "keyAgreement",
    "keyCertSign",
    "cRLSign",
    "encipherOnly",
    "decipherOnly",
];

/// What a certificate may be for (RFC 5280, section 4.2.1.12); others are shown as numbers.
const PURPOSES: [(&str, &str); 7] = [
    ("2.5.29.37.0", "anyExtendedKeyUsage"),
    ("1.3.6.1.5.5.7.3.1", "serverAuth"),
    ("1.3.6.1.5.5.7.3.2", "clientAuth"),
    ("1.3.6.1.5.5.7.3.3", "codeSigning"),
    ("1.3.6.1.5.5.7.3.4", "emailProtection"),
    ("1.3.6.1.5.5.7.3.8", "timeStamping"),
    ("1.3.6.1.5.5.7.3.9", "OCSPSigning"),
];

/// What a certificate says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateFields {
    /// The common name of its subject; empty where it has none.
    pub common_name: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// What its key is for.
    pub key_usages: Vec<String>,
    /// What it is for itself.
    pub extended_key_usages: Vec<String>,
    /// True when it may vouch for others.
    pub is_authority: bool,
}

impl CertificateFields {
    /// Reads a certificate; none where it is not one.
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let common_name = certificate.subject().iter_common_name().next();
        let common_name = common_name.and_then(|name| name.as_str().ok()).unwrap_or_default();
        let key_usage = certificate.key_usage().ok()?;
        Some(Self {
            common_name: common_name.to_owned(),
            not_before: timestamp(certificate.validity().not_before)?,
            not_after: timestamp(certificate.validity().not_after)?,
            key_usages: key_usage.map_or_else(Vec::new, |usage| usages(usage.value.flags)),
            extended_key_usages: purposes(&certificate)?,
            is_authority: certificate.basic_constraints().ok()?.is_some_and(|it| it.value.ca),
        })
    }
}

/// The version of X.509 that a certificate has, from 1 on; none where it is not one.
pub(crate) fn version(der: &[u8]) -> Option<u32> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    certificate.version().0.checked_add(1)
}

fn timestamp(time: ASN1Time) -> Option<Timestamp> {
    let time = DateTime::from_timestamp(time.timestamp(), 0)?;
    Some(Timestamp(time.format("%FT%TZ").to_string()))
}

/// The names of bits that are set.
fn usages(bits: u16) -> Vec<String> {
    let named = USAGES.iter().enumerate().filter(|(index, _)| bits & 1 << index != 0);
    named.map(|(_, name)| (*name).to_owned()).collect()
}

/// What a certificate is for, in its own order.
fn purposes(certificate: &X509Certificate<'_>) -> Option<Vec<String>> {
    let extension = certificate.get_extension_unique(&OID_X509_EXT_EXTENDED_KEY_USAGE).ok()?;
    let Some(extension) = extension else { return Some(Vec::new()) };
    let (_, purposes) = <Vec<Oid<'_>>>::from_der(extension.value).ok()?;
    Some(purposes.iter().map(purpose).collect())
}

fn purpose(oid: &Oid<'_>) -> String {
    let number = oid.to_id_string();
    let known = PURPOSES.iter().find(|(known, _)| *known == number);
    known.map_or(number, |(_, name)| (*name).to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        KeyUsagePurpose, date_time_ymd,
    };

    use super::*;

    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Tea & Söhne");
        params.distinguished_name.push(DnType::CommonName, "the tea authority");
        params.not_before = date_time_ymd(1999, 12, 31);
        params.not_after = date_time_ymd(2051, 2, 3);
        params
    }

    fn made(params: &CertificateParams) -> Vec<u8> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn an_authority_says_what_it_is_and_for_how_long() {
        let mut params = params();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DecipherOnly];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 4, 1, 311, 10, 3, 4]),
        ];

        let read = CertificateFields::read(&made(&params)).unwrap();

        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let expected = CertificateFields {
            common_name: "the tea authority".into(),
            not_before: Timestamp("1999-12-31T00:00:00Z".into()),
            not_after: Timestamp("2051-02-03T00:00:00Z".into()),
            key_usages: texts(&["keyCertSign", "decipherOnly"]),
            extended_key_usages: texts(&["clientAuth", "1.3.6.1.4.1.311.10.3.4"]),
            is_authority: true,
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn others_are_no_authorities() {
        for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa] {
            let mut params = params();
            params.is_ca = is_ca;
            let read = CertificateFields::read(&made(&params)).unwrap();

            assert!(!read.is_authority && read.key_usages.is_empty());
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_no_panic() {
        let whole = made(&params());
        for end in 0..whole.len() {
            assert_eq!(CertificateFields::read(&whole[..end]), None, "{end}");
            let mut changed = whole.clone();
            for byte in [0, 0x30, 0x84, 0xff] {
                changed[end] = byte;
                let _ = (CertificateFields::read(&changed), version(&changed));
            }
        }
    }
}
