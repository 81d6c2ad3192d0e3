//! Application users: made by logins, and deleted with their sessions.

use ginnel_api::remote::application_sessions::ApplicationSession;
use ginnel_api::remote::application_users::{ApplicationUser, Delete, Get, List};

use crate::handlers::prelude::*;
use crate::logins::SESSIONS_OF_USER;

impl StoredResource for ApplicationUser {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
    }

    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        let sessions = change.referrers(id, SESSIONS_OF_USER)?;
        change
            .for_each(&sessions, |id| change.remove_document::<ApplicationSession>(id).map(drop))?;
        remove_or_refuse::<Self>(change, id)
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    vec![list::<List>(), get::<Get>(), delete::<Delete>()]
}
