//! Reads the certificate of a visitor for rules. Who may show one is for the TLS library to say.

use std::net::IpAddr;

use chrono::DateTime;
use x509_parser::asn1_rs::{FromDer, Oid};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use ginnel_net::tls::certificate;
use ginnel_policy::certificate::{AlternativeNames, CertificateFacts, ExtensionFacts, NameFacts};

/// Attributes of names: object identifier, short name, and what the variable is called.
const ATTRIBUTES: [(&str, &str, &str); 9] = [
    ("2.5.4.3", "CN", "common_name"),
    ("2.5.4.5", "SERIALNUMBER", "serial_number"),
    ("2.5.4.6", "C", "country"),
    ("2.5.4.7", "L", "locality"),
    ("2.5.4.8", "ST", "province"),
    ("2.5.4.9", "STREET", "street_address"),
    ("2.5.4.10", "O", "organization"),
    ("2.5.4.11", "OU", "organizational_unit"),
    ("2.5.4.17", "POSTALCODE", "postal_code"),
];

/// Ways to sign; others are shown as numbers.
const ALGORITHMS: [(&str, &str); 8] = [
    ("1.2.840.113549.1.1.10", "RSA-PSS"),
    ("1.2.840.113549.1.1.11", "SHA256-RSA"),
    ("1.2.840.113549.1.1.12", "SHA384-RSA"),
    ("1.2.840.113549.1.1.13", "SHA512-RSA"),
    ("1.2.840.10045.4.3.2", "ECDSA-SHA256"),
    ("1.2.840.10045.4.3.3", "ECDSA-SHA384"),
    ("1.2.840.10045.4.3.4", "ECDSA-SHA512"),
    ("1.3.101.112", "Ed25519"),
];

/// What a certificate says; none where it cannot be read.
pub(super) fn read_certificate(der: &[u8]) -> Option<CertificateFacts> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let at = |seconds| DateTime::from_timestamp(seconds, 0);
    let (from, to) = (certificate.validity().not_before, certificate.validity().not_after);
    let extensions = certificate.extensions().iter().map(|extension| ExtensionFacts {
        id: extension.oid.to_id_string(),
        is_critical: extension.critical,
        value: extension.value.to_vec(),
    });
    Some(CertificateFacts {
        issuer: name_facts(certificate.issuer()),
        subject: name_facts(certificate.subject()),
        names: alternative_names(&certificate)?,
        serial_number: serial_number(certificate.raw_serial()),
        signature_algorithm: algorithm_name(&certificate.signature_algorithm.algorithm),
        validity: at(from.timestamp()).zip(at(to.timestamp())),
        extensions: extensions.collect(),
        pem: certificate::encode_pem(der),
    })
}

fn name_facts(name: &X509Name<'_>) -> NameFacts {
    let mut facts = NameFacts::default();
    let mut parts = Vec::new();
    for relative in name.iter_rdn() {
        let parts_of_one = relative.iter().map(|attribute| {
            let (short, text) = (short_name(attribute), attribute.as_str().unwrap_or_default());
            match ATTRIBUTES.iter().find(|(_, known, _)| *known == short) {
                Some((_, "CN", _)) => facts.common_name = text.to_owned(),
                Some((.., variable)) => facts.attributes.push((variable, text.to_owned())),
                None => {}
            }
            format!("{short}={}", escape_value(text))
        });
        parts.push(parts_of_one.collect::<Vec<_>>().join("+"));
    }
    // The last comes first (RFC 2253, section 2.1).
    parts.reverse();
    facts.text = parts.join(",");
    facts
}

fn short_name(attribute: &AttributeTypeAndValue<'_>) -> String {
    let oid = attribute.attr_type().to_id_string();
    let known = ATTRIBUTES.iter().find(|(known, ..)| *known == oid);
    known.map_or(oid, |(_, short, _)| (*short).to_owned())
}

/// A value with a backslash before what would end it (RFC 2253, section 2.4).
fn escape_value(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut escaped = String::new();
    for (at, letter) in text.chars().enumerate() {
        let is_edge = letter == ' ' && (at == 0 || at == last) || letter == '#' && at == 0;
        if is_edge || ",+\"\\<>;".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Option<AlternativeNames> {
    let mut names = AlternativeNames::default();
    let extension = certificate.subject_alternative_name().ok()?;
    for name in extension.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => names.email_addresses.push((*name).to_owned()),
            GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
            GeneralName::IPAddress(bytes) => names.ip_addresses.extend(address_text(bytes)),
            _ => {}
        }
    }
    Some(names)
}

fn address_text(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    address.ok().map(|address| address.to_string())
}

/// The number without the zeros before it.
fn serial_number(bytes: &[u8]) -> String {
    ginnel_base::hex(bytes).trim_start_matches('0').to_owned()
}

fn algorithm_name(oid: &Oid<'_>) -> String {
    let number = oid.to_id_string();
    let known = ALGORITHMS.iter().find(|(known, _)| *known == number);
    known.map_or(number, |(_, name)| (*name).to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn made() -> Vec<u8> {
        let mut params = CertificateParams::new(["a.test".to_owned(), "::1".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI("spiffe://a/b".try_into().unwrap()));
        params.subject_alt_names.push(SanType::Rfc822Name("a@a.test".try_into().unwrap()));
        params.serial_number = Some(vec![0, 10, 255].into());
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in [
            (DnType::CountryName, "GB"),
            (DnType::OrganizationName, "Tea, Milk & Söhne"),
            (DnType::CommonName, "#ada"),
        ] {
            params.distinguished_name.push(kind, value);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn names_and_numbers_are_those_of_the_certificate() {
        let read = read_certificate(&made()).unwrap();

        assert_eq!(read.subject.text, r"CN=\#ada,O=Tea\, Milk & Söhne,C=GB");
        assert_eq!(read.issuer, read.subject);
        assert_eq!(read.subject.common_name, "#ada");
        let attributes = [("country", "GB"), ("organization", "Tea, Milk & Söhne")];
        assert_eq!(read.subject.attributes, attributes.map(|(name, it)| (name, it.to_owned())));
        assert_eq!(
            (read.serial_number.as_str(), read.signature_algorithm.as_str()),
            ("aff", "ECDSA-SHA256")
        );
        assert_eq!(read.names.dns_names, ["a.test"]);
        assert_eq!(read.names.ip_addresses, ["::1"]);
        assert_eq!(read.names.uris, ["spiffe://a/b"]);
        assert_eq!(read.names.email_addresses, ["a@a.test"]);
        assert!(read.extensions.iter().any(|it| it.id == "2.5.29.17"));
        assert!(read.pem.ends_with("\n-----END CERTIFICATE-----"));
    }

    #[test]
    fn what_is_cut_is_no_panic() {
        let whole = made();

        assert!((0..whole.len()).all(|end| read_certificate(&whole[..end]).is_none()));
    }
}
