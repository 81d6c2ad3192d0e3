//! The modules of an HTTPS edge: each can be replaced, read and deleted on its own.

/// Mutual TLS module: visitors must present a certificate.
pub mod mutual_tls {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::MutualTls;

    resource! {
        /// Mutual TLS module: visitors must present a certificate.
        "edges.https.mutual_tls" {
            /// Replace the mutual TLS module of an HTTPS edge.
            PUT "/edges/https/{id}/mutual_tls" Replace(
                id: String,
                /// The certificate authorities that verify visitors; one of them must have signed.
                certificate_authority_ids: Vec<String>,
                [
                    enabled: bool,
                ]
            ) -> MutualTls;
            /// Fetch the mutual TLS module of an HTTPS edge.
            GET "/edges/https/{id}/mutual_tls" Get(id: String) -> MutualTls;
            /// Remove the mutual TLS module from an HTTPS edge; everybody may connect then.
            DELETE "/edges/https/{id}/mutual_tls" Delete(id: String);
        }
    }
}

/// TLS termination module: which versions of TLS are accepted.
pub mod tls_termination {
    use crate::api::macros::resource;
    use crate::api::remote::edges::modules::TlsTermination;

    resource! {
        /// TLS termination module: which versions of TLS are accepted.
        "edges.https.tls_termination" {
            /// Replace the TLS termination module of an HTTPS edge.
            PUT "/edges/https/{id}/tls_termination" Replace(
                id: String,
                [
                    enabled: bool,
                    /// The oldest version of TLS that is accepted: `1.2`, the default, or `1.3`.
                    min_version: String,
                ]
            ) -> TlsTermination;
            /// Fetch the TLS termination module of an HTTPS edge.
            GET "/edges/https/{id}/tls_termination" Get(id: String) -> TlsTermination;
            /// Remove the TLS termination module from an HTTPS edge; TLS 1.2 and 1.3 are accepted then.
            DELETE "/edges/https/{id}/tls_termination" Delete(id: String);
        }
    }
}

/// Every module's resource.
pub const MODULES: &[crate::api::Resource] = &[mutual_tls::RESOURCE, tls_termination::RESOURCE];
