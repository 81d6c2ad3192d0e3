//! Tunnel sessions: the agents that are connected.

use ginnel_api::Operation;
use ginnel_api::remote::tunnel_sessions::{Get, List, Restart, Stop, TunnelSession, Update};
use ginnel_api::remote::{REGION, Ref};

use crate::agents::{AgentCommand, session_row};
use crate::cluster::{self, CommandFailure, SessionDocument};
use crate::code::ErrorCode;
use crate::context::check_before;
use crate::handlers::prelude::*;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(list), on(get), on(stop), on(restart), on(update)]
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    check_before(params.before_id.as_deref(), prefix::TUNNEL_SESSION)?;
    let List { before_id, limit } = params;
    let page = match service.shared.cluster {
        Some(_) => service.page_of_rows::<SessionDocument>(&List::INFO, before_id, limit).await?,
        None => {
            let online = service.shared.registry.sessions();
            let page = service.page_of_online(&List::INFO, &before_id, limit, online, |it| &it.id);
            let rows = page.items.iter().map(|online| session_row(online)).collect();
            page.with_items(rows)
        }
    };
    let items = page.items.iter().map(|session| show_session(&service, session)).collect();
    Ok(page.with_items(items))
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    let found = match service.shared.cluster {
        Some(_) => find_row(&service, &params.id).await?,
        None => service.shared.registry.find_session(&params.id).map(|online| session_row(&online)),
    };
    Ok(show_session(&service, &found.ok_or_else(Refusal::not_found)?))
}

async fn find_row(service: &Context, id: &str) -> Result<Option<SessionDocument>> {
    let id = id.to_owned();
    service.read(move |view| Ok(cluster::find_row(view, &id)?)).await
}

async fn stop(service: Context, params: Stop) -> OperationResult<Stop> {
    send_command(&service, &params.id, AgentCommand::Stop, code::STOP_REFUSED).await
}

async fn restart(service: Context, params: Restart) -> OperationResult<Restart> {
    send_command(&service, &params.id, AgentCommand::Restart, code::RESTART_REFUSED).await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    send_command(&service, &params.id, AgentCommand::Update, code::UPDATE_REFUSED).await
}

/// Has an agent obey, through its node if that is another.
async fn send_command(
    service: &Context,
    id: &str,
    command: AgentCommand,
    code: ErrorCode,
) -> Result<()> {
    let refused = |reason: String| Refusal::new(code, format!("the agent refuses: {reason}"));
    if let Some(online) = service.shared.registry.find_session(id) {
        return command.send_to(&online).await.map_err(refused);
    }
    if service.shared.cluster.is_none() {
        return Err(Refusal::not_found());
    }
    let session = find_row(service, id).await?.ok_or_else(Refusal::not_found)?;
    let sent = match &service.shared.peers {
        Some(peers) => peers.send_command(&session.owner.node_id, id, command).await,
        None => Err(CommandFailure::Unreachable("this one has no peer_addr".to_owned())),
    };
    sent.map_err(|failure| match failure {
        CommandFailure::Gone => Refusal::not_found(),
        CommandFailure::Refused(reason) => refused(reason),
        CommandFailure::Unreachable(reason) => {
            let message = format!("the session is at another node: {reason}");
            Refusal::new(code::NODE_UNREACHABLE, message)
        }
    })
}

fn show_session(service: &Context, session: &SessionDocument) -> TunnelSession {
    let base = &service.shared.base;
    let credential_id = &session.credential_id;
    TunnelSession {
        id: session.id.clone(),
        uri: base.of(&session.id),
        agent_version: Some(session.agent_version.clone()),
        credential: Some(Ref { id: credential_id.clone(), uri: base.of(credential_id) }),
        ip: Some(session.ip.clone()),
        metadata: Some(session.metadata.clone()),
        os: Some(session.os.clone()),
        region: Some(REGION.to_owned()),
        started_at: Some(session.started_at.clone()),
        transport: Some("tcp/tls".to_owned()),
    }
}
