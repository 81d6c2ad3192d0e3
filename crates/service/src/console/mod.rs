//! The console: a web page of the service for people, at `/console` of the management address.
//!
//! Whoever logs in with an API key has a session ([`sessions`]), in memory. The page calls the management
//! API below `/console/api`: such a request gets the key of its session in place of the cookie, and goes the
//! way of all requests of programs, so that no operation is implemented, checked or audited twice. The
//! forms of the page come from the OpenAPI document for the same reason.
//!
//! What the API does not have is below `/console/data`: the figures of the last hour ([`history`]) and of each agent
//! ([`agents`]), events of public traffic as they happen ([`live`]), the types of events, and policies tried before they
//! are stored ([`policies`]).

mod agents;
mod browser;
mod deliveries;
mod event_filter;
mod files;
mod history;
mod live;
mod overview;
mod policies;
mod sessions;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, ORIGIN, SET_COOKIE};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, request};
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use ginnel_api::{Field, Info, Output, Verb, json_response};
use ginnel_gateway::Ingress;
use ginnel_net::Shutdown;
use ginnel_web as web;

use super::context::{Context, ServiceState};
use super::monitoring::ServiceMonitor;
use super::{Refusal, Result};
use super::{body, pipeline};
use agents::AgentRows;
use deliveries::WaitingDeliveries;
use event_filter::TrafficFilter;
use history::TrafficHistory;
use live::EventWatch;
use overview::Overview;
use policies::PolicyDraft;
use sessions::{ConsoleSessions, SessionDigest};

/// How many pages may watch traffic at once.
const MAX_EVENT_STREAMS: usize = 64;

/// An operation that only the console has. What it only looks at is no event of the audit trail.
const fn console_operation(
    name: &'static str,
    method: Verb,
    path: &'static str,
    parameters: &'static [Field],
) -> Info {
    let doc = " An operation of the console.\n";
    Info {
        resource: "console",
        name,
        doc,
        method,
        path,
        parameters,
        output: Output::Nothing,
        issues_secret: false,
    }
}

const LOGIN: Info = console_operation("login", Verb::POST, "/console/session", &[]);
const LOGOUT: Info = console_operation("logout", Verb::DELETE, "/console/session", &[]);
const SESSION: Info = console_operation("session", Verb::GET, "/console/session", &[]);
const OVERVIEW: Info = console_operation("overview", Verb::GET, "/console/data/overview", &[]);
const EVENTS: Info =
    console_operation("events", Verb::GET, "/console/data/events", event_filter::PARAMETERS);
const AGENTS: Info = console_operation("agents", Verb::GET, "/console/data/agents", &[]);
const EVENT_TYPES: Info =
    console_operation("event_types", Verb::GET, "/console/data/event_types", &[]);
const DELIVERIES: Info =
    console_operation("deliveries", Verb::GET, "/console/data/deliveries", deliveries::PARAMETERS);
const POLICY: Info = console_operation("policy", Verb::GET, "/console/data/policy", &[]);

/// The console of a service.
pub(super) struct ServiceConsole {
    shared: Arc<ServiceState>,
    monitor: Arc<ServiceMonitor>,
    sessions: Arc<ConsoleSessions>,
    history: Arc<TrafficHistory>,
    streams: Arc<Semaphore>,
    /// Of the management API: streams end with it.
    shutdown: Shutdown,
}

/// What becomes of a request below `/console`.
pub(super) enum ConsoleResponse {
    /// It is answered.
    Done(Response),
    /// It is one to the management API, with the key of its session.
    Operation(request::Parts),
}

/// A request that belongs to a session.
struct SessionRequest {
    head: request::Parts,
    digest: SessionDigest,
    authorization: HeaderValue,
    /// Where it comes from.
    address: Option<IpAddr>,
}

impl ServiceConsole {
    pub(super) fn new(
        shared: &Arc<ServiceState>,
        monitor: &Arc<ServiceMonitor>,
        shutdown: &Shutdown,
    ) -> Self {
        let sessions = Arc::<ConsoleSessions>::default();
        let history = TrafficHistory::start(&shared.gateway, &sessions);
        Self {
            shared: shared.clone(),
            monitor: monitor.clone(),
            sessions,
            history,
            streams: Arc::new(Semaphore::new(MAX_EVENT_STREAMS)),
            shutdown: shutdown.clone(),
        }
    }

