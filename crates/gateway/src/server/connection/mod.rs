//! Requests of one visitor, from their arrival to their answers.

mod fast_path_target;
mod nodes;

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use tracing::Instrument;

use ginnel_api::id::prefix;
use ginnel_base::logging::or_debug;
use ginnel_http1::HeadLimits;
use ginnel_http1::{strip_identity, strip_named};
use ginnel_net::ShutdownSignal;
use ginnel_policy::Phase;

use crate::login;
use crate::message::connection_activity::ConnectionActivity;
use crate::message::error_response::{self, ErrorResponse, Rejection, RejectionMark};
use crate::message::events::RequestTrace;
use crate::message::forwarded::{self, ForwardedVisitor, ReportedScheme, VisitorOrigin};
use crate::message::forwarded_head;
use crate::message::http2_framing;
use crate::message::node_notice::NodeNotice;
use crate::message::request_body::RequestBody;
use crate::message::request_context::RequestContext;
use crate::message::response_body::ResponseBody;
use crate::message::upgrade;
use crate::message::variables::ConnectionAttributes;
use crate::message::visitor::{Visitor, VisitorTls};
use crate::metrics::RequestRecord;
use crate::modules::module::{ModuleKind, Modules};
use crate::modules::traffic_policy::ConnectionExecution;
use crate::request_phase::RequestPhase;
use crate::routing::hosts::HostSelection;
use crate::routing::internal::is_internal;
use crate::routing::route::Route;
use crate::routing::virtual_host::{RouteMatch, VirtualHost};
use crate::server::fast_path::RequestRouting;
use crate::server::gateway::GatewayState;
use crate::tls::policy::TlsPolicy;
use crate::upstream::forward::Upstream;
use crate::{GatewaySettings, Ingress};

/// Names a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How long the name may be that a proxy has given.
const MAX_REQUEST_ID_BYTES: usize = 128;
/// How many routes are remembered that have let a connection in.
const MAX_ADMITTED_ROUTES: usize = 64;

/// One visitor who speaks HTTP.
pub struct HttpConnection {
    gateway: Arc<GatewayState>,
    /// The settings that it began with.
    live: Arc<GatewaySettings>,
    host_selection: HostSelection,
    client: Requester,
    /// True for a proxy that says for whom it comes.
    is_proxy: bool,
    activity: Arc<ConnectionActivity>,
    runtime: upgrade::UpgradeContext,
    /// The routes whose rules for connections have let this one in.
    admitted: Mutex<Vec<Arc<Route>>>,
}

/// Who sends a request: whoever is connected, or somebody for whom a trusted proxy is.
struct Requester {
    visitor: Visitor,
    attributes: ConnectionAttributes,
    origin: VisitorOrigin,
}

impl Requester {
    /// Returns the same visitor without the client certificate, if a virtual host does not ask for one. Authorities of
    /// another virtual host have signed it then, and its rules must not trust those.
    fn without_foreign_certificate(&self, virtual_host: &VirtualHost) -> Option<Self> {
        let tls = self.visitor.tls.as_deref()?;
        if tls.client_certificate.is_none() || virtual_host.requires_certificate() {
            return None;
        }
        let tls = VisitorTls { client_certificate: None, ..tls.clone() };
        Some(Self {
            visitor: Visitor { tls: Some(Arc::new(tls)), ..self.visitor.clone() },
            attributes: self.attributes.for_another_visitor(),
            origin: self.origin.clone(),
        })
    }
}

impl HttpConnection {
    pub fn new(
        gateway: Arc<GatewayState>,
        host_selection: HostSelection,
        visitor: Visitor,
        activity: Arc<ConnectionActivity>,
        shutdown: ShutdownSignal,
    ) -> Self {
        let origin = VisitorOrigin::new(visitor.peer.ip(), visitor.proto);
        let live = gateway.services.live.load_full();
        let runtime = upgrade::UpgradeContext {
            shutdown,
            activity: activity.clone(),
            response_timeout: live.timeouts.response,
            dial_timeout: live.timeouts.dial,
        };
        let is_proxy = live.trusted_proxies.contains(visitor.peer.ip());
        let client =
            Requester { visitor, attributes: ConnectionAttributes::starting_now(), origin };
        let admitted = Mutex::default();
        Self { gateway, live, host_selection, client, is_proxy, activity, runtime, admitted }
    }

