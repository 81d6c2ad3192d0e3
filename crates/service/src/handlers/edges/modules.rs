//! The modules of edges and routes: checked and stored in the same way, whether they come inside what
//! they belong to or on their own.

use std::any::Any;
use std::sync::Arc;

use ginnel_base::tasks::spawn_blocking;

use ginnel_api::remote::Ref;
use ginnel_api::remote::edges::modules::MutualTls;
use ginnel_gateway::modules::edge_module::{
    CheckedModule, EdgeModule, InvalidModule, ModuleChecker, ReferenceField,
};
use ginnel_policy::Scope;
use ginnel_policy::secrets::SecretName;

use super::certificate_authorities;
use crate::code::ErrorCode;
use crate::context::Context;
use crate::handlers::prelude::*;
use crate::vaults;

/// An edge or route, with places for modules.
pub(super) trait ModuleHolder: StoredResource {
    /// The identifiers in the paths of its modules.
    type Path: Clone + Send + 'static;

    /// What policies are checked for.
    const SCOPE: Scope;

    /// The one with these identifiers.
    fn find(view: &View<'_>, path: &Self::Path) -> Result<Self>;

    /// Whether it has its policy in both forms, of which only one can be.
    fn has_two_policies(&self) -> bool {
        false
    }

    /// Stores it, and what it refers to.
    fn store_with_links(&self, change: &Transaction<'_>) -> Result<()>;
}

/// Where a module stands in what it belongs to.
pub(super) type ModuleField<H, M> = fn(&mut H) -> &mut Option<M>;

/// Puts a module in its place.
type SetModule<H> = Arc<dyn Fn(&mut H) + Send + Sync>;

/// Modules that were checked, to be put in place of those that were there.
pub(super) struct CheckedModules<H> {
    set: Vec<SetModule<H>>,
    references: Vec<(ReferenceField, Vec<String>)>,
    /// The secrets that policies read, by their fields.
    secrets: Vec<(&'static str, Vec<SecretName>)>,
    compiled: Vec<Arc<dyn Any + Send + Sync>>,
}

impl<H> Clone for CheckedModules<H> {
    fn clone(&self) -> Self {
        let (set, references) = (self.set.clone(), self.references.clone());
        let (secrets, compiled) = (self.secrets.clone(), self.compiled.clone());
        Self { set, references, secrets, compiled }
    }
}

impl<H: ModuleHolder> CheckedModules<H> {
    /// Checks modules away from the threads that answer requests: it may take a while.
    pub(super) async fn check(
        service: &Context,
        check: impl FnOnce(&mut Self, &ModuleChecker) -> Result<(), InvalidModule> + Send + 'static,
    ) -> Result<Self> {
        let checker = ModuleChecker {
            policies: service.policy_cache(),
            scope: H::SCOPE,
            known_addresses: service.known_addresses(),
            applications: service.oauth_applications(),
        };
        let checked = spawn_blocking(move || {
            let mut modules =
                Self { set: vec![], references: vec![], secrets: vec![], compiled: vec![] };
            check(&mut modules, &checker).map(|()| modules)
        });
        match checked.await {
            Ok(checked) => Ok(checked?),
            Err(_) => Err(Refusal::new(code::UNEXPECTED, "unexpected failure")),
        }
    }

    /// Checks a module that a call may give.
    pub(super) fn add<M: EdgeModule>(
        &mut self,
        change: Option<M::Change>,
        checker: &ModuleChecker,
        field: ModuleField<H, M>,
    ) -> Result<(), InvalidModule> {
        let Some(change) = change else { return Ok(()) };
        let CheckedModule { module, references, secrets, compiled } = M::check(change, checker)?;
        self.references.extend(M::REFERENCE.map(|field| (field, references)));
        self.secrets.extend(M::REFERENCE.map(|field| (field.field, secrets)));
        self.compiled.extend(compiled);
        self.set.push(Arc::new(move |holder| *field(holder) = Some(module.clone())));
        Ok(())
    }

    /// What was compiled; whoever holds it until the change is live spares doing it again.
    pub(super) fn compiled(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
        self.compiled.clone()
    }

    /// Puts the modules in place, unless they refer to what does not exist.
    pub(super) fn apply_to(self, change: &Transaction<'_>, holder: &mut H) -> Result<()> {
        for (ReferenceField { field, noun, number }, ids) in &self.references {
            for id in ids {
                if !change.exists(id)? {
                    let message = format!("{field}: there is no {noun} {id:?}");
                    return Err(Refusal::new(ErrorCode::bad_request(*number), message));
                }
            }
        }
        for (field, names) in &self.secrets {
            vaults::link_secrets(change, holder.id(), field, names)?;
        }
        self.set.into_iter().for_each(|set| set(holder));
        if holder.has_two_policies() {
            let message = "traffic_policy: policy is there already, in its other form: delete one";
            return Err(Refusal::new(code::INVALID_VALUE, message));
        }
        Ok(())
    }
}

/// Notes which authorities vouch for the visitors of an edge.
pub(super) fn link_authorities(
    change: &Transaction<'_>,
    edge_id: &str,
    module: Option<&MutualTls>,
) -> Result<()> {
    let authorities = module.and_then(|it| it.certificate_authorities.as_ref());
    let ids = authorities.into_iter().flatten().map(|authority| authority.id.as_str());
    Ok(change.replace_references(edge_id, certificate_authorities::AUTHORITY, ids)?)
}

/// Fills in the addresses of what modules refer to.
pub(super) fn fill_uris<'m>(base: &Base, references: impl IntoIterator<Item = Vec<&'m mut Ref>>) {
    for reference in references.into_iter().flatten() {
        reference.uri = base.of(&reference.id);
    }
}

/// Replaces a module.
pub(super) async fn replace<H: ModuleHolder, M: EdgeModule>(
    service: Context,
    path: H::Path,
    module: M::Change,
    field: ModuleField<H, M>,
) -> Result<M> {
    let checked = CheckedModules::<H>::check(&service, move |modules, checker| {
        modules.add(Some(module), checker, field)
    });
    let modules = checked.await?;
    let _held = modules.compiled();
    let replace = service.write(move |change| {
        let mut holder = H::find(change, &path)?;
        modules.apply_to(change, &mut holder)?;
        holder.store_with_links(change)?;
        Ok(holder)
    });
    field(&mut service.with_addresses(replace.await?)).take().ok_or_else(Refusal::not_found)
}

/// Shows a module.
pub(super) async fn show<H: ModuleHolder, M>(
    service: Context,
    path: H::Path,
    field: ModuleField<H, M>,
) -> Result<M> {
    let holder = service.read(move |view| H::find(view, &path)).await?;
    field(&mut service.with_addresses(holder)).take().ok_or_else(Refusal::not_found)
}

/// Removes a module. Removing what is not there is no error (remote API sheet, section 3).
pub(super) async fn remove<H: ModuleHolder, M: EdgeModule>(
    service: Context,
    path: H::Path,
    field: ModuleField<H, M>,
) -> Result<()> {
    let remove = service.write(move |change| {
        let mut holder = H::find(change, &path)?;
        match field(&mut holder).take() {
            Some(_) => {
                if let Some(reference) = M::REFERENCE {
                    vaults::link_secrets(change, holder.id(), reference.field, &[])?;
                }
                holder.store_with_links(change)
            }
            None => Ok(()),
        }
    });
    remove.await
}

/// The handlers of a table of modules: replace, fetch and remove, for each.
macro_rules! module_handlers {
    (@one $Holder:ident, $operations:ident, ($($id:ident),+), $name:ident, $Change:ident) => {
        [
            on(|service: Context, call: $operations::$name::Replace| {
                let path = ($(call.$id.clone(),)+);
                let field: modules::ModuleField<$Holder, _> = |holder| &mut holder.$name;
                modules::replace::<$Holder, _>(service, path, $Change::from(call), field)
            }),
            on(|service: Context, call: $operations::$name::Get| {
                let field: modules::ModuleField<$Holder, _> = |holder| &mut holder.$name;
                modules::show::<$Holder, _>(service, ($(call.$id,)+), field)
            }),
            on(|service: Context, call: $operations::$name::Delete| {
                let field: modules::ModuleField<$Holder, _> = |holder| &mut holder.$name;
                modules::remove::<$Holder, _>(service, ($(call.$id,)+), field)
            }),
        ]
    };
    (
        [$Holder:ident, $operations:ident, $ids:tt]
        $({
            $(#[doc = $doc:literal])+ $name:ident : $Module:ident from $Change:ident;
            $($rest:tt)+
        })+
    ) => {
        [$( module_handlers!(@one $Holder, $operations, $ids, $name, $Change) ),+]
    };
}

/// Checks the modules in a call that creates or changes what they belong to.
macro_rules! check_modules {
    (
        [$call:ident, $modules:ident, $checker:ident]
        $({ $(#[doc = $doc:literal])+ $name:ident : $Module:ident from $($rest:tt)+ })+
    ) => {{
        $( $modules.add::<$Module>($call.$name, $checker, |holder| &mut holder.$name)?; )+
        Ok(())
    }};
}

/// Everything that the modules of a table refer to.
macro_rules! module_references {
    (
        [$holder:ident]
        $({ $(#[doc = $doc:literal])+ $name:ident : $Module:ident from $($rest:tt)+ })+
    ) => {
        [$( $holder.$name.as_mut().map(EdgeModule::references_mut) ),+].into_iter().flatten()
    };
}

pub(super) use {check_modules, module_handlers, module_references};
