//! Tunnels: there are none while no agent is connected.

use super::{Context, Handler, Reply, on};
use crate::api::Operation;
use crate::api::id::prefix;
use crate::api::remote::tunnels::{Get, List, Tunnel};
use crate::service::Refusal;
use crate::service::context::check_before;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(list), on(get)]
}

async fn list(service: Context, wanted: List) -> Reply<List> {
    check_before(wanted.before_id.as_deref(), prefix::TUNNEL)?;
    Ok(service.page_of(&List::INFO, Vec::new(), |tunnel: &Tunnel| &tunnel.id, None))
}

async fn get(_: Context, _: Get) -> Reply<Get> {
    Err(Refusal::not_found())
}
