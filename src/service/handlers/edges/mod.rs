//! Edges: what they hold is checked the same whether it comes inside them or on its own.

mod hostports;
mod https;
mod https_modules;
mod modules;
mod route_modules;
mod routes;
mod tcp;
mod tcp_modules;

use super::{Context, Handler, Reply, backends, certificate_authorities, on};

pub(super) fn handlers() -> Vec<Handler> {
    let kinds = [
        https::handlers(),
        https_modules::handlers(),
        routes::handlers(),
        route_modules::handlers(),
        tcp::handlers(),
        tcp_modules::handlers(),
    ];
    kinds.into_iter().flatten().collect()
}
