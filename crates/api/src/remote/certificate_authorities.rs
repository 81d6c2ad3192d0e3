//! Certificate authorities: they verify the visitors of edges with mutual TLS.

use crate::macros::{resource, wire};
use crate::{Description, Metadata, Timestamp};

wire! {
    /// A certificate authority that verifies visitors.
    pub struct CertificateAuthority {
        item { prefix: "ca", noun: "certificate authority", created: "When the certificate authority was created.", description: "Human-readable description of the authority" }
        /// The certificate as PEM; several may follow one another.
        #[public(text)]
        pub ca_pem: Option<String>,
        /// The common name of the certificate's subject; of the first one where there are several.
        #[public(text)]
        pub subject_common_name: Option<String>,
        /// When the certificate becomes valid.
        pub not_before: Option<Timestamp>,
        /// When the certificate expires.
        pub not_after: Option<Timestamp>,
        /// What the key may be used for, such as `keyCertSign`.
        #[public(text)]
        pub key_usages: Option<Vec<String>>,
        /// For which purposes the certificate may be used, such as `clientAuth`.
        #[public(text)]
        pub extended_key_usages: Option<Vec<String>>,
    }
}

resource! {
    /// Certificate authorities: they verify the visitors of edges with mutual TLS.
    "certificate_authorities" {
        /// Upload a certificate authority; its key stays with its owner.
        POST "/certificate_authorities" Create(
            /// The certificate as PEM; several may follow one another.
            ca_pem: String,
            [description: Description, metadata: Metadata]
        ) -> CertificateAuthority;
        /// List the certificate authorities, newest first.
        GET "/certificate_authorities" List([before_id: String, limit: i64]) -> [certificate_authorities: CertificateAuthority];
        /// Fetch one certificate authority.
        GET "/certificate_authorities/{id}" Get(id: String) -> CertificateAuthority;
        /// Change what describes a certificate authority; what is left out keeps its value.
        PATCH "/certificate_authorities/{id}" Update(id: String, [description: Description, metadata: Metadata]) -> CertificateAuthority;
        /// Delete a certificate authority that no edge uses.
        DELETE "/certificate_authorities/{id}" Delete(id: String);
    }
}
