//! TLS edges: names whose TLS connections go to a backend.

use crate::remote::edges::edge::edge_resource;
use crate::remote::edges::modules::*;
use crate::{Description, Metadata};

tls_modules!(edge_resource, [
    TlsEdge: " Names whose TLS connections go to a backend.";
    "edges.tls", "/edges/tls", [tls_edges]: " TLS edges: names whose TLS connections go to a backend.";
    prefix: "edgtls",
    hostports: " The names at the shared HTTPS port that the edge serves, `host:443`; `*.` may come first.";
    " Create a TLS edge.",
    " List the TLS edges, newest first.",
    " Fetch one TLS edge.",
    " Change a TLS edge; what is left out keeps its value.",
    " Delete a TLS edge.";
]);
