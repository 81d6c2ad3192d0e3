//! Public traffic, over real sockets to real upstreams.

mod http;
mod smuggling;
mod support;
mod tcp;
mod tls;
