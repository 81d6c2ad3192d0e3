//! Tunnel sessions: there are none while no agent is connected.

use super::{Context, Handler, Reply, on};
use crate::api::Operation;
use crate::api::id::prefix;
use crate::api::remote::tunnel_sessions::{Get, List, Restart, Stop, TunnelSession, Update};
use crate::service::Refusal;
use crate::service::context::check_before;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(list), on(get), on(stop), on(restart), on(update)]
}

async fn list(service: Context, wanted: List) -> Reply<List> {
    check_before(wanted.before_id.as_deref(), prefix::TUNNEL_SESSION)?;
    Ok(service.page_of(&List::INFO, Vec::new(), |session: &TunnelSession| &session.id, None))
}

async fn get(_: Context, _: Get) -> Reply<Get> {
    Err(Refusal::not_found())
}

async fn stop(_: Context, _: Stop) -> Reply<Stop> {
    Err(Refusal::not_found())
}

async fn restart(_: Context, _: Restart) -> Reply<Restart> {
    Err(Refusal::not_found())
}

async fn update(_: Context, _: Update) -> Reply<Update> {
    Err(Refusal::not_found())
}
