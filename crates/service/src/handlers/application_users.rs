//! Application users: made by logins, and deleted with their sessions.

use ginnel_api::remote::application_sessions::ApplicationSession;
use ginnel_api::remote::application_users::{ApplicationUser, Delete, Get, List};
use ginnel_store::Transaction;

use super::{Handler, delete, get, list};
use crate::Refusal;
use crate::address::Base;
use crate::context::{RemovalContext, StoredResource, remove_or_refuse};
use crate::logins::SESSIONS_OF_USER;

impl StoredResource for ApplicationUser {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
    }

    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<(), Refusal> {
        let sessions = change.referrers(id, SESSIONS_OF_USER)?;
        change
            .for_each(&sessions, |id| change.remove_document::<ApplicationSession>(id).map(drop))?;
        remove_or_refuse::<Self>(change, id)
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    vec![list::<List>(), get::<Get>(), delete::<Delete>()]
}
