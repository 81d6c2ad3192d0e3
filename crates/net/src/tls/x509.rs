//! What a certificate says of itself. Whether it can be trusted is for the TLS library to say.

use std::net::IpAddr;

use chrono::DateTime;
use x509_parser::asn1_rs::{FromDer, Oid};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{
    OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
    OID_X509_EXT_EXTENDED_KEY_USAGE,
};
use x509_parser::time::ASN1Time;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use ginnel_api::Timestamp;

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

/// The types of keys that TLS is spoken with.
const KEY_TYPES: [(Oid<'_>, &str); 3] = [
    (OID_KEY_TYPE_EC_PUBLIC_KEY, "ecdsa"),
    (OID_SIG_ED25519, "ed25519"),
    (OID_PKCS1_RSAENCRYPTION, "rsa"),
];

/// What a certificate says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateFields {
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
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let common_name = certificate.subject().iter_common_name().next();
        let common_name = common_name.and_then(|name| name.as_str().ok()).unwrap_or_default();
        let key_usage = certificate.key_usage().ok()?;
        Some(Self {
            common_name: common_name.to_owned(),
            not_before: to_timestamp(certificate.validity().not_before)?,
            not_after: to_timestamp(certificate.validity().not_after)?,
            key_usages: key_usage.map_or_else(Vec::new, |usage| key_usage_names(usage.value.flags)),
            extended_key_usages: extended_key_usages(&certificate)?,
            is_authority: certificate.basic_constraints().ok()?.is_some_and(|it| it.value.ca),
        })
    }
}

/// What a certificate for a host says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeafFields {
    /// What any certificate says.
    pub certificate: CertificateFields,
    /// Whose it is.
    pub subject: SubjectFields,
    /// The host names that it is for; the first label may be `*`.
    pub dns_names: Vec<String>,
    /// The addresses that it is for.
    pub ips: Vec<String>,
    /// The common name of who signed it; empty where it has none.
    pub issuer_common_name: String,
    /// The serial number in hexadecimal digits.
    pub serial_number: String,
    /// The type of its key: `ecdsa`, `ed25519` or `rsa`.
    pub key_type: &'static str,
}

/// Whose a certificate is, apart from the common name; what it does not say is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubjectFields {
    pub organization: String,
    pub organizational_unit: String,
    pub locality: String,
    pub province: String,
    pub country: String,
}

impl LeafFields {
    /// Reads a certificate; none where it is not one.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let fields = CertificateFields::from_der(der)?;
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let (dns_names, ips) = alternative_names(&certificate)?;
        Some(Self {
            certificate: fields,
            subject: SubjectFields::from_name(certificate.subject()),
            dns_names,
            ips,
            issuer_common_name: first_text(certificate.issuer().iter_common_name()),
            serial_number: ginnel_base::hex(certificate.raw_serial()),
            key_type: key_type(&certificate),
        })
    }
}

impl SubjectFields {
    fn from_name(subject: &X509Name<'_>) -> Self {
        Self {
            organization: first_text(subject.iter_organization()),
            organizational_unit: first_text(subject.iter_organizational_unit()),
            locality: first_text(subject.iter_locality()),
            province: first_text(subject.iter_state_or_province()),
            country: first_text(subject.iter_country()),
        }
    }
}

/// The text of the first of several attributes; empty where there is none.
fn first_text<'a>(mut attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> String {
    let text = attributes.next().and_then(|attribute| attribute.as_str().ok());
    text.unwrap_or_default().to_owned()
}

/// The host names and addresses that a certificate is for.
fn alternative_names(certificate: &X509Certificate<'_>) -> Option<(Vec<String>, Vec<String>)> {
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    let extension = certificate.subject_alternative_name().ok()?;
    for name in extension.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => addresses.extend(format_ip(bytes)),
            _ => {}
        }
    }
    Some((names, addresses))
}

