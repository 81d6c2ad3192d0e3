//! Routes: the modules and the backend of a path.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::HOST;
use http::{HeaderValue, Request, Response};

use crate::message::BoxFuture;
use crate::message::error_response::{self, ErrorResponse, Rejection};
use crate::message::events::RequestTrace;
use crate::message::forwarded_head;
use crate::message::request_body::RequestBody;
use crate::message::request_context::RequestContext;
use crate::message::response_body::ResponseBody;
use crate::message::upgrade::VisitorUpgrade;
use crate::message::visitor::{RouteRef, Visitor};
use crate::metrics::EdgeMetrics;
use crate::modules::module::{Destination, ModuleAnswer, Modules};
use crate::modules::websocket_tcp;
use crate::request_phase::RequestPhase;
use crate::routing::agent_return::AgentReturn;
use crate::routing::backend::{
    Backend, BackendCandidate, BackendCandidates, BackendKind, TargetDirectory,
};
use crate::upstream::forward::{ForwardOutcome, OutboundRequest, Upstream, send_upstream};
use crate::upstream::target::DialError;

/// The modules and the backend of a path.
pub struct Route {
    /// The identifier; empty for the endpoint of an agent.
    pub id: Arc<str>,
    /// The identifier of the edge; empty for the endpoint of an agent.
    pub edge_id: Arc<str>,
    /// The modules. `None` if the route has none.
    pub modules: Option<Modules>,
    /// The `Host` that the target gets.
    pub host_header: Option<HeaderValue>,
    /// The backend.
    pub backend: Arc<ArcSwap<Backend>>,
    /// The counters of the edge. `None` if metrics are off.
    pub metrics: Option<Arc<EdgeMetrics>>,
}

/// A route, as the end of its modules.
struct RouteDestination<'a> {
    route: &'a Route,
    targets: &'a TargetDirectory,
}

impl Destination for RouteDestination<'_> {
    fn owner_id(&self) -> Arc<str> {
        self.route.owner_id()
    }

    fn send_upstream<'s>(
        &'s self,
        context: &'s mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> BoxFuture<'s, ModuleAnswer> {
        Box::pin(self.route.send_upstream(self.targets, context, request))
    }

    fn convert<'s>(
        &'s self,
        context: &'s mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> BoxFuture<'s, Result<Response<ResponseBody>, ErrorResponse>> {
        Box::pin(self.route.convert_websocket(self.targets, context, request))
    }
}

impl Route {
    /// Leads to another node, which does the rest.
    pub fn to_node(node: Upstream) -> Self {
        let backend = Backend { id: "".into(), kind: BackendKind::Upstream(node) };
        Self {
            id: "".into(),
            edge_id: "".into(),
            modules: None,
            host_header: None,
            backend: Arc::new(ArcSwap::from_pointee(backend)),
            metrics: None,
        }
    }

    pub(super) fn has_logins(&self) -> bool {
        self.modules.as_ref().is_some_and(Modules::have_logins)
    }

    pub(super) fn reads_paths(&self) -> bool {
        self.modules.as_ref().is_some_and(Modules::read_paths)
    }

    /// Returns true if requests go to another node, which names the visitor to the target.
    pub fn leads_to_node(&self) -> bool {
        match &self.backend.load().kind {
            BackendKind::Upstream(upstream) => upstream.target.is_node(),
            _ => false,
        }
    }

    /// The identifier of the owner: an edge, a cloud endpoint, or the endpoint of an agent while that is online.
    pub fn owner_id(&self) -> Arc<str> {
        let owner = if self.edge_id.is_empty() { &self.id } else { &self.edge_id };
        if !owner.is_empty() {
            return owner.clone();
        }
        let backend = self.backend.load();
        let upstream = match &backend.kind {
            BackendKind::Upstream(upstream) => Some(upstream),
            BackendKind::Pool { first, .. } => first.as_ref(),
            _ => None,
        };
        upstream.and_then(|it| it.target.endpoint_id()).unwrap_or(owner).clone()
    }

