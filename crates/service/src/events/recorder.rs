//! Writes the events of a change with the change itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};

use ginnel_api::id::prefix;
use ginnel_store::{DocumentChange, EventRow, StoreError, StoreResult, Transaction};

use super::object::EventObject;
use super::payload::{ChangeKind, EventPayload, Principal};
use super::subscriptions::{KnownSubscriptions, Receivers};
use super::types::EventTypes;

/// Writes the events of a change with the change itself.
pub(crate) struct EventRecorder {
    /// By the prefix of identifiers.
    objects: HashMap<&'static str, EventObject>,
    types: EventTypes,
    subscriptions: KnownSubscriptions,
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
        let types = EventTypes::from_objects(&objects);
        let objects = objects.into_iter().map(|object| (object.kind, object)).collect();
        Arc::new(Self { objects, types, subscriptions: KnownSubscriptions::default() })
    }

    /// The types of events that there are.
    pub fn types(&self) -> &EventTypes {
        &self.types
    }

    /// Makes a change, and stores the events of all that it does, for those who subscribe to them. The
    /// principal is none where the service itself makes the change.
    ///
    /// # Errors
    /// With those of `work`, or when an event cannot be stored.
    pub fn change_and_record<T, E: From<StoreError>>(
        &self,
        change: &Transaction<'_>,
        principal: Option<&Principal>,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        // First, so that an engine fetches it with what the work reads: else it would cost a round trip.
        let prefetched = KnownSubscriptions::prefetch_version(change);
        let made = work(change)?;
        prefetched?;
        self.record_changes(change, principal)?;
        Ok(made)
    }

    /// Has subscriptions be read again before the next change.
    pub(super) fn forget_subscriptions(&self) {
        self.subscriptions.forget();
    }

    fn record_changes(
        &self,
        change: &Transaction<'_>,
        principal: Option<&Principal>,
    ) -> StoreResult<()> {
        let documents = change.document_changes();
        let changes: Vec<_> = documents.iter().filter_map(|it| self.describe_change(it)).collect();
        if changes.is_empty() {
            return Ok(());
        }
        let types: BTreeSet<_> = changes.iter().map(|it| it.event_type.as_str()).collect();
        let receivers = self.subscriptions.read_receivers(change, &types)?;
        change.for_each(&changes, |it| {
            let of_type = receivers.for_type(&it.event_type);
            of_type.map_or(Ok(()), |receivers| it.record_event(change, principal, &receivers))
        })
    }

    fn describe_change<'a>(&'a self, document: &'a DocumentChange) -> Option<ObjectChange<'a>> {
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

impl ObjectChange<'_> {
    fn record_event(
        &self,
        change: &Transaction<'_>,
        principal: Option<&Principal>,
        receivers: &Receivers,
    ) -> StoreResult<()> {
        let body = match self.document {
            DocumentChange::Removed { body, .. } => body.clone(),
            DocumentChange::Created(id) | DocumentChange::Updated(id) => {
                let Some(body) = change.document_body(self.object.kind, id)? else { return Ok(()) };
                body
            }
        };
        let object = self.shown_value(change, &body)?;
        let (event_id, now) = (change.new_id(prefix::EVENT)?, change.now());
        let payload = EventPayload {
            event_id: &event_id,
            event_type: &self.event_type,
            event_timestamp: &now.0,
            principal,
            object,
        };
        let body = serde_json::to_string(&payload)?;
        let at = i64::try_from(now.unix_seconds().unwrap_or(0)).unwrap_or(i64::MAX);
        change.put_event(&EventRow { id: event_id, at, body }, receivers)
    }

    /// The resource as the event shows it. What cannot be read must not be in the way of a change, which may
    /// be there to remove it.
    fn shown_value(&self, change: &Transaction<'_>, body: &str) -> StoreResult<Value> {
        let shown = self.object.shown_value(change, body);
        let Err(StoreError::Document(err)) = shown else { return shown };
        let id = self.document.id();
        tracing::error!(%err, id, "an event shows nothing of a resource, which cannot be read");
        Ok(json!({ "id": id }))
    }
}
