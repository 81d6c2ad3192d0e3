//! TLS certificates: what visitors of a domain are shown, uploaded or obtained by ACME.

use crate::macros::{resource, wire};
use crate::{Description, Metadata, Secret, Timestamp};

wire! {
    /// A certificate with a private key that the service keeps.
    pub struct TlsCertificate {
        item { prefix: "cert", noun: "certificate", created: "When the certificate was uploaded, or first obtained.", description: "Human-readable description of the certificate" }
        /// The certificate as PEM, followed by those that signed it.
        #[public(text)]
        pub certificate_pem: Option<String>,
        /// The common name of the subject.
        #[public(text)]
        pub subject_common_name: Option<String>,
        /// The names and addresses that the certificate is for.
        pub subject_alternative_names: Option<SubjectAlternativeNames>,
        /// When the service obtained the certificate by ACME; null for one that was uploaded.
        pub issued_at: Option<Timestamp>,
        /// When the certificate becomes valid.
        pub not_before: Option<Timestamp>,
        /// When the certificate expires.
        pub not_after: Option<Timestamp>,
        /// What the key may be used for, such as `digitalSignature`.
        #[public(text)]
        pub key_usages: Option<Vec<String>>,
        /// For which purposes the certificate may be used, such as `serverAuth`.
        #[public(text)]
        pub extended_key_usages: Option<Vec<String>>,
        /// The type of the private key: `ecdsa`, `ed25519` or `rsa`.
        #[public(text)]
        pub private_key_type: Option<String>,
        /// The common name of the authority that signed the certificate.
        #[public(text)]
        pub issuer_common_name: Option<String>,
        /// The serial number in hexadecimal digits.
        #[public(text)]
        pub serial_number: Option<String>,
        /// The organization of the subject.
        #[public(text)]
        pub subject_organization: Option<String>,
        /// The unit of the subject's organization.
        #[public(text)]
        pub subject_organizational_unit: Option<String>,
        /// The town of the subject.
        #[public(text)]
        pub subject_locality: Option<String>,
        /// The province or state of the subject.
        #[public(text)]
        pub subject_province: Option<String>,
        /// The country of the subject.
        #[public(text)]
        pub subject_country: Option<String>,
    }

    /// The names and addresses that a certificate is for.
    pub struct SubjectAlternativeNames {
        /// Host names; the first label may be `*`.
        #[public(text)]
        pub dns_names: Option<Vec<String>>,
        /// IP addresses.
        #[public(text)]
        pub ips: Option<Vec<String>>,
    }
}

resource! {
    /// TLS certificates: what visitors of a domain are shown, uploaded or obtained by ACME.
    "tls_certificates" {
        /// Upload a certificate with its private key, which no response returns.
        POST "/tls_certificates" Create(
            /// The certificate as PEM, followed by those that signed it.
            certificate_pem: String,
            /// The private key of the certificate as PEM.
            private_key_pem: Secret,
            [description: Description, metadata: Metadata]
        ) -> TlsCertificate;
        /// List the certificates, newest first.
        GET "/tls_certificates" List([before_id: String, limit: i64]) -> [tls_certificates: TlsCertificate];
        /// Fetch one certificate.
        GET "/tls_certificates/{id}" Get(id: String) -> TlsCertificate;
        /// Change what describes a certificate; what is left out keeps its value.
        PATCH "/tls_certificates/{id}" Update(id: String, [description: Description, metadata: Metadata]) -> TlsCertificate;
        /// Delete a certificate that no reserved domain uses; a name that needs one gets a new one.
        DELETE "/tls_certificates/{id}" Delete(id: String);
    }
}
