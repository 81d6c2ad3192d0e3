//! Reserved domains: host names that belong to their owner, with their certificates.

use super::Ref;
use crate::macros::{resource, wire};
use crate::{Description, Metadata, Timestamp};

wire! {
    /// A host name that only its owner's edges and agents may use.
    pub struct ReservedDomain {
        item { prefix: "rd", noun: "reserved domain", created: "When the domain was reserved.", description: "Human-readable description of the domain" }
        /// The host name; the first label may be `*` for all names below the rest.
        #[public(text)]
        pub domain: Option<String>,
        /// Stored and returned unchanged; a service of one's own has no regions.
        #[public(text)]
        pub region: Option<String>,
        /// Always null: the name's DNS records point at the service as its operator decides.
        #[public(text)]
        pub cname_target: Option<String>,
        /// The certificate that visitors are shown; null where the service uses its own.
        pub certificate: Option<Ref>,
        /// How the service obtains the certificate by itself; null where one was uploaded.
        pub certificate_management_policy: Option<CertificateManagementPolicy>,
        /// What becomes of that; null where the service obtains no certificate.
        pub certificate_management_status: Option<CertificateManagementStatus>,
        /// Always null: the service takes no challenges over DNS.
        #[public(text)]
        pub acme_challenge_cname_target: Option<String>,
        /// The user or bot user whose edges and agents may use the domain.
        #[public(text)]
        pub owner_id: Option<String>,
    }

    /// How the service obtains a certificate by itself.
    pub struct CertificateManagementPolicy {
        /// The authority: `acme`, or `letsencrypt`, for the directory that the service is set up with.
        #[public(text)]
        pub authority: Option<String>,
        /// The type of the private key: `ecdsa`.
        #[public(text)]
        pub private_key_type: Option<String>,
    }

    /// A region that the name of a domain resolves to, in services that have any.
    pub struct DomainRegion {
        /// The name of the region.
        pub value: Option<String>,
    }

    /// What becomes of a certificate that the service obtains by itself.
    pub struct CertificateManagementStatus {
        /// When the certificate is renewed; null while there is none.
        pub renews_at: Option<Timestamp>,
        /// What is under way or went wrong; null when there is nothing to do.
        pub provisioning_job: Option<ProvisioningJob>,
    }

    /// An attempt to obtain a certificate.
    pub struct ProvisioningJob {
        /// What kind of failure there was last; null before the first one.
        #[public(text)]
        pub error_code: Option<String>,
        /// What happened, for a person.
        #[public(text)]
        pub msg: Option<String>,
        /// When the attempts began.
        pub started_at: Option<Timestamp>,
        /// When the next attempt begins.
        pub retries_at: Option<Timestamp>,
    }
}

resource! {
    /// Reserved domains: host names that belong to their owner, with their certificates.
    "reserved_domains" {
        /// Reserve a domain; others' edges and agents can no longer use it.
        POST "/reserved_domains" Create(domain: String, [
            region: String,
            description: Description,
            metadata: Metadata,
            /// The TLS certificate to show to visitors of the domain.
            certificate_id: String,
            certificate_management_policy: CertificateManagementPolicy,
            /// Who may use the domain; the owner of the key if left out. Another needs an admin key.
            owner_id: String,
            /// Empty, because a service of one's own has no regions.
            resolves_to: Vec<DomainRegion>,
        ]) -> ReservedDomain;
        /// List the reserved domains, newest first.
        GET "/reserved_domains" List([before_id: String, limit: i64]) -> [reserved_domains: ReservedDomain];
        /// Fetch one reserved domain.
        GET "/reserved_domains/{id}" Get(id: String) -> ReservedDomain;
        /// Change a reserved domain; needs a key of its owner or an admin.
        PATCH "/reserved_domains/{id}" Update(id: String, [
            region: String,
            description: Description,
            metadata: Metadata,
            /// The TLS certificate to show to visitors of the domain; empty text for none.
            certificate_id: String,
            certificate_management_policy: CertificateManagementPolicy,
            /// Empty, because a service of one's own has no regions.
            resolves_to: Vec<DomainRegion>,
        ]) -> ReservedDomain;
        /// Release a domain that no edge uses. Needs a key of its owner or an admin.
        DELETE "/reserved_domains/{id}" Delete(id: String);
        /// Take off the certificate that was uploaded. Needs a key of its owner or an admin.
        ///
        /// Visitors are then shown a certificate of the service's own, or one that it obtains.
        DELETE "/reserved_domains/{id}/certificate" DeleteCertificate(id: String);
        /// Take off the policy that obtains a certificate; needs a key of its owner or an admin.
        ///
        /// Refused where the service obtains certificates for all its domains: upload one instead.
        DELETE "/reserved_domains/{id}/certificate_management_policy" DeletePolicy(id: String);
    }
}
