//! Writes the events of a change with the change itself.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::object::EventObject;
use super::payload::{ChangeKind, EventPayload, Principal};
use super::routing::receivers;
use super::types::EventTypes;
use crate::api::id::prefix;
use crate::service::store::{DocumentChange, OutboxRow, StoreError, Transaction};

/// Destinations with the subscriptions because of which they get an event.
type Receivers = BTreeMap<String, Vec<String>>;

/// Writes the events of a change with the change itself.
pub(in crate::service) struct EventRecorder {
    /// By the prefix of identifiers.
    objects: HashMap<&'static str, EventObject>,
    types: EventTypes,
}

/// A change of a resource that somebody may want to know of.
struct ObjectChange<'a> {
    object: &'a EventObject,
    document: &'a DocumentChange,
    event_type: String,
}

impl EventRecorder {
    /// Tells of changes of these resources.
    pub fn new(objects: Vec<EventObject>) -> Arc<Self> {
        let types = EventTypes::of(&objects);
        let objects = objects.into_iter().map(|object| (object.kind, object)).collect();
        Arc::new(Self { objects, types })
    }

    /// The types of events that there are.
    pub fn types(&self) -> &EventTypes {
        &self.types
    }

    /// Stores the events of all that a change has made so far, for those who subscribe to them. The principal
    /// is none where the service itself makes the change.
    pub fn record(
        &self,
        change: &Transaction<'_>,
        principal: Option<&Principal>,
    ) -> Result<(), StoreError> {
        let documents = change.document_changes();
        let changes: Vec<_> = documents.iter().filter_map(|it| self.describe(it)).collect();
        let receivers = receivers_of(change, &changes)?;
        if receivers.values().all(Receivers::is_empty) {
            return Ok(());
        }
        change.for_each(&changes, |it| {
            let of_type = receivers.get(it.event_type.as_str()).filter(|them| !them.is_empty());
            of_type.map_or(Ok(()), |receivers| it.record(change, principal, receivers))
        })
    }

    fn describe<'a>(&'a self, document: &'a DocumentChange) -> Option<ObjectChange<'a>> {
        let (kind, _) = document.id().rsplit_once('_')?;
        let object = self.objects.get(kind)?;
        let event_type = object.event_type(match document {
            DocumentChange::Created(_) => ChangeKind::Created,
            DocumentChange::Updated(_) => ChangeKind::Updated,
            DocumentChange::Removed { .. } => ChangeKind::Deleted,
        });
        Some(ObjectChange { object, document, event_type })
    }
}

/// Who gets the types of events that changes are of.
fn receivers_of<'a>(
    change: &Transaction<'_>,
    changes: &'a [ObjectChange<'_>],
) -> Result<HashMap<&'a str, Receivers>, StoreError> {
    let mut types: Vec<_> = changes.iter().map(|it| it.event_type.as_str()).collect();
    types.sort_unstable();
    types.dedup();
    let all = RefCell::new(HashMap::new());
    change.for_each(&types, |event_type| {
        all.borrow_mut().insert(*event_type, receivers(change, event_type)?);
        Ok(())
    })?;
    Ok(all.into_inner())
}

impl ObjectChange<'_> {
    fn record(
        &self,
        change: &Transaction<'_>,
        principal: Option<&Principal>,
        receivers: &Receivers,
    ) -> Result<(), StoreError> {
        let object = match self.document {
            DocumentChange::Removed { body, .. } => self.object.shown(change, body)?,
            DocumentChange::Created(id) | DocumentChange::Updated(id) => {
                let Some(body) = change.body(self.object.kind, id)? else { return Ok(()) };
                self.object.shown(change, &body)?
            }
        };
        let (event_id, now) = (change.new_id(prefix::EVENT)?, change.now());
        let payload = EventPayload {
            event_id: &event_id,
            event_type: &self.event_type,
            event_timestamp: &now.0,
            principal,
            object,
        };
        let body = serde_json::to_string(&payload)?;
        let at = i64::try_from(now.unix().unwrap_or(0)).unwrap_or(i64::MAX);
        receivers.iter().try_for_each(|(destination_id, subscriptions)| {
            let (event_id, body) = (event_id.clone(), body.clone());
            let delivery = OutboxRow { event_id, at, subscriptions: subscriptions.clone(), body };
            change.put_delivery(destination_id, &delivery)
        })
    }
}
