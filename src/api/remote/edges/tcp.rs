//! TCP edges: ports whose connections go to a backend.

use crate::api::macros::{resource, wire};
use crate::api::remote::edges::modules::*;
use crate::api::{Description, Metadata, Timestamp};

macro_rules! declare {
    ($({
        $(#[doc = $doc:literal])+ $name:ident : $Module:ident from $Change:ident; $($words:literal),+;
        $required:tt $optional:tt
    })+) => {
        wire! {
            /// Ports whose connections go to a backend.
            pub struct TcpEdge {
                /// Unique identifier, `edgtcp_` and 27 characters.
                pub id: String,
                /// The address of this edge.
                pub uri: String,
                /// When the edge was created.
                pub created_at: Option<Timestamp>,
                /// What the edge is for; at most 255 bytes.
                pub description: Option<Description>,
                /// Arbitrary text that the service stores and returns unchanged; at most 4096 bytes.
                pub metadata: Option<Metadata>,
                /// The hosts and ports that the edge serves, `host:port`.
                pub hostports: Option<Vec<String>>,
                $( $(#[doc = $doc])+ pub $name: Option<$Module>, )+
            }
        }

        resource! {
            /// TCP edges: ports whose connections go to a backend.
            "edges.tcp" {
                /// Create a TCP edge.
                POST "/edges/tcp" Create([
                    description: Description,
                    metadata: Metadata,
                    hostports: Vec<String>,
                    $( $name: $Change, )+
                ]) -> TcpEdge;
                /// List the TCP edges, newest first.
                GET "/edges/tcp" List([before_id: String, limit: i64]) -> [tcp_edges: TcpEdge];
                /// Fetch one TCP edge.
                GET "/edges/tcp/{id}" Get(id: String) -> TcpEdge;
                /// Change a TCP edge; what is left out keeps its value.
                PATCH "/edges/tcp/{id}" Update(id: String, [
                    description: Description,
                    metadata: Metadata,
                    hostports: Vec<String>,
                    $( $name: $Change, )+
                ]) -> TcpEdge;
                /// Delete a TCP edge.
                DELETE "/edges/tcp/{id}" Delete(id: String);
            }
        }
    };
}

tcp_modules!(declare);
