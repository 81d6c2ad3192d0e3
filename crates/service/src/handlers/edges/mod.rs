//! Edges: what they hold is checked the same whether it comes inside them or on its own.

mod edge;
mod hostports;
mod https;
mod modules;
mod routes;
mod tcp;
mod tls;

use super::{
    Context, Handler, OperationResult, backends, certificate_authorities, changed_item, delete,
    get, list, new_item, on,
};

pub(super) fn handlers() -> Vec<Handler> {
    let kinds = [https::handlers(), routes::handlers(), tcp::handlers(), tls::handlers()];
    kinds.into_iter().flatten().collect()
}
