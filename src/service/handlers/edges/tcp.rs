//! TCP edges: they hold their modules themselves.

use super::modules::{self, check_references};
use super::{Context, Handler, Reply, backends, hostports, on};
use crate::api::id::prefix;
use crate::api::remote::edges::tcp::{Create, Delete, Get, List, TcpEdge, Update};
use crate::policy::Scope;
use crate::service::address::Base;
use crate::service::context::{Resource, found, remove};
use crate::service::store::{Document, Transaction};
use crate::service::{Refusal, policies};

/// What a request gives for an edge, checked; what it leaves out is none.
#[derive(Default)]
pub(super) struct Given {
    pub edge: TcpEdge,
    /// IP policies that the traffic policy names.
    pub named: Vec<String>,
}

impl Document for TcpEdge {
    const PREFIX: &'static str = prefix::TCP_EDGE;

    fn id(&self) -> &str {
        &self.id
    }
}

impl Resource for TcpEdge {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        modules::locate(base, self.backend.as_mut(), self.ip_restriction.as_mut());
    }
}

/// Gathers what a `Create` or `Update` gives: both have the same fields.
macro_rules! given {
    ($wanted:ident) => {{
        hostports::check($wanted.hostports.as_deref().unwrap_or_default())?;
        let policy = match $wanted.policy {
            Some(policy) => Some(policies::check(policy, Scope::TcpEdge).await?),
            None => None,
        };
        let (policy, named) = policy.unzip();
        let edge = TcpEdge {
            description: $wanted.description,
            metadata: $wanted.metadata,
            hostports: $wanted.hostports,
            backend: $wanted.backend.map(modules::backend).transpose()?,
            ip_restriction: $wanted.ip_restriction.map(modules::ip_restriction).transpose()?,
            policy,
            ..TcpEdge::default()
        };
        Given { edge, named: named.unwrap_or_default() }
    }};
}

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, wanted: Create) -> Reply<Create> {
    let given = given!(wanted);
    let publisher = service.shared.publisher.clone();
    let create = service.change(move |change| {
        let mut edge = TcpEdge {
            id: change.new_id(prefix::TCP_EDGE)?,
            created_at: Some(change.now()),
            description: Some("".into()),
            metadata: Some("".into()),
            ..TcpEdge::default()
        };
        apply(change, &mut edge, given)?;
        let hostports = edge.hostports.as_deref().unwrap_or_default();
        hostports::check_ports(&publisher, &edge.id, hostports)?;
        Ok(edge)
    });
    create.await
}

async fn list(service: Context, wanted: List) -> Reply<List> {
    service.page::<List, _>(wanted.before_id, wanted.limit)
}

async fn get(service: Context, wanted: Get) -> Reply<Get> {
    service.find(&wanted.id)
}

async fn update(service: Context, wanted: Update) -> Reply<Update> {
    let given = given!(wanted);
    let publisher = service.shared.publisher.clone();
    let update = service.change(move |change| {
        let mut edge: TcpEdge = found(change, &wanted.id)?;
        apply(change, &mut edge, given)?;
        let hostports = edge.hostports.as_deref().unwrap_or_default();
        hostports::check_ports(&publisher, &edge.id, hostports)?;
        Ok(edge)
    });
    update.await
}

async fn delete(service: Context, wanted: Delete) -> Reply<Delete> {
    service.write(move |change| remove::<TcpEdge>(change, &wanted.id)).await
}

/// Changes an edge as asked, and stores it.
pub(super) fn apply(
    change: &Transaction<'_>,
    edge: &mut TcpEdge,
    given: Given,
) -> Result<(), Refusal> {
    let Given { edge: given, named } = given;
    check_references(change, given.backend.as_ref(), given.ip_restriction.as_ref(), &named)?;
    if let Some(hostports) = given.hostports {
        hostports::claim(change, &edge.id, &hostports)?;
        edge.hostports = Some(hostports);
    }
    edge.description = given.description.or(edge.description.take());
    edge.metadata = given.metadata.or(edge.metadata.take());
    edge.backend = given.backend.or(edge.backend.take());
    edge.ip_restriction = given.ip_restriction.or(edge.ip_restriction.take());
    edge.policy = given.policy.or(edge.policy.take());
    keep(change, edge)
}

/// Stores an edge, and what it refers to.
pub(super) fn keep(change: &Transaction<'_>, edge: &TcpEdge) -> Result<(), Refusal> {
    let backend = edge.backend.as_ref().and_then(|module| module.backend.as_ref());
    change.link(&edge.id, backends::TARGET, backend.map(|backend| backend.id.as_str()))?;
    Ok(change.put(edge)?)
}
