//! Variables of expressions that are known before a request: `conn` and `endpoint`.

use std::sync::{Arc, OnceLock};

use chrono::{DateTime, Utc};

use ginnel_api::remote::REGION;
use ginnel_policy::{AddressLookup, EndpointFacts, TlsFacts, VisitorConnection};

use crate::message::client_certificate;
use crate::message::request_services::RequestServices;
use crate::message::visitor::Visitor;

/// The variables of a connection, made when the first rule reads them.
pub struct ConnectionAttributes {
    since: DateTime<Utc>,
    known: OnceLock<Arc<VisitorConnection>>,
}

impl ConnectionAttributes {
    /// Describes somebody else on the same connection.
    pub fn for_another_visitor(&self) -> Self {
        Self { since: self.since, known: OnceLock::new() }
    }

    /// Describes a connection that has come now.
    pub fn starting_now() -> Self {
        Self { since: Utc::now(), known: OnceLock::new() }
    }

    /// Returns the variables of the connection of this visitor.
    pub fn visitor_connection(
        &self,
        visitor: &Visitor,
        services: &RequestServices,
    ) -> &Arc<VisitorConnection> {
        let make = || connection_variables(visitor, self.since, services.address_lookup());
        self.known.get_or_init(make)
    }
}

/// Returns the variables of a connection.
pub fn connection_variables(
    visitor: &Visitor,
    since: DateTime<Utc>,
    lookup: AddressLookup,
) -> Arc<VisitorConnection> {
    let tls = visitor.tls.as_deref().map(|tls| TlsFacts {
        version: version_number(tls.version).to_owned(),
        cipher_suite: registered_name(tls.cipher_suite),
        sni: tls.sni.clone(),
        alpn: tls.alpn.clone(),
        resumed: tls.resumed,
        client: tls
            .client_certificate
            .as_deref()
            .and_then(client_certificate::read_certificate)
            .unwrap_or_default(),
    });
    Arc::new(VisitorConnection {
        client: visitor.peer,
        server: visitor.local,
        region: REGION.to_owned(),
        started: since,
        tls,
        lookup,
    })
}

/// The number of a version of TLS, which rules see, by the name that `rustls` has for it.
fn version_number(name: &str) -> &str {
    match name {
        "TLSv1_2" => "1.2",
        "TLSv1_3" => "1.3",
        other => other,
    }
}

/// The name of a cipher suite in the registry of IANA, by the name that `rustls` has for it.
fn registered_name(name: &str) -> String {
    name.replacen("TLS13_", "TLS_", 1)
}

/// Returns the variables of an endpoint.
pub fn endpoint_variables(
    id: Arc<str>,
    protocol: &'static str,
    host: &str,
    port: u16,
) -> Arc<EndpointFacts> {
    Arc::new(EndpointFacts {
        id,
        host: host.to_owned(),
        port,
        protocol: protocol.into(),
        ..EndpointFacts::default()
    })
}
