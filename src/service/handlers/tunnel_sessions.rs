//! Tunnel sessions: the agents that are connected.

use std::sync::Arc;

use super::{Context, Handler, OperationResult, on};
use crate::api::Operation;
use crate::api::id::prefix;
use crate::api::remote::Ref;
use crate::api::remote::tunnel_sessions::{Get, List, Restart, Stop, TunnelSession, Update};
use crate::service::Refusal;
use crate::service::agents::{AgentCommand, OnlineAgent};
use crate::service::code::{self, ErrorCode};
use crate::service::context::check_before;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(list), on(get), on(stop), on(restart), on(update)]
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    check_before(params.before_id.as_deref(), prefix::TUNNEL_SESSION)?;
    let online = service.shared.registry.sessions();
    let page =
        service.page_of_online(&List::INFO, &params.before_id, params.limit, online, |it| &it.id);
    let items = page.items.iter().map(|online| show(&service, online)).collect();
    Ok(page.with_items(items))
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    Ok(show(&service, &find(&service, &params.id)?))
}

async fn stop(service: Context, params: Stop) -> OperationResult<Stop> {
    command(&service, &params.id, AgentCommand::Stop, code::STOP_REFUSED).await
}

async fn restart(service: Context, params: Restart) -> OperationResult<Restart> {
    command(&service, &params.id, AgentCommand::Restart, code::RESTART_REFUSED).await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    command(&service, &params.id, AgentCommand::Update, code::UPDATE_REFUSED).await
}

fn find(service: &Context, id: &str) -> Result<Arc<OnlineAgent>, Refusal> {
    service.shared.registry.session(id).ok_or_else(Refusal::not_found)
}

async fn command(
    service: &Context,
    id: &str,
    command: AgentCommand,
    code: ErrorCode,
) -> Result<(), Refusal> {
    let sent = command.send(&*find(service, id)?).await;
    sent.map_err(|reason| Refusal::new(code, format!("the agent refuses: {reason}")))
}

fn show(service: &Context, online: &Arc<OnlineAgent>) -> TunnelSession {
    let base = &service.shared.base;
    let credential_id = &online.agent.credential_id;
    TunnelSession {
        id: online.id.clone(),
        uri: base.of(&online.id),
        agent_version: Some(online.agent_version.clone()),
        credential: Some(Ref { id: credential_id.clone(), uri: base.of(credential_id) }),
        ip: Some(online.ip.to_string()),
        metadata: Some(online.metadata.clone()),
        os: Some(online.os.clone()),
        region: Some("local".to_owned()),
        started_at: Some(online.started_at.clone()),
        transport: Some("tcp/tls".to_owned()),
    }
}
