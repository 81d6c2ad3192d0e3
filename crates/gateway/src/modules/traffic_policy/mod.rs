//! Traffic policies at work: the rules are pure, and here is the world that they ask.

mod buffered_body;
mod client_certificate;
mod connection;
mod execution;
mod internal_fetch;
pub mod module;
mod rules;

use std::sync::Arc;

use chrono::{DateTime, Utc};

pub use connection::ConnectionExecution;
pub use execution::PolicyExecution;
pub use rules::Rules;

use ginnel_api::remote::REGION;
use ginnel_policy::{AddressLookup, EndpointFacts, Problem, TlsFacts, VisitorConnection};

use crate::upstream::target::Visitor;

/// Problems in one line.
pub fn describe_problems(problems: &[Problem]) -> String {
    problems.iter().map(|one| one.to_string().replace('\n', " ")).collect::<Vec<_>>().join("; ")
}

/// A connection as rules see it.
pub fn connection(
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
            .and_then(client_certificate::read)
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

/// An endpoint as rules see it.
pub fn endpoint(id: Arc<str>, protocol: &'static str, host: &str, port: u16) -> Arc<EndpointFacts> {
    Arc::new(EndpointFacts {
        id,
        host: host.to_owned(),
        port,
        protocol: protocol.into(),
        ..EndpointFacts::default()
    })
}
