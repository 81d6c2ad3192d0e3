//! Where a document is put, and when its rules run.

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
