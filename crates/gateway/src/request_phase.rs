//! The phases of a request.

/// A phase of a request in the gateway, in order. Functions, logs, metrics and documentation use these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum RequestPhase {
    /// The connection is accepted, and TLS agreed on.
    Accept,
    /// The head of the request is read.
    #[default]
    ReadHead,
    /// The virtual host of the host name is selected.
    SelectHost,
    /// The route of the path is found.
    RouteRequest,
    /// The modules of the route act on the request.
    RunModules,
    /// The request is sent to a target of the backend.
    SendUpstream,
    /// The response goes back to the visitor.
    RelayResponse,
    /// The request is counted and reported.
    Finish,
}

impl RequestPhase {
    /// All phases, in order.
    pub const ALL: [Self; 8] = [
        Self::Accept,
        Self::ReadHead,
        Self::SelectHost,
        Self::RouteRequest,
        Self::RunModules,
        Self::SendUpstream,
        Self::RelayResponse,
        Self::Finish,
    ];

    /// The name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::ReadHead => "read_head",
            Self::SelectHost => "select_host",
            Self::RouteRequest => "route_request",
            Self::RunModules => "run_modules",
            Self::SendUpstream => "send_upstream",
            Self::RelayResponse => "relay_response",
            Self::Finish => "finish",
        }
    }
}
