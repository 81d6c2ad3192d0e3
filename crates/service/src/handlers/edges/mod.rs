//! Edges: what they hold is checked the same whether it comes inside them or on its own.

mod hostports;
pub(super) mod https;
mod modules;
mod routes;
mod tcp;
mod tls;

use super::{Context, Handler, OperationResult, backends, certificate_authorities, on};

pub(super) fn handlers() -> Vec<Handler> {
    let kinds = [https::handlers(), routes::handlers(), tcp::handlers(), tls::handlers()];
    kinds.into_iter().flatten().collect()
}
