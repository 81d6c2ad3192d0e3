//! What nodes say to each other.
//!
//! A stream begins with its kind, four bytes, and a message: JSON, of which unknown members are ignored and
//! missing ones have a default, so that nodes of different versions understand each other. A node that
//! does not know a kind resets the stream.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use ginnel_api::Base64;
use ginnel_gateway::{RouteRef, Visitor, VisitorTls};
use ginnel_mux::Stream;
use ginnel_mux::protocol::rpc::RpcRequest;
use ginnel_mux::protocol::stream_kind::FIRST_BYTES;
use ginnel_net::tls;

use crate::agents::AgentCommand;

/// A longer message is refused.
const MAX_MESSAGE_BYTES: u32 = 64 << 10;
/// How long the certificate of a visitor may be that goes along in one.
const MAX_CERTIFICATE_BYTES: usize = 32 << 10;
/// What a visitor may speak.
const PROTOS: [&str; 4] = ["http", "https", "tcp", "tls"];
/// The versions of TLS that a visitor may have agreed on.
const TLS_VERSIONS: [&str; 2] = ["TLSv1_3", "TLSv1_2"];

/// The version from which on a node says whether it has the endpoint of a visitor's bytes, and ends TLS for
/// visitors of the shared port who are led to it.
pub(super) const ENDS_TLS: u32 = 2;

/// What a stream between nodes is for.
pub(super) mod kind {
    /// A node says which one it is.
    pub(in crate::cluster) const HELLO: u32 = 0x100;
    /// A visitor who speaks HTTP to a host of the other node's agents.
    pub(in crate::cluster) const VISITOR: u32 = 0x101;
    /// A visitor whose bytes go to an endpoint of the other node.
    pub(in crate::cluster) const BYTES: u32 = 0x102;
    /// A connection to a tunnel, for an edge.
    pub(in crate::cluster) const TUNNEL: u32 = 0x103;
    /// A command for the session of an agent.
    pub(in crate::cluster) const COMMAND: u32 = 0x104;
    /// What happens to the traffic of the other node.
    pub(in crate::cluster) const EVENTS: u32 = 0x105;
    /// A node asks whether its epoch is over.
    pub(in crate::cluster) const EPOCH: u32 = 0x106;
    /// A node says which of its tunnels have ended.
    pub(in crate::cluster) const ENDED: u32 = 0x107;
    /// A node asks for the end of a bind whose agent is gone.
    pub(in crate::cluster) const ABANDONED: u32 = 0x108;
}

/// A node says which one it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// The version of what it says to others; the lower of both is spoken.
    pub protocol_version: u32,
    pub node_id: String,
    pub epoch: u64,
    /// The identifier of the node that it takes the other one for.
    pub to: String,
}

/// What the other one says to that.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HelloAnswer {
    pub protocol_version: u32,
    pub node_id: String,
    pub epoch: u64,
    /// Why the two have nothing to say to each other; empty where they have.
    pub error: String,
}

impl RpcRequest for Hello {
    const KIND: u32 = kind::HELLO;
    type Answer = HelloAnswer;
}

/// A command for the session of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionCommand {
    pub session_id: String,
    pub command: AgentCommand,
}

/// How a command ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionCommandAnswer {
    /// True when the node does not have the session.
    pub is_gone: bool,
    /// Why the agent does not obey; empty where it does.
    pub refusal: String,
}

/// A node wants to know what happens to the traffic of the other.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Subscription {}

impl RpcRequest for SessionCommand {
    const KIND: u32 = kind::COMMAND;
    type Answer = SessionCommandAnswer;
}

/// What stands before a visitor's bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct VisitorHeader {
    peer: String,
    local: String,
    proto: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<TlsHeader>,
    passthrough: bool,
    /// Where the bytes go: an endpoint by its bind, or a tunnel.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// True when a [`DialStatus`] is to stand before the bytes that come back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub wants_status: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    edge_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    route_id: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct TlsHeader {
    version: String,
    cipher_suite: String,
    sni: String,
    alpn: String,
    resumed: bool,
    /// The certificate of the visitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<Base64>,
}

/// What became of a connection to a tunnel: one byte before those of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DialStatus {
    Connected = 0,
    Offline = 1,
    Busy = 2,
    Unreachable = 3,
    /// It is there, and the agent has so few left that it is not to wait for another request.
    Once = 4,
    /// The agent has reset the connection before it was open. Nodes that do not know it take it for `Unreachable`.
    Reset = 5,
}

impl DialStatus {
    /// What a byte says; what it should not say is taken for a tunnel that cannot be reached.
    pub(super) fn from_byte(byte: u8) -> Self {
        let all = [Self::Connected, Self::Offline, Self::Busy, Self::Once, Self::Reset];
        all.into_iter().find(|status| *status as u8 == byte).unwrap_or(Self::Unreachable)
    }
}

impl VisitorHeader {
    pub(super) fn new(visitor: &Visitor, id: &str, through: &RouteRef) -> Self {
        let tls = visitor.tls.as_deref().map(|tls| TlsHeader {
            version: tls.version.to_owned(),
            cipher_suite: tls.cipher_suite.to_owned(),
            sni: tls.sni.clone(),
            alpn: tls.alpn.clone(),
            resumed: tls.resumed,
            certificate: tls
                .client_certificate
                .as_deref()
                .filter(|der| der.len() <= MAX_CERTIFICATE_BYTES)
                .map(|der| Base64(Bytes::copy_from_slice(der))),
        });
        Self {
            peer: visitor.peer.to_string(),
            local: visitor.local.to_string(),
            proto: visitor.proto.to_owned(),
            tls,
            passthrough: visitor.passthrough,
            id: id.to_owned(),
            wants_status: false,
            edge_id: through.edge_id.to_string(),
            route_id: through.route_id.to_string(),
        }
    }