    /// Answers a request below `/console`, or says which operation it asks for.
    pub(super) async fn respond(
        &self,
        head: request::Parts,
        body: &mut Incoming,
    ) -> ConsoleResponse {
        let path = head.uri.path();
        let path = path.strip_prefix("/console").unwrap_or(path).to_owned();
        let address = pipeline::caller_address(&self.shared, &head);
        let admitted = pipeline::check_ingress(&self.shared, Ingress::Dashboard, address);
        if admitted.is_ok()
            && let Some(response) = files::find_file(&head, &path)
        {
            return ConsoleResponse::Done(web::add_security_headers(response).await);
        }
        let headers = head.headers.clone();
        let result = match admitted.and_then(|()| browser::check_origin(&head, &self.shared.base)) {
            Ok(()) => self.route_request(head, &path, body).await,
            Err(refusal) => Err(refusal),
        };
        let result = match result {
            Ok(ConsoleResponse::Operation(head)) => return ConsoleResponse::Operation(head),
            Ok(ConsoleResponse::Done(response)) => Ok(response),
            Err(refusal) => Err(refusal),
        };
        let mut headers = headers;
        headers.remove(ORIGIN);
        let response = pipeline::finish_response(&self.shared, &headers, body, result).await;
        ConsoleResponse::Done(web::add_security_headers(response).await)
    }

    /// Leads a request of the page to what answers it.
    async fn route_request(
        &self,
        mut head: request::Parts,
        path: &str,
        body: &mut Incoming,
    ) -> Result<ConsoleResponse> {
        if path == "/session" && head.method == Method::POST {
            return self.log_in(head, body).await.map(ConsoleResponse::Done);
        }
        let now = Instant::now();
        let digest =
            browser::sessions_of(&head).find(|digest| self.sessions.has_session(digest, now));
        let digest = digest.ok_or_else(Refusal::not_logged_in)?;
        let authorization = match browser::is_in_background(&head) || path == "/data/overview" {
            true => self.sessions.peek_authorization(&digest, now),
            false => self.sessions.use_authorization(&digest, now),
        };
        let authorization = authorization.ok_or_else(Refusal::not_logged_in)?;
        let removed = browser::removed_cookie(&head, &self.shared.base);
        head.headers.remove(COOKIE);
        for name in [ORIGIN, browser::TOKEN_HEADER, browser::BACKGROUND_HEADER] {
            head.headers.remove(name);
        }
        head.headers.insert(AUTHORIZATION, authorization.clone());
        if let Some(operation) = path.strip_prefix("/api") {
            return to_operation(head, operation).map(ConsoleResponse::Operation);
        }
        let address = pipeline::caller_address(&self.shared, &head);
        let request = SessionRequest { head, digest, authorization, address };
        let response = match (path, &request.head.method) {
            ("/session", &Method::GET) => self.show_session(&request, body).await,
            ("/session", &Method::DELETE) => self.log_out(&request, body, &removed).await,
            ("/data/overview", &Method::GET) => self.show_overview(&request, body).await,
            ("/data/agents", &Method::GET) => self.list_agents(&request, body).await,
            ("/data/events", &Method::GET) => self.stream_events(&request, body).await,
            ("/data/event_types", &Method::GET) => self.event_types(&request, body).await,
            ("/data/deliveries", &Method::GET) => self.show_deliveries(&request, body).await,
            ("/data/policy", &Method::POST) => self.check_policy(&request, body).await,
            _ => Err(Refusal::no_such_path(request.head.uri.path())),
        };
        response.map(ConsoleResponse::Done)
    }

    /// Begins a session for whoever shows a key, as every request to the API does.
    async fn log_in(&self, head: request::Parts, body: &mut Incoming) -> Result<Response> {
        let key = head.headers.get(AUTHORIZATION).cloned();
        let begin = |Context { caller, .. }, _| async move {
            let key = key.ok_or_else(Refusal::not_logged_in)?;
            let secrets = self.sessions.start_session(&caller, key, Instant::now())?;
            Ok((secrets, caller))
        };
        let (secrets, caller) =
            pipeline::check_and_serve(&self.shared, &LOGIN, &head, body, begin).await?;
        self.history.start_counting(&self.shared.gateway);
        let mut response = to_json_response(&json!({
            "token": secrets.token,
            "key_id": caller.key_id,
            "owner_id": caller.owner_id,
            "admin": caller.admin,
        }));
        let cookie = browser::new_cookie(&head, &self.shared.base, &secrets.cookie);
        set_header(&mut response, SET_COOKIE, &cookie);
        Ok(response)
    }

    /// Says who is logged in.
    async fn show_session(
        &self,
        request: &SessionRequest,
        body: &mut Incoming,
    ) -> Result<Response> {
        let serve = |Context { caller, .. }, _| async move {
            Ok(to_json_response(&json!({
                "key_id": caller.key_id,
                "owner_id": caller.owner_id,
                "admin": caller.admin,
            })))
        };
        pipeline::check_and_serve(&self.shared, &SESSION, &request.head, body, serve).await
    }

