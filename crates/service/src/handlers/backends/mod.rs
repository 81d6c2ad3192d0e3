//! Backends: they refer to one another, and nothing that is referred to can be deleted.

mod children;
mod failover;
mod http_response;
mod static_;
mod tunnel_group;
mod weighted;

use ginnel_store::Document;

use crate::handlers::prelude::*;

/// The role of a backend for the edges and routes that send traffic to it.
pub(super) const TARGET: &str = "backend";
/// The role of a backend for the backends that hold it.
const CHILD: &str = "child";

pub(super) fn handlers() -> Vec<Handler> {
    let kinds = [
        tunnel_group::handlers(),
        failover::handlers(),
        http_response::handlers(),
        weighted::handlers(),
        static_::handlers(),
    ];
    kinds.into_iter().flatten().collect()
}

/// Refuses an identifier in a body that no backend has.
pub(super) fn check_exists(view: &View<'_>, place: &str, id: &str) -> Result<()> {
    if view.exists(id)? {
        return Ok(());
    }
    Err(Refusal::new(code::BACKEND_UNKNOWN, format!("{place}: there is no backend {id:?}")))
}

/// Deletes a backend that nothing refers to.
fn delete_unused<D: Document>(change: &Transaction<'_>, id: &str) -> Result<()> {
    check_unused(change, id, &[CHILD, TARGET], "backend", code::BACKEND_IN_USE)?;
    remove_or_refuse::<D>(change, id)
}

/// Implements `StoredResource` for a backend with one address.
macro_rules! backend {
    ($Name:ident) => {
        impl $crate::context::StoredResource for $Name {
            fn locate(&mut self, base: &$crate::address::Base) {
                self.uri = base.of(&self.id);
            }

            fn remove(
                change: &ginnel_store::Transaction<'_>,
                id: &str,
                _: &$crate::context::RemovalContext,
            ) -> Result<(), $crate::Refusal> {
                super::delete_unused::<Self>(change, id)
            }
        }
    };
}

use backend;
