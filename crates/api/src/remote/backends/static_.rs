//! Static backends: one fixed address.

use ginnel_base::address::{AddressError, HostPort};

use crate::macros::{resource, wire};
use crate::{Description, Metadata, mask};

wire! {
    /// A backend at one fixed address.
    pub struct StaticBackend {
        item { prefix: "bkdsc", noun: "backend", created: "When the backend was created.", description: "Human-readable description of the backend" }
        /// Where to connect to, `host:port`.
        #[public(text)]
        pub address: Option<String>,
        /// TLS to the address.
        pub tls: Option<StaticBackendTls>,
    }

    /// TLS between the service and a static backend.
    pub struct StaticBackendTls {
        /// If true, the service speaks TLS to the address.
        pub enabled: Option<bool>,
        /// If true, the service verifies the certificate of the backend; true for new backends.
        pub verify: Option<bool>,
        /// The certificates to trust, in PEM: authorities, or the certificate of the backend. If
        /// empty, the service trusts the authorities of its system.
        #[public(text)]
        pub ca: Option<String>,
        /// The name in SNI, which the certificate must be for. If empty, the host of the address.
        #[public(text)]
        pub server_name: Option<String>,
    }
}

impl StaticBackendTls {
    /// Returns true if the service speaks TLS to the backend without verifying its certificate. Versions that could
    /// not verify certificates stored no `verify`.
    pub fn is_unverified(&self) -> bool {
        self.enabled == Some(true) && self.verify != Some(true)
    }
}

impl StaticBackend {
    /// The identifier with the address, as logs, the console and `ginnel doctor` name a backend.
    pub fn display_name(&self) -> String {
        format!("{} ({})", self.id, mask::url(self.address.as_deref().unwrap_or_default()))
    }

    /// Returns true if the service speaks TLS to the backend.
    pub fn has_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.enabled == Some(true))
    }

    /// Returns true if the service speaks TLS to the backend without verifying its certificate.
    pub fn is_unverified(&self) -> bool {
        self.tls.as_ref().is_some_and(StaticBackendTls::is_unverified)
    }

    /// Parses the address.
    ///
    /// # Errors
    /// If it is not an address. An earlier version may have stored it.
    pub fn host_port(&self) -> Result<HostPort, AddressError> {
        HostPort::parse(self.address.as_deref().unwrap_or_default())
    }

    /// Describes the address if it is refused.
    pub fn refused_address(&self) -> Option<String> {
        let shown = mask::url(self.address.as_deref().unwrap_or_default());
        self.host_port().err().map(|problem| format!("{shown:?} {problem}"))
    }
}

resource! {
    /// Static backends: one fixed address.
    "backends.static" {
        /// Create a static backend.
        POST "/backends/static" Create(address: String, [
            description: Description,
            metadata: Metadata,
            tls: StaticBackendTls,
        ]) -> StaticBackend;
        /// List the static backends, newest first.
        GET "/backends/static" List([before_id: String, limit: i64]) -> [backends: StaticBackend];
        /// Fetch one static backend.
        GET "/backends/static/{id}" Get(id: String) -> StaticBackend;
        /// Change a static backend; what is left out keeps its value.
        PATCH "/backends/static/{id}" Update(id: String, [
            description: Description,
            metadata: Metadata,
            address: String,
            tls: StaticBackendTls,
        ]) -> StaticBackend;
        /// Delete a static backend; refused while something refers to it.
        DELETE "/backends/static/{id}" Delete(id: String);
    }
}
