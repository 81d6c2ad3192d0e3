//! Where a document is put, and when its rules run.

use std::str::FromStr;

use serde_json::Value;

use super::fields::find_field;

/// What a document is put on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A route of an HTTPS edge.
    HttpsRoute,
    /// A tunnel that carries HTTP.
    HttpTunnel,
    /// A TCP edge.
    TcpEdge,
    /// A tunnel that carries TCP or TLS.
    TcpTunnel,
}

impl Scope {
    /// Whether the traffic is HTTP, and not bytes alone.
    pub fn is_http(self) -> bool {
        matches!(self, Self::HttpsRoute | Self::HttpTunnel)
    }

    /// Whether the traffic comes from an edge: edges have no `on_tcp_connect`.
    pub fn is_edge(self) -> bool {
        matches!(self, Self::HttpsRoute | Self::TcpEdge)
    }
}

/// What traffic speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP or HTTPS.
    Http,
    /// TCP, or TLS that does not end at the server.
    Tcp,
}

impl Protocol {
    /// What a document for this traffic is put on.
    ///
    /// Unless `edge` says so, its spelling tells: edges have `inbound` and `outbound`.
    pub fn document_scope(self, document: &Value, edge: Option<bool>) -> Scope {
        let fields = document.as_object();
        let has = |name: &str| fields.is_some_and(|fields| find_field(fields, name).is_some());
        match (self, edge.unwrap_or_else(|| has("inbound") || has("outbound"))) {
            (Self::Http, true) => Scope::HttpsRoute,
            (Self::Http, false) => Scope::HttpTunnel,
            (Self::Tcp, true) => Scope::TcpEdge,
            (Self::Tcp, false) => Scope::TcpTunnel,
        }
    }
}

impl FromStr for Protocol {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "http" | "https" => Ok(Self::Http),
            "tcp" | "tls" => Ok(Self::Tcp),
            _ => Err(()),
        }
    }
}

/// When a rule runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A TCP connection has arrived.
    Connect,
    /// The head of a request has arrived.
    Request,
    /// The head of a response is about to leave.
    Response,
    /// A TCP connection has closed.
    Close,
}

impl Phase {
    /// Whether there is an HTTP request to look at.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Request | Self::Response)
    }

    /// The name of the phase in a document; the close of a connection has only an old name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "on_tcp_connect",
            Self::Request => "on_http_request",
            Self::Response => "on_http_response",
            Self::Close => "outbound",
        }
    }
}