    /// How large heads of requests may be.
    pub fn head_limits(&self) -> HeadLimits {
        self.live.head_limits()
    }

    /// What the parts of the connection tell one another.
    pub fn activity(&self) -> &Arc<ConnectionActivity> {
        &self.activity
    }

    /// Answers a request.
    pub async fn answer(
        self: Arc<Self>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, ConnectionClosed> {
        let mut answering = self.activity.track_request();
        let mut record = self.unrouted_record();
        // Before the request gets fields of ours.
        let size = forwarded_head::check_size(&request, self.live.head_limits());
        if request.version() == Version::HTTP_2 {
            http2_framing::frame_request(&mut request).await;
        }
        let id = self.name_request(request.headers_mut());
        let name = id.as_ref().and_then(|id| id.to_str().ok());
        let span = request_span(name);
        let mut trace = self.gateway.events.trace_request();
        trace.update_record(|it| it.request_id = name.map(str::to_owned));
        trace.record_request(&request);
        trace.update_record(|it| it.delivers_event = self.gateway.delivery_mark.is_on(&request));
        let somebody = self.behind_proxy(request.headers());
        let client = somebody.as_ref().unwrap_or(&self.client);
        let served = match size {
            Err(too_large) => Err(Rejection::Respond(too_large)),
            Ok(()) => {
                let serving = self.serve(client, request, &mut trace, &mut record);
                serving.instrument(span.clone()).await
            }
        };
        let _span = span.entered();
        let response = match served {
            // Whatever was made of a part of the body, the request as a whole cannot be understood.
            Ok(_) | Err(Rejection::Respond(_)) if self.activity.has_failed_body() => {
                error_response::BAD_REQUEST
                    .into_response(&self.gateway.services.settings.code_prefix)
            }
            Ok(response) => response,
            Err(Rejection::Respond(error)) => {
                error.into_response(&self.gateway.services.settings.code_prefix)
            }
            Err(Rejection::Elsewhere) => self.no_agent(error_response::NO_ENDPOINT),
            Err(Rejection::Close) => {
                trace.publish_outcome::<()>(&self.gateway.events, &client.visitor, None);
                if self.is_relayed() {
                    return Ok(self.closed_response());
                }
                self.activity.closed.store(true, Relaxed);
                return Err(ConnectionClosed);
            }
        };
        let response = self.finish(response, (trace, &client.visitor), (id.as_ref(), &mut record));
        answering.set_record(record);
        Ok(response.map(|body| body.with_active_request(answering)))
    }

    /// Reports and counts a request whose response is there.
    fn finish(
        &self,
        mut response: Response<ResponseBody>,
        (mut trace, visitor): (RequestTrace, &Visitor),
        (id, record): (Option<&HeaderValue>, &mut Option<RequestRecord>),
    ) -> Response<ResponseBody> {
        let is_marked = response.extensions_mut().remove::<RejectionMark>().is_some();
        // A node that has no agent does not reject the visitor, because another node may serve the request. The node of
        // the visitor counts the rejection.
        let is_rejected = match response.extensions().get() {
            Some(NodeNotice::NoAgent) => !self.is_relayed(),
            _ => is_marked,
        };
        if is_rejected {
            self.gateway.services.count_rejection(trace.phase());
        } else {
            trace.enter(RequestPhase::Finish);
        }
        if !self.is_relayed() {
            response.extensions_mut().remove::<NodeNotice>();
        }
        if let Some(id) = id {
            response.headers_mut().insert(REQUEST_ID, id.clone());
        }
        trace.publish_outcome(&self.gateway.events, visitor, Some(&response));
        if let Some(record) = record {
            record.set_name(id.and_then(|id| id.to_str().ok()));
            record.set_status(response.status().as_u16());
        }
        response
    }

    /// Gives a request a name, where requests get one: a trusted proxy may have done so before.
    fn name_request(&self, headers: &mut HeaderMap) -> Option<HeaderValue> {
        let ids = self.gateway.request_ids.as_ref()?;
        let is_known = |name: &&HeaderValue| (self.is_proxy || self.is_relayed()) && is_name(name);
        if let Some(known) = headers.get(REQUEST_ID).filter(is_known) {
            return Some(known.clone());
        }
        let made = or_debug!(ids.next(prefix::REQUEST), "a request gets no name");
        let made = HeaderValue::try_from(made?).ok()?;
        headers.insert(REQUEST_ID, made.clone());
        Some(made)
    }

    /// Counts a request that arrives now, and that no route has taken yet.
    pub fn unrouted_record(&self) -> Option<RequestRecord> {
        let metrics = self.gateway.services.metrics.as_ref()?;
        Some(RequestRecord::begin(metrics.unrouted().clone(), self.client.visitor.proto))
    }

    /// For whom a trusted proxy has sent a request; none where nobody else has.
    fn behind_proxy(&self, headers: &HeaderMap) -> Option<Requester> {
        if !self.is_proxy {
            return None;
        }
        let Requester { visitor: own, attributes, origin } = &self.client;
        let reported =
            ForwardedVisitor::from_headers(headers, own.peer, &self.live.trusted_proxies);
        let scheme = reported
            .scheme
            .unwrap_or(ReportedScheme { scheme: origin.scheme, word: origin.scheme });
        let is_other = reported.address != own.peer || scheme.word != origin.scheme;
        is_other.then(|| Requester {
            visitor: Visitor { peer: reported.address, ..own.clone() },
            attributes: attributes.for_another_visitor(),
            origin: origin.with_scheme(scheme),
        })
    }

    /// Serves a request whose head was read.
    async fn serve(
        &self,
        client: &Requester,
        mut request: Request<RequestBody>,
        trace: &mut RequestTrace,
        record: &mut Option<RequestRecord>,
    ) -> Result<Response<ResponseBody>, Rejection> {
        forwarded_head::normalize_request(&mut request)?;
        trace.enter(RequestPhase::SelectHost);
        if let Some(answer) = self.challenge_response(request.uri().path()) {
            return Ok(answer);
        }
        if !self.gateway.restrictions.allows_address(Ingress::Endpoints, client.visitor.peer.ip()) {
            trace.update_record(|it| it.module = Some(ModuleKind::IpRestriction.name()));
            return Err(error_response::BLOCKED.into());
        }
        forwarded::remove_untrusted(request.headers_mut(), self.is_proxy);
        match &self.host_selection {
            HostSelection::Single(slot) => {
                self.serve_here((slot.load_full(), None, false), client, request, trace, record)
                    .await
            }
            HostSelection::ByHost(_) | HostSelection::Relayed => {
                self.serve_by_host(client, request, trace, record).await
            }
        }
    }

    /// Serves a request at this node, at the virtual host of a host and port, none where it has the listener
    /// to itself; it may move to another node that has the agent.
    async fn serve_here(
        &self,
        (virtual_host, host, may_move): (Arc<VirtualHost>, Option<(&str, u16)>, bool),
        client: &Requester,
        mut request: Request<RequestBody>,
        trace: &mut RequestTrace,
        record: &mut Option<RequestRecord>,
    ) -> Result<Response<ResponseBody>, Rejection> {
        trace.enter(RequestPhase::RouteRequest);
        login::withhold_cookies(&mut request);
        // Nobody says of themselves who has logged in, wherever that is asked: routes share upstreams.
        strip_identity(request.headers_mut());
        // What rules add is not the visitor's to take off again.
        strip_named(request.headers_mut());
        let route = match self.route_request(&virtual_host, client, &mut request) {
            Err(error_response::NO_ROUTE) if forwarded_head::is_asterisk_form(&request) => {
                return Ok(server_options_response());
            }
            found => found?,
        };
        if let (Some(record), Some(edge)) = (record, &route.metrics) {
            record.set_edge(edge.clone());
        }
        trace.update_record(|it| {
            it.edge_id = Some(route.edge_id.clone());
            it.route_id = Some(route.id.clone());
        });
        trace.enter(RequestPhase::RunModules);
        let mut context = RequestContext::new(
            &self.gateway.services,
            &client.visitor,
            &client.attributes,
            &client.origin,
            &self.runtime,
            trace,
            route.route_ref(),
        );
        (context.host, context.may_move) = (host, may_move);
        self.run_connection_rules(&mut context, route, &request).await?;
        let served = route.run_modules(&self.gateway.table.targets, &mut context, request).await;
        match served {
            Ok(mut response) if context.has_no_agent => {
                response.extensions_mut().insert(NodeNotice::NoAgent);
                Ok(response)
            }
            Err(Rejection::Respond(error)) if context.has_no_agent => Ok(self.no_agent(error)),
            served => served,
        }
    }

    /// Finds the route of a request, and gives the request the path that it goes on with.
    fn route_request<'h>(
        &self,
        virtual_host: &'h VirtualHost,
        client: &Requester,
        request: &mut Request<RequestBody>,
    ) -> Result<&'h Arc<Route>, ErrorResponse> {
        if let Some(route) = virtual_host.login_route(request, client.origin.scheme) {
            return Ok(route);
        }
        let path = request.uri().path();
        let RouteMatch { route, path } =
            virtual_host.route_request(path, self.live.ambiguous_paths)?;
        path.apply(request)?;
        Ok(route)
    }

    /// The response where a host has no agent here.
    fn no_agent(&self, error: ErrorResponse) -> Response<ResponseBody> {
        let mut response = error.into_response(&self.gateway.services.settings.code_prefix);
        response.extensions_mut().insert(NodeNotice::NoAgent);
        response
    }

    /// Has another node close the connection of its visitor; one of an older version responds.
    fn closed_response(&self) -> Response<ResponseBody> {
        let broken = error_response::BROKEN;
        let mut response = broken.into_response(&self.gateway.services.settings.code_prefix);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response.extensions_mut().insert(NodeNotice::Closed);
        response
    }

    /// Whether another node has taken the visitor.
    fn is_relayed(&self) -> bool {
        matches!(self.host_selection, HostSelection::Relayed)
    }

    /// What an authority is told that asks whether a host name leads here; none where nobody does.
    fn challenge_response(&self, path: &str) -> Option<Response<ResponseBody>> {
        let HostSelection::ByHost(_) = &self.host_selection else { return None };
        let answer = self.gateway.authority.challenges().http_answer(path)?;
        let mut response =
            Response::new(ResponseBody::from_bytes(Bytes::copy_from_slice(answer.as_bytes())));
        let kind = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Some(response)
    }

    /// Runs the rules for connections, once for each connection and route; a connection of a proxy is
    /// one for each request.
    async fn run_connection_rules(
        &self,
        context: &mut RequestContext<'_>,
        route: &Arc<Route>,
        request: &Request<RequestBody>,
    ) -> Result<(), Rejection> {
        let rules = route.modules.as_ref().and_then(Modules::rules);
        let Some(rules) = rules.filter(|rules| rules.has_phase(Phase::Connect)) else {
            return Ok(());
        };
        if !self.is_proxy && self.lock_admitted().iter().any(|known| Arc::ptr_eq(known, route)) {
            return Ok(());
        }
        let mut execution = ConnectionExecution::new(
            context.visitor_connection(),
            context.endpoint_facts(route.owner_id(), request.headers()),
        );
        let entered =
            execution.run_connect_rules(&self.gateway.services, rules, context.trace, |_| {
                std::future::ready(Err::<(), _>(error_response::NO_ENDPOINT))
            });
        entered.await.map_err(|()| Rejection::Close)?;
        if self.is_proxy {
            return Ok(());
        }
        let mut admitted = self.lock_admitted();
        // A configuration that keeps changing leaves routes behind.
        if admitted.len() >= MAX_ADMITTED_ROUTES {
            admitted.clear();
        }
        admitted.push(route.clone());
        Ok(())
    }

    /// The port of the endpoint that a request is for, whose visitor used `scheme`. The port of the listener
    /// counts as the usual one, and so does a load balancer's.
    fn endpoint_port(&self, port: Option<u16>, scheme: &str) -> u16 {
        let visitor = self.visitor();
        let is_secure = scheme == "https";
        let is_shared = |port: u16| {
            port == visitor.local.port() || Some(port) == self.gateway.public_port(is_secure)
        };
        let usual = if is_secure { 443 } else { 80 };
        port.filter(|port| !is_shared(*port)).unwrap_or(usual)
    }

    /// The virtual host of the host that a request names, or a node that has it: one of those that have
    /// failed only where no other is left. The visitor used `scheme`, to this service or to a trusted proxy.
    /// The name in SNI does not matter (proxies write their own), but the TLS policy that the handshake met does.
    fn select_host(
        &self,
        (host, port): (&str, Option<u16>),
        scheme: &str,
        uri: impl Display,
        failed: &[String],
    ) -> Result<HostMatch, ErrorResponse> {
        let passed = match &self.host_selection {
            HostSelection::ByHost(passed) => passed.as_ref(),
            HostSelection::Single(_) | HostSelection::Relayed => None,
        };
        let visitor = self.visitor();
        let has_tls = visitor.tls.is_some();
        let port = self.endpoint_port(port, scheme);
        if is_internal(host) {
            return Err(error_response::NO_ENDPOINT);
        }
        let found = self.gateway.table.hosts.find_ranked(host, port);
        let may_be_elsewhere = self.gateway.table.has_remote_hosts() && !self.is_relayed();
        if may_be_elsewhere
            && let Some(node) = self.gateway.table.remote_host(host, port, found.as_ref(), failed)
        {
            // That node does not know which authorities this one has asked for.
            if passed.is_some_and(|passed| passed.requires_certificate()) {
                return Err(error_response::MOVED);
            }
            return Ok(HostMatch::Node(node));
        }
        // A wildcard of this node, which may be somebody else's, is not for the visitors of that name.
        if may_be_elsewhere && self.gateway.table.is_cut_off(host, port, found.as_ref()) {
            return Err(error_response::CUT_OFF);
        }
        let (claim, _) = found.ok_or(error_response::NO_ENDPOINT)?;
        let virtual_host = claim.virtual_host.load_full();
        if virtual_host.carries_bytes {
            return Err(error_response::NO_ENDPOINT);
        }
        if !has_tls
            && scheme != "https"
            && claim.port != port
            && let Some(url) = self.https_url(host)
        {
            return Ok(HostMatch::Redirect(format!("{url}{uri}")));
        }
        let passed = passed.map(Arc::as_ref);
        let is_met = |tls_policy: &Arc<TlsPolicy>| match &visitor.tls {
            Some(tls) => tls_policy.is_met_by(passed, tls.version),
            None => !tls_policy.requires_certificate(),
        };
        if !virtual_host.tls_policy.as_ref().is_none_or(is_met) {
            return Err(error_response::MISDIRECTED);
        }
        Ok(HostMatch::VirtualHost(virtual_host))
    }

    /// The address of a host on the shared HTTPS port, if that is open.
    fn https_url(&self, host: &str) -> Option<String> {
        self.gateway.ports.https.get().and_then(|_| self.gateway.url_of(host, true))
    }

    fn lock_admitted(&self) -> MutexGuard<'_, Vec<Arc<Route>>> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a host is served.
enum HostMatch {
    VirtualHost(Arc<VirtualHost>),
    /// At another address.
    Redirect(String),
    /// At another node.
    Node(Upstream),
}

/// A policy wants the connection to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed by a policy")]
pub struct ConnectionClosed;

/// Returns the response to `OPTIONS *` at a host that has no route for all paths: the server works, and has no
/// options to name (RFC 9110, section 9.3.7).
fn server_options_response() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Sends a visitor elsewhere, with method and body.
fn redirect_response(url: String) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    if let Ok(url) = HeaderValue::try_from(url) {
        response.headers_mut().insert(LOCATION, url);
    }
    response
}

/// Whether a proxy may have named a request like this.
fn is_name(value: &HeaderValue) -> bool {
    (1..=MAX_REQUEST_ID_BYTES).contains(&value.len())
        && value.as_bytes().iter().all(u8::is_ascii_graphic)
}

/// What tells the records of a request from those of others; a request without a name gets one for that.
fn request_span(name: Option<&str>) -> tracing::Span {
    match name {
        Some(name) => tracing::debug_span!("request", request_id = name),
        None => tracing::debug_span!("request", request_id = next_request_id()),
    }
}

fn next_request_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("req_{}_{}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}
