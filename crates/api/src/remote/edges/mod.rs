//! Edges: where public traffic arrives, and the modules that act on it.

mod edge;
pub mod https;
pub mod https_modules;
pub mod modules;
pub mod oauth;
pub mod route_modules;
pub mod routes;
pub mod tcp;
pub mod tcp_modules;
pub mod tls;
pub mod tls_modules;
