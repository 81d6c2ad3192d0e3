//! The backend module: where the traffic of a route or edge goes.

use ginnel_api::id::{self, prefix};
use ginnel_api::remote::Ref;
use ginnel_api::remote::edges::modules::{BackendModule, BackendModuleChange};

use crate::modules::prelude::*;

/// Every kind of backend.
const BACKEND_PREFIXES: &[&str] = &[
    prefix::TUNNEL_GROUP,
    prefix::FAILOVER,
    prefix::HTTP_RESPONSE,
    prefix::WEIGHTED,
    prefix::STATIC,
];

/// The number of an identifier of another kind; several kinds are possible.
const WRONG_PREFIXES: u16 = 243;

impl BuildModule for BackendModule {}

impl EdgeModule for BackendModule {
    type Change = BackendModuleChange;

    const REFERENCE: Option<ReferenceField> =
        Some(ReferenceField { field: "backend_id", noun: "backend", number: 6501 });

    fn check(change: Self::Change, _: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let Some(id) = change.backend_id else {
            return Err(InvalidModule::from_message("backend_id: is required"));
        };
        check_backend_id("backend_id", &id)?;
        let backend = Some(Ref { id, ..Ref::default() });
        Ok(Self { enabled: change.enabled.or(Some(true)), backend }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }

    fn references_mut(&mut self) -> Vec<&mut Ref> {
        self.backend.iter_mut().collect()
    }
}

/// Refuses an identifier in a body that is not one of a backend.
pub fn check_backend_id(field: &str, id: &str) -> ModuleResult<()> {
    if BACKEND_PREFIXES.iter().any(|prefix| id::has_prefix(id, prefix)) {
        return Ok(());
    }
    let known: Vec<_> = BACKEND_PREFIXES.iter().map(|prefix| format!("{prefix}_")).collect();
    let known = known.join(", ");
    let message = format!("{field}: {id:?} is not the identifier of a backend ({known})");
    Err(InvalidModule::with_number(WRONG_PREFIXES, message))
}
