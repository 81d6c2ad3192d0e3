//! Public traffic, over real sockets to real upstreams.

mod client_certificates;
pub mod configured;
mod fast_path;
mod framing;
mod http;
mod http2;
mod inside;
mod modules;
mod order;
mod phases;
mod policies;
mod proxied;
mod request_bodies;
mod slow;
mod smuggling;
pub mod support;
mod tcp;
mod tls;
mod tls_edges;
mod upstream_http2;