fn format_ip(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    address.ok().map(|address| address.to_string())
}

fn key_type(certificate: &X509Certificate<'_>) -> &'static str {
    let algorithm = certificate.public_key().algorithm.oid();
    let known = KEY_TYPES.into_iter().find(|(oid, _)| oid == algorithm);
    known.map_or("", |(_, name)| name)
}

/// The version of X.509 that a certificate has, from 1 on; none where it is not one.
pub fn certificate_version(der: &[u8]) -> Option<u32> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    certificate.version().0.checked_add(1)
}

/// Returns the first and the last second in which a certificate is valid, in Unix time.
pub fn validity_period(der: &[u8]) -> Option<(i64, i64)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

fn to_timestamp(time: ASN1Time) -> Option<Timestamp> {
    let time = DateTime::from_timestamp(time.timestamp(), 0)?;
    Some(Timestamp(time.format("%FT%TZ").to_string()))
}

/// The names of bits that are set.
fn key_usage_names(bits: u16) -> Vec<String> {
    let named = USAGES.iter().enumerate().filter(|(index, _)| bits & 1 << index != 0);
    named.map(|(_, name)| (*name).to_owned()).collect()
}

/// What a certificate is for, in its own order.
fn extended_key_usages(certificate: &X509Certificate<'_>) -> Option<Vec<String>> {
    let extension = certificate.get_extension_unique(&OID_X509_EXT_EXTENDED_KEY_USAGE).ok()?;
    let Some(extension) = extension else { return Some(Vec::new()) };
    let (_, purposes) = <Vec<Oid<'_>>>::from_der(extension.value).ok()?;
    Some(purposes.iter().map(purpose_name).collect())
}

fn purpose_name(oid: &Oid<'_>) -> String {
    let number = oid.to_id_string();
    let known = PURPOSES.iter().find(|(known, _)| *known == number);
    known.map_or(number, |(_, name)| (*name).to_owned())
}

#[cfg(test)]
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

        let read = CertificateFields::from_der(&made(&params)).unwrap();

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
            let read = CertificateFields::from_der(&made(&params)).unwrap();

            assert!(!read.is_authority && read.key_usages.is_empty());
        }
    }

    #[test]
    fn a_leaf_says_for_whom_it_is() {
        let names = ["a.test", "*.b.test", "127.0.0.1", "::1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.serial_number = Some(vec![10, 255].into());
        for (kind, value) in [
            (DnType::OrganizationName, "Tea & Söhne"),
            (DnType::OrganizationalUnitName, "Leaves"),
            (DnType::LocalityName, "York"),
            (DnType::StateOrProvinceName, "Yorkshire"),
            (DnType::CountryName, "GB"),
            (DnType::CommonName, "a.test"),
        ] {
            params.distinguished_name.push(kind, value);
        }

        let read = LeafFields::from_der(&made(&params)).unwrap();

        assert_eq!(read.dns_names, ["a.test", "*.b.test"]);
        assert_eq!(read.ips, ["127.0.0.1", "::1"]);
        assert_eq!((read.serial_number.as_str(), read.key_type), ("0aff", "ecdsa"));
        assert_eq!(read.issuer_common_name, "a.test");
        let subject = SubjectFields {
            organization: "Tea & Söhne".into(),
            organizational_unit: "Leaves".into(),
            locality: "York".into(),
            province: "Yorkshire".into(),
            country: "GB".into(),
        };
        assert_eq!(read.subject, subject);
    }

    #[test]
    fn what_is_cut_or_changed_is_no_panic() {
        let whole = made(&params());
        for end in 0..whole.len() {
            assert_eq!(CertificateFields::from_der(&whole[..end]), None, "{end}");
            let mut changed = whole.clone();
            for byte in [0, 0x30, 0x84, 0xff] {
                changed[end] = byte;
                let _ = (LeafFields::from_der(&changed), certificate_version(&changed));
            }
        }
    }
}
