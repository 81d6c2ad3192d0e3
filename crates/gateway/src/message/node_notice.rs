//! What a node tells another one beside a response: an option of `Connection`, which goes no further, whatever
//! version a node has, and which neither visitors nor upstreams can say.

use http::HeaderMap;
use http::header::CONNECTION;

use ginnel_http1::list_elements;

/// What a node tells another one beside a response; in the response's extensions on its way through a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeNotice {
    /// The host has no agent at the node, whatever the response says.
    NoAgent,
    /// A visitor of its own would get no response: the connection would be closed.
    Closed,
}

impl NodeNotice {
    const ALL: [Self; 2] = [Self::NoAgent, Self::Closed];

    /// The option of `Connection` that says so.
    pub const fn connection_option(self) -> &'static str {
        match self {
            Self::NoAgent => "ginnel-no-agent",
            Self::Closed => "ginnel-closed",
        }
    }

    /// What the value of a `Connection` says.
    pub fn from_connection(connection: &[u8]) -> Option<Self> {
        let is_said = |notice: &Self| {
            list_elements(connection)
                .any(|it| it.eq_ignore_ascii_case(notice.connection_option().as_bytes()))
        };
        Self::ALL.into_iter().find(is_said)
    }

    /// What headers say that came from a node.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        headers.get_all(CONNECTION).iter().find_map(|value| Self::from_connection(value.as_bytes()))
    }
}
