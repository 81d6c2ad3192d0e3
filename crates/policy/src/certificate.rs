//! What rules see of the certificate that a visitor has shown.

use chrono::{DateTime, Utc};

/// What the certificate of a visitor says; empty where the visitor has shown none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Who signed it.
    pub issuer: NameFacts,
    /// Whose it is.
    pub subject: NameFacts,
    /// Its other names.
    pub names: AlternativeNames,
    /// In hexadecimal digits.
    pub serial_number: String,
    /// How it is signed, such as `ECDSA-SHA256`.
    pub signature_algorithm: String,
    /// From when to when it is valid.
    pub validity: Option<(DateTime<Utc>, DateTime<Utc>)>,
    /// Its extensions, in their order.
    pub extensions: Vec<ExtensionFacts>,
    /// The certificate itself.
    pub pem: String,
}

/// A distinguished name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameFacts {
    /// The whole name in the syntax of RFC 2253.
    pub text: String,
    /// The last of its common names.
    pub common_name: String,
    /// Its other attributes, by the names of their variables.
    pub attributes: Vec<(&'static str, String)>,
}

/// The alternative names of a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    /// Host names.
    pub dns_names: Vec<String>,
    /// Addresses of mail.
    pub email_addresses: Vec<String>,
    /// Addresses of machines.
    pub ip_addresses: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
}

/// An extension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtensionFacts {
    /// Its object identifier, in numbers.
    pub id: String,
    /// Whether whoever does not know it must refuse the certificate.
    pub is_critical: bool,
    /// What it holds.
    pub value: Vec<u8>,
}

impl AlternativeNames {
    /// All of them in one line.
    pub(super) fn to_text(&self) -> String {
        let kinds = [
            ("DNS", &self.dns_names),
            ("email", &self.email_addresses),
            ("IP Address", &self.ip_addresses),
            ("URI", &self.uris),
        ];
        let all = kinds
            .iter()
            .flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind}:{name}")));
        all.collect::<Vec<_>>().join(", ")
    }
}
