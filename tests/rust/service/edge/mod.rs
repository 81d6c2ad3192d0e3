//! Public traffic, over real sockets to real upstreams.

mod client_certificates;
mod configured;
mod express;
mod framing;
mod http;
mod http2;
mod inside;
mod modules;
mod order;
mod policies;
mod slow;
mod smuggling;
mod support;
mod tcp;
mod tls;
mod upstream_http2;
