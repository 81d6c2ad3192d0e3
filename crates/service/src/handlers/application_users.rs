//! Application users: made by logins, and deleted with their sessions.

use ginnel_api::remote::application_sessions::ApplicationSession;
use ginnel_api::remote::application_users::{ApplicationUser, Delete, Get, List};

use super::{Context, Handler, OperationResult, on, resource};
use crate::context::remove;
use crate::logins::SESSIONS_OF_USER;

resource! { ApplicationUser }

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(list), on(get), on(delete)]
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    service.page::<List, _>(params.before_id, params.limit).await
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    service.find(params.id).await
}

async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    let delete = service.write(move |change| {
        let sessions = change.referrers(&params.id, SESSIONS_OF_USER)?;
        remove::<ApplicationUser>(change, &params.id)?;
        Ok(change.for_each(&sessions, |id| change.remove::<ApplicationSession>(id).map(drop))?)
    });
    delete.await
}