    /// The identifiers that targets get.
    pub fn route_ref(&self) -> RouteRef {
        RouteRef { edge_id: self.edge_id.clone(), route_id: self.id.clone() }
    }

    /// Takes a request through the modules to the backend, and the response back.
    pub async fn run_modules(
        &self,
        targets: &TargetDirectory,
        context: &mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Rejection> {
        match &self.modules {
            Some(modules) => {
                let destination = RouteDestination { route: self, targets };
                modules.run(&destination, context, request).await
            }
            None => self.send_upstream(targets, context, request).await,
        }
    }

    /// Sends a request on, without what concerned only its visitor's connection.
    pub async fn send_upstream(
        &self,
        targets: &TargetDirectory,
        context: &mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Rejection> {
        context.trace.enter(RequestPhase::SendUpstream);
        let outbound = self.prepare_outbound(context, request)?;
        self.try_targets(targets, context, outbound).await
    }

    /// Returns a request as the backend gets it.
    fn prepare_outbound(
        &self,
        context: &RequestContext<'_>,
        mut request: Request<RequestBody>,
    ) -> Result<OutboundRequest, ErrorResponse> {
        let origin = (!self.leads_to_node()).then_some(context.origin);
        let upgrades = forwarded_head::prepare_request(&mut request, origin)?;
        if let Some(host) = &self.host_header {
            request.headers_mut().insert(HOST, host.clone());
        }
        let upgrade = request.extensions_mut().remove::<VisitorUpgrade>().filter(|_| upgrades);
        Ok(OutboundRequest { request, upgrade })
    }

    /// Sends a request to the first target that takes it.
    async fn try_targets(
        &self,
        targets: &TargetDirectory,
        context: &mut RequestContext<'_>,
        mut exchange: OutboundRequest,
    ) -> Result<Response<ResponseBody>, Rejection> {
        let is_pool = matches!(self.backend.load().kind, BackendKind::Pool { .. });
        let mut failures = TargetFailures { is_pool, lost: None, last: None };
        let mut agent_return = AgentReturn::new(&targets.waiting_places);
        loop {
            let mut candidates = BackendCandidates::for_backend(targets, self.backend.clone());
            while let Some(candidate) = candidates.next_candidate() {
                context.trace.update_record(|it| it.backend_id = candidates.from.clone());
                let has_more = candidates.has_more();
                exchange = match failures.try_target(context, candidate, exchange, has_more).await {
                    ControlFlow::Continue(exchange) => exchange,
                    ControlFlow::Break(served) => return served,
                };
            }
            if let Some(error) = failures.lost {
                return Err(error.into());
            }
            // Another session of the agent may take it, at another node: it is not waited for here.
            if context.may_move && context.hops == 0 && context.is_elsewhere() {
                return Err(Rejection::Elsewhere);
            }
            if !agent_return.wait(candidates.lost, failures.last.as_ref()).await {
                let error = candidates.exhausted_error(failures.last.as_ref());
                context.has_no_agent = context.hops == 0 && error == error_response::NO_ENDPOINT;
                return Err(error.into());
            }
            failures.last = None;
        }
    }

    /// Lets a visitor talk to the target in bytes, over a WebSocket.
    pub async fn convert_websocket(
        &self,
        targets: &TargetDirectory,
        context: &mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        context.trace.enter(RequestPhase::SendUpstream);
        let OutboundRequest { request, upgrade } = self.prepare_outbound(context, request)?;
        let response = websocket_tcp::handshake_response(request.headers())?;
        let visitor = upgrade.ok_or(error_response::NO_WEBSOCKET)?;
        let target = self
            .dial_backend(
                targets,
                context.visitor,
                context.services.timeouts().dial,
                &context.route_ref,
                context.trace,
            )
            .await;
        context
            .runtime
            .convert_websocket(visitor, target.map_err(|_| error_response::UNREACHABLE)?);
        Ok(response)
    }

    /// Opens a connection for bytes.
    ///
    /// # Errors
    /// If no backend takes it, with the reason of the last one.
    pub async fn dial_backend(
        &self,
        targets: &TargetDirectory,
        visitor: &Visitor,
        dial_timeout: Duration,
        route_ref: &RouteRef,
        trace: &mut RequestTrace,
    ) -> Result<crate::Io, Option<DialError>> {
        let mut agent_return = AgentReturn::new(&targets.waiting_places);
        loop {
            let (mut candidates, mut last) =
                (BackendCandidates::for_backend(targets, self.backend.clone()), None);
            while let Some(candidate) = candidates.next_candidate() {
                trace.update_record(|it| it.backend_id = candidates.from.clone());
                // A visitor who does not speak HTTP cannot read a fixed response.
                let BackendCandidate::Upstream(upstream) = candidate else { return Err(None) };
                match upstream.dial_target(visitor, route_ref, dial_timeout).await {
                    Ok(io) => return Ok(io),
                    Err(reason) => {
                        tracing::debug!(err = %reason, "cannot reach a backend");
                        last = Some(reason);
                    }
                }
            }
            if !agent_return.wait(candidates.lost, last.as_ref()).await {
                return Err(last);
            }
        }
    }
}

/// Why targets have not taken a request so far.
struct TargetFailures {
    /// If true, the targets share an address, and another one may take the request that one has ended with.
    is_pool: bool,
    /// The error of a target that has ended with the request.
    lost: Option<ErrorResponse>,
    /// Why the last target could not be reached.
    last: Option<DialError>,
}

impl TargetFailures {
    /// Sends a request to a target. Returns the request if another target may take it.
    async fn try_target(
        &mut self,
        context: &mut RequestContext<'_>,
        candidate: BackendCandidate,
        exchange: OutboundRequest,
        has_more: bool,
    ) -> ControlFlow<Result<Response<ResponseBody>, Rejection>, OutboundRequest> {
        let upstream = match candidate {
            BackendCandidate::Upstream(upstream) => upstream,
            BackendCandidate::Fixed(backend) => match &backend.kind {
                BackendKind::Fixed(fixed) => return ControlFlow::Break(Ok(fixed.to_response())),
                _ => return ControlFlow::Continue(exchange),
            },
        };
        let spare = if has_more { exchange.try_clone() } else { None };
        let (visitor, route_ref) = (context.visitor, &context.route_ref);
        let sending = send_upstream(&upstream, visitor, route_ref, exchange, context.runtime);
        match (sending.await, spare) {
            (ForwardOutcome::DialFailed(back, reason), _) => {
                tracing::debug!(err = %reason, "cannot reach a backend");
                self.last = Some(reason);
                ControlFlow::Continue(*back)
            }
            // The agent was there, but its local service was not.
            (ForwardOutcome::Unreachable(_), Some(spare)) => {
                self.last = Some(DialError::Unreachable(String::new()));
                ControlFlow::Continue(spare)
            }
            (ForwardOutcome::Unreachable(answer), None) => {
                ControlFlow::Break(unreachable(answer, context.services.code_prefix()))
            }
            // One may have ended meanwhile; what ends two is not sent to all.
            (ForwardOutcome::Lost(error), Some(spare)) if self.is_pool && self.lost.is_none() => {
                self.lost = Some(error);
                ControlFlow::Continue(spare)
            }
            (ForwardOutcome::Answered(response), _) => ControlFlow::Break(Ok(response)),
            (ForwardOutcome::Lost(error) | ForwardOutcome::Failed(error), _) => {
                ControlFlow::Break(Err(error.into()))
            }
        }
    }
}

/// The response where an agent cannot reach its local service, with the code of this service.
fn unreachable(
    answer: Option<Response<ResponseBody>>,
    prefix: &str,
) -> Result<Response<ResponseBody>, Rejection> {
    let mut answer = answer.ok_or(error_response::UNREACHABLE)?;
    error_response::set_error_code(
        answer.headers_mut(),
        error_response::UNREACHABLE.number,
        prefix,
    );
    Ok(answer)
}
