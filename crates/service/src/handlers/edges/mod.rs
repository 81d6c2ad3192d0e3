//! Edges: what they hold is checked the same whether it comes inside them or on its own.

mod edge;
mod hostports;
mod https;
mod modules;
mod routes;
mod tcp;
mod tls;

use super::{backends, certificate_authorities};
use crate::handlers::prelude::*;

pub(super) fn handlers() -> Vec<Handler> {
    let kinds = [https::handlers(), routes::handlers(), tcp::handlers(), tls::handlers()];
    kinds.into_iter().flatten().collect()
}
