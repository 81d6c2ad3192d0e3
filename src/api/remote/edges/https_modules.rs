//! The modules of an HTTPS edge: each can be replaced, read and deleted on its own.

/// Mutual TLS module: visitors must show a certificate.
pub mod mutual_tls {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::MutualTls;

    resource! {
        /// Mutual TLS module: visitors must show a certificate.
        "edges.https.mutual_tls" {
            /// Set the certificate authorities of an HTTPS edge as a whole.
            PUT "/edges/https/{id}/mutual_tls" Replace(
                id: String,
                /// The certificate authorities that vouch for visitors; one of them must.
                certificate_authority_ids: Vec<String>,
                [
                    enabled: bool,
                ]
            ) -> MutualTls;
            /// Fetch the certificate authorities of an HTTPS edge.
            GET "/edges/https/{id}/mutual_tls" Get(id: String) -> MutualTls;
            /// Remove the certificate authorities from an HTTPS edge; everybody may come then.
            DELETE "/edges/https/{id}/mutual_tls" Delete(id: String);
        }
    }
}

/// TLS termination module: which versions of TLS are spoken.
pub mod tls_termination {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::TlsTermination;

    resource! {
        /// TLS termination module: which versions of TLS are spoken.
        "edges.https.tls_termination" {
            /// Set how TLS is spoken at an HTTPS edge as a whole.
            PUT "/edges/https/{id}/tls_termination" Replace(
                id: String,
                [
                    enabled: bool,
                    /// The oldest version of TLS that is spoken: `1.2`, the default, or `1.3`.
                    min_version: String,
                ]
            ) -> TlsTermination;
            /// Fetch how TLS is spoken at an HTTPS edge.
            GET "/edges/https/{id}/tls_termination" Get(id: String) -> TlsTermination;
            /// Remove the module from an HTTPS edge; TLS 1.2 and 1.3 are spoken then.
            DELETE "/edges/https/{id}/tls_termination" Delete(id: String);
        }
    }
}

/// Every module's resource.
pub const MODULES: &[crate::api::Resource] = &[mutual_tls::RESOURCE, tls_termination::RESOURCE];
