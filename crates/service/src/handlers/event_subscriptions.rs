//! Event subscriptions: seen and changed by admins, because events tell about everybody.

use std::collections::BTreeSet;

use ginnel_api::id::has_prefix;
use ginnel_api::remote::Ref;
use ginnel_api::remote::event_sources::EventSource;
use ginnel_api::remote::event_subscriptions::{
    Create, EventSourceReplace, EventSubscription, Update,
};

use crate::accounts::Caller;
use crate::context::wrong_prefix;
use crate::events::{DESTINATION, EVENT_TYPE, bump_subscription_version};
use crate::handlers::prelude::*;

/// How many destinations one subscription names at most.
const MAX_DESTINATIONS: usize = 100;
/// How many subscriptions there may be: each change of a resource looks at those of its type.
const MAX_SUBSCRIPTIONS: usize = 500;

impl StoredResource for EventSubscription {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        for source in self.sources.iter_mut().flatten() {
            let name = source.r#type.as_deref().unwrap_or_default();
            source.uri = format!("{}/sources/{name}", self.uri);
        }
        for destination in self.destinations.iter_mut().flatten() {
            destination.uri = base.of(&destination.id);
        }
    }

    fn check_reader(caller: &Caller) -> Result<()> {
        check_admin(caller)
    }

    fn check_writer(caller: &Caller) -> Result<()> {
        check_admin(caller)
    }

    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        remove_or_refuse::<Self>(change, id)?;
        Ok(bump_subscription_version(change)?)
    }
}

usual_handlers! { event_subscriptions }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    check_admin(&service.caller)?;
    let sources = check_sources(&service, params.sources.unwrap_or_default())?;
    let destinations = check_destinations(params.destination_ids.unwrap_or_default())?;
    let create = service.write_resource(move |change| {
        check_count(change)?;
        let subscription = new_item!(change, params => EventSubscription {});
        store_subscription(change, subscription, Some(sources), Some(destinations))
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    check_admin(&service.caller)?;
    // Generated clients send empty lists for what their caller left out.
    let sources = params.sources.filter(|sources| !sources.is_empty());
    let sources = sources.map(|sources| check_sources(&service, sources)).transpose()?;
    let destinations = params.destination_ids.filter(|ids| !ids.is_empty());
    let destinations = destinations.map(check_destinations).transpose()?;
    let update = service.write_resource(move |change| {
        let subscription = changed_item!(
            change, params => EventSubscription { description, metadata }
        );
        store_subscription(change, subscription, sources, destinations)
    });
    update.await
}

/// Events tell about everybody, so not everybody may have them sent somewhere.
pub(super) fn check_admin(caller: &Caller) -> Result<()> {
    let action = "see and change event destinations and subscriptions";
    caller.check_admin(code::EVENTS_NEED_ADMIN, action)
}

/// The names of the types, each once.
fn check_sources(service: &Context, sources: Vec<EventSourceReplace>) -> Result<BTreeSet<String>> {
    let check = |(index, source): (usize, EventSourceReplace)| {
        let place = format!("sources[{index}].");
        check_source(service, &place, &source)?;
        Ok(source.r#type)
    };
    sources.into_iter().enumerate().map(check).collect()
}

/// Refuses a type of events that there is not, and to send less than all of it.
pub(super) fn check_source(
    service: &Context,
    place: &str,
    source: &EventSourceReplace,
) -> Result<()> {
    let invalid = |message: String| Err(Refusal::new(code::INVALID_VALUE, message));
    if source.filter.as_ref().is_some_and(|filter| !filter.is_empty()) {
        let all = "expressions are not offered: all events of a type are sent";
        return invalid(format!("{place}filter: {all}"));
    }
    if source.fields.as_ref().is_some_and(|fields| !fields.is_empty()) {
        return invalid(format!("{place}fields: a choice is not offered: all fields are sent"));
    }
    match service.shared.events.types().check_name(&source.r#type) {
        Ok(()) => Ok(()),
        Err(problem) => invalid(format!("{place}type: {problem}")),
    }
}

fn check_destinations(ids: Vec<String>) -> Result<BTreeSet<String>> {
    if ids.len() > MAX_DESTINATIONS {
        let count = ids.len();
        let message =
            format!("destination_ids: has {count} entries, the limit is {MAX_DESTINATIONS}");
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    let check = |(index, id): (usize, String)| match has_prefix(&id, prefix::EVENT_DESTINATION) {
        true => Ok(id),
        false => {
            let field = format!("destination_ids[{index}]");
            Err(wrong_prefix(&field, &id, prefix::EVENT_DESTINATION))
        }
    };
    ids.into_iter().enumerate().map(check).collect()
}

fn check_count(change: &Transaction<'_>) -> Result<()> {
    if change.document_page::<EventSubscription>(None, MAX_SUBSCRIPTIONS)?.len() < MAX_SUBSCRIPTIONS
    {
        return Ok(());
    }
    let message = format!("there are {MAX_SUBSCRIPTIONS} event subscriptions, which is the limit");
    Err(Refusal::new(code::INVALID_VALUE, message))
}

/// Stores a subscription, with new types and destinations if there are any.
pub(super) fn store_subscription(
    change: &Transaction<'_>,
    mut subscription: EventSubscription,
    types: Option<BTreeSet<String>>,
    destinations: Option<BTreeSet<String>>,
) -> Result<EventSubscription> {
    if let Some(types) = types {
        change.replace_references(
            &subscription.id,
            EVENT_TYPE,
            types.iter().map(String::as_str),
        )?;
        let source = |name| EventSource { r#type: Some(name), ..EventSource::default() };
        subscription.sources = Some(types.into_iter().map(source).collect());
    }
    if let Some(ids) = destinations {
        for id in &ids {
            if !change.exists(id)? {
                let message = format!("destination_ids: there is no event destination {id:?}");
                return Err(Refusal::new(code::INVALID_VALUE, message));
            }
        }
        change.replace_references(&subscription.id, DESTINATION, ids.iter().map(String::as_str))?;
        let reference = |id| Ref { id, ..Ref::default() };
        subscription.destinations = Some(ids.into_iter().map(reference).collect());
    }
    change.put_document(&subscription)?;
    bump_subscription_version(change)?;
    Ok(subscription)
}
