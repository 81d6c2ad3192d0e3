//! Sessions of visitors, stored where all nodes find them: a session is one for as long as it is stored.
//!
//! `stored` makes them of logins, and users of those who log in; `upkeep` notes when they were used, and
//! removes them when they are over. The gateway is notified of each that is changed, by whatever operation and
//! on whichever node, before the change is answered here, and within a second on other nodes.

mod stored;
mod upkeep;

use std::sync::{Arc, Weak};

pub(super) use stored::SESSIONS_OF_USER;
pub(super) use upkeep::flush_sessions;

use ginnel_api::id::{has_prefix, prefix};
use ginnel_gateway::Gateway;
use ginnel_gateway::login::records::{
    LoginAttemptId, LoginRecords, LoginRecordsError, NewLoginSession, RecordFuture,
};

use super::store::{Changes, Store, StoreError, StoreResult, Transaction};

/// Stores the sessions of a gateway from now on, and looks after them. Needs a tokio runtime.
pub(super) fn start_logins(store: &Arc<Store>, gateway: &Gateway) {
    let logins = Arc::downgrade(gateway.logins());
    store.watch_changes(move |changes| {
        let sessions = changes.filter_ids(|id| has_prefix(id, prefix::APPLICATION_SESSION));
        if let Some((logins, sessions)) = logins.upgrade().zip(sessions) {
            logins.forget_changed(match &sessions {
                Changes::Of(ids) => Some(ids),
                Changes::All => None,
            });
        }
    });
    gateway.logins().set_records(Arc::new(StoredSessions(Arc::downgrade(store))));
    ginnel_base::tasks::spawn(upkeep::maintain_sessions(
        Arc::downgrade(store),
        Arc::downgrade(gateway.logins()),
    ));
}

/// The sessions of a database.
struct StoredSessions(Weak<Store>);

impl StoredSessions {
    fn upgrade_store(&self) -> Result<Arc<Store>, LoginRecordsError> {
        self.0.upgrade().ok_or_else(|| records_unavailable(StoreError::Closed))
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T> + Clone + Send + 'static,
    ) -> Result<T, LoginRecordsError> {
        self.upgrade_store()?.write(work).await.map_err(records_unavailable)
    }
}

fn records_unavailable(error: StoreError) -> LoginRecordsError {
    LoginRecordsError(error.to_string())
}

impl LoginRecords for StoredSessions {
    fn has_ended<'a>(&'a self, attempt: &'a LoginAttemptId) -> RecordFuture<'a, bool> {
        let attempt = attempt.clone();
        Box::pin(async move {
            let read =
                self.upgrade_store()?.read(move |view| stored::has_ended(view, &attempt)).await;
            read.map_err(records_unavailable)
        })
    }

    fn create_session(&self, session: NewLoginSession) -> RecordFuture<'_, Option<String>> {
        let session = Arc::new(session);
        Box::pin(self.write(move |change| stored::create_session(change, &session)))
    }

    fn last_active<'a>(&'a self, session_id: &'a str) -> RecordFuture<'a, Option<i64>> {
        let id = session_id.to_owned();
        Box::pin(async move {
            let read = self.upgrade_store()?.read(move |view| stored::last_active(view, &id)).await;
            read.map_err(records_unavailable)
        })
    }

    fn remove_session<'a>(&'a self, session_id: &'a str) -> RecordFuture<'a, ()> {
        let id = session_id.to_owned();
        Box::pin(self.write(move |change| stored::remove_session(change, &id)))
    }

    fn missed_changes(&self) -> Option<u64> {
        self.0.upgrade().and_then(|store| store.doubt_count())
    }
}