    /// The visitor, as if it had come here.
    ///
    /// # Errors
    /// When an address or the protocol is none.
    pub(super) fn to_visitor(&self) -> io::Result<Visitor> {
        let address = |text: &str| text.parse::<SocketAddr>().map_err(invalid_data);
        let proto =
            find_known(&PROTOS, &self.proto).ok_or_else(|| invalid_data("an unknown protocol"))?;
        Ok(Visitor {
            peer: address(&self.peer)?,
            local: address(&self.local)?,
            proto,
            tls: self.tls.as_ref().map(|tls| Arc::new(tls.to_visitor_tls())),
            passthrough: self.passthrough,
        })
    }

    /// What led the visitor here.
    pub(super) fn route_ref(&self) -> RouteRef {
        RouteRef { edge_id: self.edge_id.as_str().into(), route_id: self.route_id.as_str().into() }
    }
}

impl TlsHeader {
    fn to_visitor_tls(&self) -> VisitorTls {
        let provider = tls::crypto_provider();
        let mut suites = provider.cipher_suites.iter().filter_map(|it| it.suite().as_str());
        VisitorTls {
            version: find_known(&TLS_VERSIONS, &self.version).unwrap_or_default(),
            cipher_suite: suites.find(|name| *name == self.cipher_suite).unwrap_or_default(),
            sni: self.sni.clone(),
            alpn: self.alpn.clone(),
            resumed: self.resumed,
            client_certificate: self.certificate.as_ref().map(|der| Arc::from(&der.0[..])),
        }
    }
}

fn find_known(all: &[&'static str], text: &str) -> Option<&'static str> {
    all.iter().find(|known| **known == text).copied()
}

/// The first bytes of a stream: its kind, and the message in one frame with it.
pub(super) fn encode_first_frame(kind: u32, message: &impl Serialize) -> Bytes {
    // Plain members always make JSON.
    let message = serde_json::to_vec(message).unwrap_or_default();
    let mut first = BytesMut::with_capacity(8 + message.len());
    first.put_u32(kind);
    first.put_u32(message.len() as u32);
    first.put_slice(&message);
    first.freeze()
}

/// Reads the message of a stream, after its kind.
///
/// # Errors
/// When it is malformed or longer than 64 KiB, the stream ends before it is complete, or after five
/// seconds.
pub(super) async fn read_message<T: DeserializeOwned>(stream: &mut Stream) -> io::Result<T> {
    timeout(FIRST_BYTES, read_now(stream)).await?
}

async fn read_now<T: DeserializeOwned>(stream: &mut Stream) -> io::Result<T> {
    let length = stream.read_u32().await?;
    if length > MAX_MESSAGE_BYTES {
        return Err(invalid_data(format!("a message of {length} bytes")));
    }
    let mut message = vec![0; length as usize];
    stream.read_exact(&mut message).await?;
    serde_json::from_slice(&message).map_err(invalid_data)
}

fn invalid_data(problem: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_is_the_same_on_the_other_node() {
        let tls = VisitorTls {
            version: "TLSv1_3",
            cipher_suite: "TLS13_AES_128_GCM_SHA256",
            sni: "a.test".to_owned(),
            alpn: "h2".to_owned(),
            resumed: true,
            client_certificate: Some(Arc::from(&b"der"[..])),
        };
        let visitor = Visitor {
            peer: "[2001:db8::1]:4000".parse().unwrap(),
            local: "192.0.2.1:443".parse().unwrap(),
            proto: "https",
            tls: Some(Arc::new(tls)),
            passthrough: false,
        };
        let through = RouteRef { edge_id: "edghts_1".into(), route_id: "edghtsrt_1".into() };

        let text = serde_json::to_string(&VisitorHeader::new(&visitor, "tn_1", &through)).unwrap();
        let header: VisitorHeader = serde_json::from_str(&text).unwrap();

        assert_eq!(header.to_visitor().unwrap(), visitor);
        assert_eq!((header.id.as_str(), header.route_ref()), ("tn_1", through));
    }

    #[test]
    fn what_a_later_version_adds_is_ignored_and_what_it_leaves_out_has_a_default() {
        let hello: Hello = serde_json::from_str(r#"{"node_id": "node_1", "mood": 7}"#).unwrap();

        assert_eq!((hello.node_id.as_str(), hello.protocol_version), ("node_1", 0));
    }

    #[test]
    fn a_status_that_a_node_does_not_know_is_unreachable() {
        assert_eq!(DialStatus::from_byte(5), DialStatus::Reset);
        for byte in [3, 6, 255] {
            assert_eq!(DialStatus::from_byte(byte), DialStatus::Unreachable, "{byte}");
        }
    }

    #[test]
    fn who_is_no_visitor_is_refused() {
        for header in [
            r#"{"peer": "nowhere", "local": "192.0.2.1:1", "proto": "http"}"#,
            r#"{"peer": "192.0.2.1:1", "local": "192.0.2.1:1", "proto": "gopher"}"#,
            "{}",
        ] {
            let header: VisitorHeader = serde_json::from_str(header).unwrap();
            assert!(header.to_visitor().is_err(), "{header:?}");
        }
    }
}
