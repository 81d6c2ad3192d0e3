//! TCP edges: ports whose connections go to a backend.

use crate::remote::edges::edge::edge_resource;
use crate::remote::edges::modules::*;
use crate::{Description, Metadata};

tcp_modules!(edge_resource, [
    TcpEdge: " Ports whose connections go to a backend.";
    "edges.tcp", "/edges/tcp", [tcp_edges]: " TCP edges: ports whose connections go to a backend.";
    prefix: "edgtcp",
    hostports: " The hosts and ports that the edge serves, `host:port`.";
    " Create a TCP edge.",
    " List the TCP edges, newest first.",
    " Fetch one TCP edge.",
    " Change a TCP edge; what is left out keeps its value.",
    " Delete a TCP edge.";
]);
