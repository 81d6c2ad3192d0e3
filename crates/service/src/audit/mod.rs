//! The audit trail: every call of the management API that changes something, or was to.
//!
//! The event of a change is in the commit that holds the change, so there is never one without the
//! other. What is refused changes nothing, and its events wait in `pending` to be written together; so
//! do those of calls that change something outside of the database, such as the stop of an agent. Old
//! events are removed by `retention`.

mod call;
mod pending;
mod retention;
mod terms;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::Result;
use super::store::{self, Store, StoredEvent, Transaction};
pub(super) use call::AuditedCall;
use ginnel_api::id::{Ids, prefix};
use ginnel_api::remote::audit_events::AuditEvent;
use ginnel_api::{Origin, Timestamp};
use ginnel_base::logging::or_debug;
use ginnel_settings::settings;
use pending::{FLUSH_INTERVAL, Pending};
pub(super) use terms::{operation_term, principal_term, resource_term};

/// What an operation is called that the command `ginnel admin-key new` performs.
const NEW_ADMIN_KEY: &str = "admin_key.new";

settings! {
    /// How the audit trail is kept.
    #[derive(Debug, Clone)]
    pub struct AuditSettings {
    }

    /// The settings of the audit trail.
    rows {
        retention: Duration = Duration::from_secs(90 * 24 * 3600),
            "audit_retention", "DURATION",
            "Time for which events of the audit trail are kept",
            with_bounds(1000, u32::MAX as u64 * 1000), live();
    }
}

/// Writes what happened into the database.
pub(super) struct AuditTrail {
    ids: Ids,
    origin: Origin,
    code_prefix: String,
    pending: Pending,
    /// How long events are kept.
    retention: watch::Sender<Duration>,
}

impl AuditTrail {
    /// The trail of a database, which is written and pruned from now on.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub(super) async fn start(
        store: &Arc<Store>,
        settings: AuditSettings,
        origin: Origin,
        code_prefix: String,
    ) -> store::StoreResult<Arc<Self>> {
        let opened = store.clone();
        let opened = ginnel_base::tasks::spawn_blocking(move || {
            Self::open(&opened, settings, origin, code_prefix)
        })
        .await;
        let trail = Arc::new(opened.map_err(|_| store::StoreError::Panicked)??);
        trail.start_writing(store);
        retention::start_pruning(store, trail.retention.subscribe());
        Ok(trail)
    }

    /// Keeps events for this long from now on.
    pub(super) fn set_retention(&self, retention: Duration) {
        self.retention.send_replace(retention);
    }

    /// The trail of a database; blocks on the disk.
    pub(super) fn open(
        store: &Store,
        settings: AuditSettings,
        origin: Origin,
        code_prefix: String,
    ) -> store::StoreResult<Self> {
        let ids = Ids::from_origin(origin.clone());
        if let Some(newest) = store.read_blocking(|view| view.newest_event_id())? {
            ids.continue_after(&newest);
        }
        let (pending, retention) = (Pending::default(), watch::Sender::new(settings.retention));
        Ok(Self { ids, origin, code_prefix, pending, retention })
    }

    /// Stores the event of a call that is about to succeed, with the change that it makes.
    pub(super) fn record_success(
        &self,
        change: &Transaction<'_>,
        call: &AuditedCall,
    ) -> store::StoreResult<()> {
        let event = call.success_event(&change.changed_ids());
        call.set_recorded();
        self.append_event(change, event, self.origin.now())
    }

    /// Notes how a call ended, unless its event is in the database with what it changed.
    pub(super) fn record_result<T>(&self, call: &AuditedCall, result: &Result<T>) {
        let event = match result {
            Ok(_) if call.is_recorded() => return,
            Ok(_) => call.success_event(&[]),
            Err(refusal) => call.refusal_event(refusal, &self.code_prefix),
        };
        self.pending.push(event, self.origin.now());
    }

    /// Stores what the command did to a database.
    pub(super) fn record_admin_key(&self, change: &Transaction<'_>) -> store::StoreResult<()> {
        let event = AuditEvent {
            operation: Some(NEW_ADMIN_KEY.to_owned()),
            resource_ids: Some(change.changed_ids()),
            outcome: Some("success".to_owned()),
            ..AuditEvent::default()
        };
        self.append_event(change, event, self.origin.now())
    }

    /// Writes what waits, from time to time, for as long as the trail and the store are in use.
    fn start_writing(self: &Arc<Self>, store: &Arc<Store>) {
        let (trail, store) = (Arc::downgrade(self), Arc::downgrade(store));
        ginnel_base::tasks::spawn(async move {
            loop {
                tokio::time::sleep(FLUSH_INTERVAL).await;
                let (Some(trail), Some(store)) = (trail.upgrade(), store.upgrade()) else { return };
                trail.flush_pending(&store).await;
            }
        });
    }

    /// Writes what waits.
    pub(super) async fn flush_pending(self: &Arc<Self>, store: &Store) {
        let events = self.pending.take_events();
        if events.is_empty() {
            return;
        }
        let trail = self.clone();
        let written = store.write(move |change| -> store::StoreResult<()> {
            events.into_iter().try_for_each(|(event, at)| trail.append_event(change, event, at))
        });
        or_debug!(written.await, "events of refused calls are lost");
    }

    fn append_event(
        &self,
        change: &Transaction<'_>,
        mut event: AuditEvent,
        at: SystemTime,
    ) -> store::StoreResult<()> {
        event.id = self.ids.next(prefix::AUDIT_EVENT)?;
        event.created_at = Some(Timestamp::from_system_time(at));
        let body = serde_json::to_string(&event)?;
        let terms = terms::event_terms(&event);
        change.append_event(&StoredEvent { id: event.id, at: to_micros(at), body, terms })
    }
}

/// A time as the store orders events by.
pub(super) fn to_micros(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    i64::try_from(since).unwrap_or(i64::MAX)
}
