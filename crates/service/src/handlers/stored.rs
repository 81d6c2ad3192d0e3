//! The handlers that are alike for all resources of the database, and the shared parts of the others.

use ginnel_api::{DeleteItem, GetItem, ListItems};
use ginnel_store::{Document, Transaction, View};

use super::{Context, Handler, on};
use crate::code::ErrorCode;
use crate::context::StoredResource;
use crate::{Refusal, Result};

/// The handler of the operation that lists resources.
pub(super) fn list<O: ListItems<Item: StoredResource>>() -> Handler {
    on(|service: Context, call: O| async move {
        O::Item::check_reader(&service.caller)?;
        let (before_id, limit) = call.into_window();
        service.resource_page::<O, O::Item>(before_id, limit).await
    })
}

/// The handler of the operation that returns a resource.
pub(super) fn get<O: GetItem<Output: StoredResource>>() -> Handler {
    on(|service: Context, call: O| async move {
        O::Output::check_reader(&service.caller)?;
        service.find_resource(call.into_id()).await
    })
}

/// The handler of the operation that deletes a resource.
pub(super) fn delete<O: DeleteItem<Item: StoredResource>>() -> Handler {
    on(|service: Context, call: O| async move {
        O::Item::check_writer(&service.caller)?;
        let (id, removal) = (call.into_id(), service.removal());
        service.write(move |change| O::Item::remove(change, &id, &removal)).await
    })
}

/// Stores a resource, and returns it.
pub(super) fn stored<D: Document>(change: &Transaction<'_>, resource: D) -> Result<D> {
    change.put_document(&resource)?;
    Ok(resource)
}

/// Rejects the removal of a resource that another one refers to in one of these roles.
pub(super) fn check_unused(
    view: &View<'_>,
    id: &str,
    roles: &[&str],
    noun: &str,
    code: ErrorCode,
) -> Result<()> {
    for role in roles {
        if let Some(user) = view.referrers(id, role)?.first() {
            return Err(Refusal::new(code, format!("the {noun} is in use by {user}")));
        }
    }
    Ok(())
}

/// Implements `StoredResource` for resources with one address.
macro_rules! resource {
    ($($Name:ident),+ $(,)?) => {$(
        impl $crate::context::StoredResource for $Name {
            fn locate(&mut self, base: &$crate::address::Base) {
                self.uri = base.of(&self.id);
            }
        }
    )+};
}

/// The handlers of a resource of this module of `ginnel_api::remote`, whose own are `create` and `update`.
macro_rules! usual_handlers {
    ($($module:ident)::+) => {
        pub(super) fn handlers() -> Vec<$crate::handlers::Handler> {
            use ginnel_api::remote::$($module)::+::{Delete, Get, List};

            use $crate::handlers::prelude::{delete, get, list, on};
            vec![on(create), list::<List>(), get::<Get>(), on(update), delete::<Delete>()]
        }
    };
}

/// A new resource with its identifier, its time, and the description and metadata of the call.
macro_rules! new_item {
    ($change:ident, $call:ident => $Name:ident { $($fields:tt)* }) => {
        $Name {
            id: $change.new_id(<$Name as ginnel_store::Document>::PREFIX)?,
            created_at: Some($change.now()),
            description: Some($call.description.unwrap_or_default()),
            metadata: Some($call.metadata.unwrap_or_default()),
            $($fields)*
            ..$Name::default()
        }
    };
}

/// The stored resource with those of these fields that the call has.
macro_rules! changed_item {
    ($change:ident, $call:ident => $Name:ident { $($field:ident),+ $(,)? }) => {{
        let mut item: $Name = $crate::context::find_or_refuse($change, &$call.id)?;
        $( item.$field = $call.$field.or(item.$field.take()); )+
        item
    }};
}

pub(super) use {changed_item, new_item, resource, usual_handlers};
