//! Routes of HTTPS edges: paths, what is done to their traffic, and where it goes.

use serde_json::{Map, Value};

use crate::macros::{resource, wire};
use crate::remote::edges::modules::*;
use crate::{Description, Metadata, Timestamp};

macro_rules! declare {
    ($({
        $(#[doc = $doc:literal])+ $name:ident : $Module:ident from $Change:ident; $($words:literal),+;
        $required:tt $optional:tt
    })+) => {
        wire! {
            /// Paths of an HTTPS edge, what is done to their traffic, and where it goes.
            pub struct HttpsEdgeRoute {
                /// Unique identifier, `edghtsrt_` and 27 characters.
                #[public(text)]
                pub id: String,
                /// The identifier of the edge.
                #[public(text)]
                pub edge_id: Option<String>,
                /// The address of this route.
                #[public(text)]
                pub uri: String,
                /// When the route was created.
                pub created_at: Option<Timestamp>,
                /// Human-readable description of the route; at most 255 bytes.
                #[public(text)]
                pub description: Option<Description>,
                /// Arbitrary text that the service stores and returns unchanged; at most 4096 bytes.
                #[public(text)]
                pub metadata: Option<Metadata>,
                /// `exact_path` or `path_prefix`.
                #[public(text)]
                pub match_type: Option<String>,
                /// The path, or the beginning of the paths, that the route serves; starts with `/`.
                #[public(text)]
                pub r#match: Option<String>,
                $( $(#[doc = $doc])+ pub $name: Option<$Module>, )+
                /// Login by SAML; not offered by the embedded service.
                pub saml: Option<Map<String, Value>>,
            }
        }

        resource! {
            /// Routes of HTTPS edges: paths, what is done to their traffic, and where it goes.
            "edges.https.routes" {
                /// Add a route to an HTTPS edge.
                POST "/edges/https/{edge_id}/routes" Create(
                    edge_id: String,
                    match_type: String,
                    r#match: String,
                    [
                        description: Description,
                        metadata: Metadata,
                        $( $name: $Change, )+
                    ]
                ) -> HttpsEdgeRoute;
                /// Fetch one route; the routes of an edge are listed inside the edge.
                GET "/edges/https/{edge_id}/routes/{id}" Get(edge_id: String, id: String) -> HttpsEdgeRoute;
                /// Change a route; what is left out keeps its value.
                PATCH "/edges/https/{edge_id}/routes/{id}" Update(edge_id: String, id: String, [
                    match_type: String,
                    r#match: String,
                    description: Description,
                    metadata: Metadata,
                    $( $name: $Change, )+
                ]) -> HttpsEdgeRoute;
                /// Delete a route.
                DELETE "/edges/https/{edge_id}/routes/{id}" Delete(edge_id: String, id: String);
            }
        }
    };
}

route_modules!(declare);
