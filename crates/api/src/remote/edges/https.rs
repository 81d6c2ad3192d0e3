//! HTTPS edges: hosts whose traffic is controlled by routes.

use crate::remote::edges::edge::edge_resource;
use crate::remote::edges::modules::*;
use crate::remote::edges::routes::HttpsEdgeRoute;
use crate::{Description, Metadata};

https_modules!(edge_resource, [
    HttpsEdge: " Hosts whose traffic is controlled by routes.";
    "edges.https", "/edges/https", [https_edges]: " HTTPS edges: hosts whose traffic is controlled by routes.";
    prefix: "edghts",
    hostports: " The hosts and ports that the edge serves, `host:port`; a host may start with `*.`.";
    " Create an HTTPS edge; add routes to it afterwards.",
    " List the HTTPS edges, newest first.",
    " Fetch one HTTPS edge with its routes.",
    " Change an HTTPS edge; what is left out keeps its value.",
    " Delete an HTTPS edge and its routes.";
    /// The routes of the edge.
    pub routes: Option<Vec<HttpsEdgeRoute>>,
]);
