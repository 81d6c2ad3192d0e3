//! HTTPS edges: hosts whose traffic routes decide on.

use crate::api::macros::{resource, wire};
use crate::api::remote::edges::modules::*;
use crate::api::remote::edges::routes::HttpsEdgeRoute;
use crate::api::{Description, Metadata, Timestamp};

macro_rules! declare {
    ($({
        $(#[doc = $doc:literal])+ $name:ident : $Module:ident from $Change:ident; $($words:literal),+;
        $required:tt $optional:tt
    })+) => {
        wire! {
            /// Hosts whose traffic routes decide on.
            pub struct HttpsEdge {
                /// Unique identifier, `edghts_` and 27 characters.
                pub id: String,
                /// The address of this edge.
                pub uri: String,
                /// When the edge was created.
                pub created_at: Option<Timestamp>,
                /// What the edge is for; at most 255 bytes.
                pub description: Option<Description>,
                /// Arbitrary text that the service stores and returns unchanged; at most 4096 bytes.
                pub metadata: Option<Metadata>,
                /// The hosts and ports that the edge serves, `host:port`; a host may start with `*.`.
                pub hostports: Option<Vec<String>>,
                $( $(#[doc = $doc])+ pub $name: Option<$Module>, )+
                /// The routes of the edge.
                pub routes: Option<Vec<HttpsEdgeRoute>>,
            }
        }

        resource! {
            /// HTTPS edges: hosts whose traffic routes decide on.
            "edges.https" {
                /// Create an HTTPS edge; add routes to it afterwards.
                POST "/edges/https" Create([
                    description: Description,
                    metadata: Metadata,
                    hostports: Vec<String>,
                    $( $name: $Change, )+
                ]) -> HttpsEdge;
                /// List the HTTPS edges, newest first.
                GET "/edges/https" List([before_id: String, limit: i64]) -> [https_edges: HttpsEdge];
                /// Fetch one HTTPS edge with its routes.
                GET "/edges/https/{id}" Get(id: String) -> HttpsEdge;
                /// Change an HTTPS edge; what is left out keeps its value.
                PATCH "/edges/https/{id}" Update(id: String, [
                    description: Description,
                    metadata: Metadata,
                    hostports: Vec<String>,
                    $( $name: $Change, )+
                ]) -> HttpsEdge;
                /// Delete an HTTPS edge and its routes.
                DELETE "/edges/https/{id}" Delete(id: String);
            }
        }
    };
}

https_modules!(declare);
