//! Sessions and tunnels as rows of their node's epoch, and what other nodes keep of a tunnel.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use ginnel_api::Timestamp;
use ginnel_api::id::prefix;
use ginnel_gateway::UpstreamProtocol;
use ginnel_store::Document;

use crate::agents::{Labeled, public_host};

/// Whose row it is; it counts only while the node has this epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowOwner {
    pub node_id: String,
    pub epoch: u64,
}

/// The session of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionDocument {
    /// Unique identifier, `ts_` and 27 characters.
    pub id: String,
    #[serde(flatten)]
    pub owner: RowOwner,
    pub credential_id: String,
    /// The user or bot user that owns the credential.
    pub account_id: String,
    pub ip: String,
    pub os: String,
    pub agent_version: String,
    pub metadata: String,
    pub started_at: Timestamp,
}

impl Document for SessionDocument {
    const PREFIX: &'static str = prefix::TUNNEL_SESSION;

    fn id(&self) -> &str {
        &self.id
    }
}

/// What becomes of the TLS of visitors at a tunnel's own endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsHandling {
    /// There is none, or it ends as at any other name of the service.
    #[default]
    Usual,
    /// It ends at the service, with the certificate of the agent or one of the service's.
    Terminated,
    /// It ends at the service, which asks visitors for a certificate.
    Mutual,
    /// It goes to the agent as it is.
    PassedThrough,
    /// Something that a later version knows.
    #[serde(other)]
    Unknown,
}

/// A tunnel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TunnelDocument {
    /// Unique identifier, `tn_` and 27 characters.
    pub id: String,
    #[serde(flatten)]
    pub owner: RowOwner,
    /// What its agent names it by; the tunnels of one bind are one to visitors.
    pub bind_id: String,
    pub session_id: String,
    /// The digest of what its agent names to come back; empty where nobody has said it.
    pub client: String,
    /// The user or bot user whose agent offers it.
    pub account_id: String,
    pub metadata: String,
    /// What it is for; empty where nobody has said it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    pub forwards_to: String,
    pub started_at: Timestamp,
    /// True when HTTP requests are spoken with HTTP/2.
    pub http2: bool,
    /// Its own endpoint; none for a labeled tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// A tunnel's own endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointRow {
    /// Unique identifier, `ep_` and 27 characters.
    pub id: String,
    pub url: String,
    /// `http`, `https`, `tcp` or `tls`.
    pub proto: String,
    /// What no two binds of the cluster have.
    pub key: EndpointKey,
    pub tls: TlsHandling,
    /// The version of the PROXY protocol that the agent wants; 0 for none.
    pub proxy_proto: u8,
    /// The pool of those that share its address; none where no others may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

impl Document for TunnelDocument {
    const PREFIX: &'static str = prefix::TUNNEL;

    fn id(&self) -> &str {
        &self.id
    }
}

/// What visitors find an endpoint by, as text: a name on the shared ports, a name that only policies lead
/// to, or a port of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EndpointKey(String);

impl EndpointKey {
    /// A name, which may start with `*.`, on the shared port for HTTPS, 443, or HTTP, 80.
    pub fn http(host: &str, port: u16) -> Self {
        Self(format!("http {host}:{port}"))
    }

    /// A name for bytes inside the service.
    pub fn bytes(host: &str, port: u16) -> Self {
        Self(format!("bytes {host}:{port}"))
    }

    /// A port, which is one on all nodes: who balances them sends it to any.
    pub fn port(port: u16) -> Self {
        Self(format!("port {port}"))
    }

    /// The port, where it is one.
    pub fn own_port(&self) -> Option<u16> {
        self.0.strip_prefix("port ")?.parse().ok()
    }

    /// The name, where it is one on the shared port for HTTPS.
    pub fn https_host(&self) -> Option<&str> {
        self.0.strip_prefix("http ")?.strip_suffix(":443")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a bind has, and whose binds may have it as well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointClaim {
    pub key: EndpointKey,
    /// The pool of those that share it: its account, and what all of them have in common. None where no others
    /// may have it.
    pub pool: Option<String>,
}

impl From<EndpointKey> for EndpointClaim {
    fn from(key: EndpointKey) -> Self {
        Self { key, pool: None }
    }
}

/// The same, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRef<'a> {
    pub key: &'a EndpointKey,
    pub pool: Option<&'a str>,
}

impl<'a> From<&'a EndpointClaim> for ClaimRef<'a> {
    fn from(claim: &'a EndpointClaim) -> Self {
        Self { key: &claim.key, pool: claim.pool.as_deref() }
    }
}

impl<'a> From<&'a EndpointKey> for ClaimRef<'a> {
    fn from(key: &'a EndpointKey) -> Self {
        Self { key, pool: None }
    }
}