    async fn log_out(
        &self,
        request: &SessionRequest,
        body: &mut Incoming,
        removed: &str,
    ) -> Result<Response> {
        self.sessions.end_session(&request.digest);
        let serve = |_, _: Map<String, Value>| async move {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            set_header(&mut response, SET_COOKIE, removed);
            Ok(response)
        };
        pipeline::check_and_serve(&self.shared, &LOGOUT, &request.head, body, serve).await
    }

    async fn show_overview(
        &self,
        request: &SessionRequest,
        body: &mut Incoming,
    ) -> Result<Response> {
        let serve = |service: Context, _| async move {
            Ok(to_json_response(&Overview::from_state(
                &service.shared,
                &self.monitor,
                &self.history,
            )))
        };
        pipeline::check_and_serve(&self.shared, &OVERVIEW, &request.head, body, serve).await
    }

    async fn list_agents(&self, request: &SessionRequest, body: &mut Incoming) -> Result<Response> {
        let serve = |service: Context, _| async move {
            Ok(to_json_response(&AgentRows::from_state(&service.shared)))
        };
        pipeline::check_and_serve(&self.shared, &AGENTS, &request.head, body, serve).await
    }

    /// What visitors do is for admins, as the audit trail is.
    async fn stream_events(
        &self,
        request: &SessionRequest,
        body: &mut Incoming,
    ) -> Result<Response> {
        let serve = |service: Context, arguments: Map<String, Value>| async move {
            if !service.caller.admin {
                return Err(Refusal::only_for_admins("only an admin may watch traffic"));
            }
            let filter = TrafficFilter::from_arguments(&arguments)?;
            let permit = self.streams.clone().try_acquire_owned();
            let permit = permit.map_err(|_| Refusal::console_is_full())?;
            let watch = EventWatch {
                shared: service.shared,
                sessions: self.sessions.clone(),
                session: request.digest,
                authorization: request.authorization.clone(),
                address: request.address,
                shutdown: self.shutdown.signal(),
                filter,
            };
            let stream = live::start(watch, permit);
            let mut response = Response::new(Body::new(stream));
            set_header(&mut response, CONTENT_TYPE, "text/event-stream");
            Ok(response)
        };
        pipeline::check_and_serve(&self.shared, &EVENTS, &request.head, body, serve).await
    }

    /// The types of events that a subscription may name, for forms to offer.
    async fn event_types(&self, request: &SessionRequest, body: &mut Incoming) -> Result<Response> {
        let serve = |service: Context, _| async move {
            let names: Vec<_> = service.shared.events.types().names().collect();
            Ok(to_json_response(&json!({ "types": names })))
        };
        pipeline::check_and_serve(&self.shared, &EVENT_TYPES, &request.head, body, serve).await
    }

    /// What waits for a destination of events.
    async fn show_deliveries(
        &self,
        request: &SessionRequest,
        body: &mut Incoming,
    ) -> Result<Response> {
        let serve = |service: Context, arguments: Map<String, Value>| async move {
            WaitingDeliveries::read_waiting(&service, &arguments)
                .await
                .map(|waiting| to_json_response(&waiting))
        };
        pipeline::check_and_serve(&self.shared, &DELIVERIES, &request.head, body, serve).await
    }

    async fn check_policy(
        &self,
        request: &SessionRequest,
        body: &mut Incoming,
    ) -> Result<Response> {
        let limits = self.shared.live.load().limits;
        let draft =
            PolicyDraft::from_body(&body::read_json(&request.head.headers, body, &limits).await?)?;
        let serve = |service, _| async move {
            draft.check_and_simulate(service).await.map(|checked| to_json_response(&checked))
        };
        pipeline::check_and_serve(&self.shared, &POLICY, &request.head, body, serve).await
    }
}

/// The request to the management API that one below `/console/api` stands for.
fn to_operation(mut head: request::Parts, path: &str) -> Result<request::Parts> {
    let path = if path.is_empty() { "/" } else { path };
    let target = match head.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let uri = target.parse::<Uri>();
    head.uri = uri.map_err(|_| Refusal::no_such_path(head.uri.path()))?;
    Ok(head)
}

fn to_json_response(value: &impl Serialize) -> Response {
    // The types of the console always make JSON.
    json_response(200, serde_json::to_vec(value).unwrap_or_default())
}

fn set_header(response: &mut Response, name: HeaderName, value: &str) {
    // Cookies of the console and its media types are ASCII.
    response.headers_mut().extend(HeaderValue::from_str(value).map(|value| (name, value)));
}
