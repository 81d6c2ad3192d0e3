//! TLS that the service terminates for an endpoint.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::modules::member;
use super::{EndpointOptions, read_wire, write_wire};
use crate::Base64;

/// The certificate that the service terminates TLS with. Without one, it uses its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TunnelCertificate {
    /// The certificate chain, PEM.
    #[serde(skip_serializing_if = "is_empty")]
    pub cert: Base64,
    /// The private key, PEM.
    #[serde(skip_serializing_if = "is_empty")]
    pub key: Base64,
    /// The private key, encrypted for another service, which other agents can send.
    #[serde(skip_serializing_if = "is_empty")]
    pub sealed_key: Base64,
}

/// The authorities that sign the certificates of visitors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VisitorAuthorities {
    /// PEM certificates, joined.
    pub mutual_tls_ca: Base64,
}

/// The member of a bind with the certificate.
const TERMINATION: &str = "TLSTermination";

/// The member of a bind with the authorities, by protocol.
fn authorities_name(proto: &str) -> Option<&'static str> {
    match proto {
        "http" => Some("MutualTLSCA"),
        "tls" => Some("MutualTLSAtEdge"),
        _ => None,
    }
}

pub(super) fn encode(options: &EndpointOptions, proto: &str, members: &mut Map<String, Value>) {
    if let Some(name) = authorities_name(proto) {
        let authorities = options.mutual_tls.as_ref().map(write_wire);
        members.insert(name.to_owned(), authorities.unwrap_or_default());
    }
    if proto == "tls" {
        let termination = options.tls_termination.as_ref().map(write_wire);
        members.insert(TERMINATION.to_owned(), termination.unwrap_or_default());
    }
}

pub(super) fn decode(
    options: &mut EndpointOptions,
    proto: &str,
    members: &Map<String, Value>,
) -> Result<(), String> {
    let authorities = authorities_name(proto).and_then(|name| member(members, name)).cloned();
    options.mutual_tls = authorities.map(read_wire).transpose()?;
    let termination = member(members, TERMINATION).filter(|_| proto == "tls").cloned();
    options.tls_termination = termination.map(read_wire).transpose()?;
    Ok(())
}

fn is_empty(bytes: &Base64) -> bool {
    bytes.0.is_empty()
}