impl ClaimRef<'_> {
    /// What stands for the binds that share the endpoint.
    pub fn pool_id(self) -> Option<String> {
        self.pool.map(|pool| format!("pool {pool} {}", self.key))
    }
}

impl Display for EndpointKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a node keeps in memory of a tunnel of another.
#[derive(Debug, PartialEq, Eq)]
pub struct RemoteTunnel {
    /// Unique identifier, `tn_` and 27 characters.
    pub id: Box<str>,
    pub node_id: Box<str>,
    pub epoch: u64,
    /// The tunnels of one bind are one to visitors, on whichever nodes they are.
    pub bind_id: Box<str>,
    pub session_id: Box<str>,
    /// The user or bot user whose agent offers it.
    pub account_id: Box<str>,
    pub speaks: UpstreamProtocol,
    pub place: RemotePlace,
}

/// How a tunnel of another node is reached.
#[derive(Debug, PartialEq, Eq)]
pub enum RemotePlace {
    /// At an address of its own.
    Endpoint {
        url: Box<str>,
        key: EndpointKey,
        tls: TlsHandling,
        proxy_proto: u8,
        pool: Option<Box<str>>,
    },
    /// Through edges, by its labels.
    Labels(BTreeMap<String, String>),
}

impl RemoteTunnel {
    /// What other nodes keep of a row.
    pub fn from_row(row: TunnelDocument) -> Self {
        let place = match row.endpoint {
            Some(EndpointRow { url, key, tls, proxy_proto, pool, .. }) => {
                let pool = pool.map(Into::into);
                RemotePlace::Endpoint { url: url.into(), key, tls, proxy_proto, pool }
            }
            None => RemotePlace::Labels(row.labels.unwrap_or_default()),
        };
        Self {
            id: row.id.into(),
            node_id: row.owner.node_id.into(),
            epoch: row.owner.epoch,
            bind_id: row.bind_id.into(),
            session_id: row.session_id.into(),
            account_id: row.account_id.into(),
            speaks: if row.http2 { UpstreamProtocol::Http2 } else { UpstreamProtocol::Http1 },
            place,
        }
    }

    /// The host name that it has in public; none where it has labels, an address or a name that only
    /// policies lead to.
    pub fn host(&self) -> Option<&str> {
        let RemotePlace::Endpoint { url, .. } = &self.place else { return None };
        public_host(url)
    }

    /// Whether the TLS of its visitors ends at its node alone, at a name on the shared port.
    pub fn ends_tls(&self) -> bool {
        let RemotePlace::Endpoint { key, tls, .. } = &self.place else { return false };
        *tls == TlsHandling::Mutual && key.https_host().is_some()
    }

    /// The pool of those that share its endpoint; none where no others may.
    pub fn pool(&self) -> Option<&str> {
        match &self.place {
            RemotePlace::Endpoint { pool, .. } => pool.as_deref(),
            RemotePlace::Labels(_) => None,
        }
    }

    /// What visitors find its endpoint by; none for a labeled tunnel.
    pub fn key(&self) -> Option<&EndpointKey> {
        match &self.place {
            RemotePlace::Endpoint { key, .. } => Some(key),
            RemotePlace::Labels(_) => None,
        }
    }
}

impl Labeled for RemoteTunnel {
    fn id(&self) -> &str {
        &self.id
    }

    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        match &self.place {
            RemotePlace::Labels(labels) => Some(labels),
            RemotePlace::Endpoint { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_later_version_is_read_without_what_is_new() {
        let row = r#"{"id": "tn_1", "node_id": "node_1", "epoch": 7, "colour": "red",
            "endpoint": {"url": "https://a.test", "tls": "quantum", "key": "http a.test:443"}}"#;

        let row: TunnelDocument = serde_json::from_str(row).unwrap();

        assert_eq!((row.owner.node_id.as_str(), row.owner.epoch), ("node_1", 7));
        let endpoint = row.endpoint.clone().unwrap();
        assert_eq!(endpoint.key, EndpointKey::http("a.test", 443));
        assert_eq!(endpoint.tls, TlsHandling::Unknown);
        let tunnel = RemoteTunnel::from_row(TunnelDocument { endpoint: Some(endpoint), ..row });
        assert_eq!(tunnel.host(), Some("a.test"));
    }

    #[test]
    fn a_row_comes_back_as_it_was_stored() {
        let labels = BTreeMap::from([("app".to_owned(), "shop".to_owned())]);
        let owner = RowOwner { node_id: "node_1".to_owned(), epoch: 3 };
        let row = TunnelDocument { owner, labels: Some(labels), ..TunnelDocument::default() };

        let text = serde_json::to_string(&row).unwrap();

        assert_eq!(serde_json::from_str::<TunnelDocument>(&text).unwrap(), row);
    }
}
