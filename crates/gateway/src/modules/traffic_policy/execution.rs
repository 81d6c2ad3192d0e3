//! One request on its way through a policy, there and back.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, request};
use hyper::body::{Body as _, Frame};

use ginnel_base::address::{HostName, WebUrl};
use ginnel_base::logging::or_debug;
use ginnel_http1::{has_content, restore_strong_etags};
use ginnel_policy::jwt::{KeyRequest, KeySet};
use ginnel_policy::{
    CODE_PREFIX, Content, EndpointFacts, Exchange, Fetch, FetchFailed, Fetched, LocalResponse,
    Phase, Run, StepOutcome, TakenMessage, Verdict,
};

use crate::message::body::BodyError;
use crate::message::error_response::Rejection;
use crate::message::error_response::{self, ErrorResponse};
use crate::message::events::RequestTrace;
use crate::message::request_body::RequestBody;
use crate::message::request_context::InternalAddress;
use crate::message::request_context::{PolicyExecution, RequestContext};
use crate::message::request_services::{InternalHost, LoginPlace, RequestServices};
use crate::message::response_body::ResponseBody;
use crate::message::response_compression::compress_response;
use crate::message::rule_notes::RuleNotes;
use crate::modules::traffic_policy::buffered_body::{BufferedBody, gather_body};
use crate::modules::traffic_policy::internal_fetch::{self, unreachable_failure};
use crate::modules::traffic_policy::rules::Rules;

/// How many hops a request counts for that an action sends, on top of its own: each may be tried three times.
const EXTRA_HOPS: usize = 1;

/// What a policy has decided on a request.
pub enum ExecutionOutcome {
    /// It goes on.
    Continue,
    /// It is answered, by a rule or by an internal endpoint.
    Respond(Box<Response<ResponseBody>>),
    /// It is turned away otherwise.
    Reject(Rejection),
}

impl PolicyExecution {
    pub fn new(
        context: &RequestContext<'_>,
        endpoint: Arc<EndpointFacts>,
        request: Request<RequestBody>,
    ) -> Self {
        let (head, body) = request.into_parts();
        let request = ginnel_policy::Request::new(head, context.origin.scheme, chrono::Utc::now());
        let connection = context.visitor_connection();
        let mut exchange = Exchange::from_request(connection, endpoint, request);
        exchange.ipv6_prefix = context.services.live.load().ipv6_prefix;
        exchange.record.code_prefix = changed_code_prefix(context.services);
        Self { exchange, body, notes: Vec::new(), is_own: false, is_compressed: false }
    }

    /// Runs the rules for requests.
    pub async fn run_request_rules(
        &mut self,
        context: &mut RequestContext<'_>,
        rules: &Rules,
        module: &'static str,
    ) -> ExecutionOutcome {
        let mut run = rules.policy.start_phase(Phase::Request);
        self.exchange.carried = context.carried_bytes();
        self.is_own = context.route_ref.edge_id.is_empty() && context.hops == 0;
        self.is_compressed |= rules.compress_responses;
        self.exchange.record.matched = context.services.notes_rules().then(Vec::new);
        let rejection = loop {
            match run.step(&mut self.exchange, rules) {
                StepOutcome::Done(Verdict::Continue) => break ExecutionOutcome::Continue,
                StepOutcome::Done(Verdict::Respond(answer)) => {
                    let prefix = &context.services.settings.code_prefix;
                    break ExecutionOutcome::Respond(Box::new(build_response(answer, prefix)));
                }
                StepOutcome::Done(Verdict::Close) => {
                    break ExecutionOutcome::Reject(Rejection::Close);
                }
                StepOutcome::Done(Verdict::Forward { url }) => {
                    self.record_rules(rules, module);
                    if let Some(rejection) = self.forward_internal(context, &mut run, &url).await {
                        break rejection;
                    }
                }
                StepOutcome::NeedBody { limit } => {
                    if self.gather_request(limit).await.is_err() {
                        break ExecutionOutcome::Reject(error_response::BAD_REQUEST.into());
                    }
                    self.exchange.carried = context.carried_bytes();
                }
                StepOutcome::Fetch(fetch) => {
                    run.answer_fetch(fetch_internal(context, &fetch).await)
                }
                StepOutcome::Keys(request) => {
                    run.answer_keys(issuer_keys(context, rules, &request).await);
                }
                StepOutcome::Login(mut request) => {
                    request.owner = rules.owner_of(&context.route_ref).clone();
                    let place = || LoginPlace {
                        connection: context.visitor_connection(),
                        route_ref: context.route_ref.clone(),
                    };
                    let logins = &context.services.logins;
                    run.answer_login(logins.answer_login(*request, rules.reach, &place).await)
                }
            }
        };
        self.record_rules(rules, module);
        self.exchange.record.matched = None;
        self.record_decision(context, rules, module);
        rejection
    }

    /// The request as rules have left it; `keep` when it will be asked for again.
    pub fn take_request(&mut self, keep: bool) -> Result<Request<RequestBody>, ErrorResponse> {
        let taken = self.exchange.take_request(keep).ok_or(error_response::BAD_REQUEST)?;
        let TakenMessage { mut head, body: content, replacements } = taken;
        normalize_head(&mut head)?;
        if self.is_compressed {
            restore_strong_etags(&mut head.headers);
        }
        if !self.notes.is_empty() {
            let RuleNotes(notes) = head.extensions.get_or_insert_default();
            let for_agent = self.notes.iter().map(|notes| notes.for_agent(self.is_own).clone());
            notes.extend(for_agent);
        }
        let body = match content {
            Content::Full(bytes) => {
                if replacements.is_empty() {
                    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
                }
                RequestBody::from_bytes(bytes)
            }
            Content::Passing | Content::TooLong(_) => std::mem::take(&mut self.body),
        };
        if body.is_end_stream() && !replacements.is_empty() {
            // The length went with the former content; upstreams expect one (RFC 9110, section 8.6).
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        let body = replacements.into_iter().try_fold(body, |body, replacement| {
            let started = or_debug!(replacement.start(), "cannot replace in a request");
            Ok::<_, ErrorResponse>(body.with_replacer(started.ok_or(error_response::BAD_REQUEST)?))
        })?;
        Ok(Request::from_parts(head, body))
    }

    /// Runs the rules for answers.
    pub async fn run_response_rules(
        mut self,
        context: &mut RequestContext<'_>,
        rules: &Rules,
        response: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        let (head, mut body) = response.into_parts();
        self.exchange.set_response(ginnel_policy::Response::new(head));
        let mut run = rules.policy.start_phase(Phase::Response);
        self.exchange.carried = context.carried_bytes();
        loop {
            match run.step(&mut self.exchange, rules) {
                // Responses are for those who have logged in, or shown a token, before.
                StepOutcome::Done(_) | StepOutcome::Keys(_) | StepOutcome::Login(_) => break,
                StepOutcome::NeedBody { limit } => self.gather_response(&mut body, limit).await,
                StepOutcome::Fetch(fetch) => {
                    run.answer_fetch(fetch_internal(context, &fetch).await)
                }
            }
        }
        self.record_decision(context, rules, "policy");
        let compression = self.exchange.take_compression();
        let response = self.take_response(body, &context.services.settings.code_prefix);
        match compression {
            Some(compression) => compress_response(response, &compression).await,
            None => response,
        }
    }

    /// The response as rules have left it, before it is compressed.
    fn take_response(&mut self, mut body: ResponseBody, prefix: &str) -> Response<ResponseBody> {
        let code = self.exchange.answer_code();
        let is_to_head = self.exchange.request().is_some_and(|it| it.head.method == Method::HEAD);
        let Some(taken) = self.exchange.take_response() else {
            return error_response::BROKEN.into_response(prefix);
        };
        let TakenMessage { mut head, body: content, replacements } = taken;
        error_response::set_error_code(&mut head.headers, code, prefix);
        if let Content::Full(bytes) = content {
            let bytes = with_code(bytes, code, prefix);
            let is_known = replacements.is_empty() && !(is_to_head && bytes.is_empty());
            if has_content(head.status) && is_known {
                head.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            }
            body = ResponseBody::from_bytes(bytes);
        }
        for replacement in replacements {
            let started = or_debug!(replacement.start(), "cannot replace in a response");
            let Some(replacer) = started else {
                return error_response::BROKEN.into_response(prefix);
            };
            body = body.with_replacer(replacer);
        }
        Response::from_parts(head, body)
    }

    /// Fields for the response to somebody who has logged in; none where nobody had to.
    pub fn take_login_headers(&mut self) -> Option<HeaderMap> {
        self.exchange.login_headers.take()
    }

    /// Says how the upstream took the request.
    pub fn record_status(&mut self, status: u16) {
        self.exchange.record_upstream_outcome(status < 500, Instant::now());
    }

    /// Sends the request to an internal endpoint; none when the rules go on.
    async fn forward_internal(
        &mut self,
        context: &mut RequestContext<'_>,
        run: &mut Run<'_>,
        url: &str,
    ) -> Option<ExecutionOutcome> {
        let failed = match context.select_internal_host(url).await {
            Ok((host, address)) => {
                return Some(self.send_within(context, host.as_ref(), address).await);
            }
            Err(failed) => failed,
        };
        let code = failed.number.unwrap_or_default();
        if run.forward_failed(&mut self.exchange, code, failed.text()) {
            return None;
        }
        Some(ExecutionOutcome::Reject(failed.into()))
    }

    async fn send_within(
        &mut self,
        context: &mut RequestContext<'_>,
        host: &dyn InternalHost,
        address: InternalAddress,
    ) -> ExecutionOutcome {
        let path = self.exchange.request().map_or("/", |it| it.head.uri.path());
        let ambiguous_paths = context.services.live.load().ambiguous_paths;
        let (route, path) = match host.route_request(path, ambiguous_paths) {
            Ok(routed) => routed,
            Err(error) => return ExecutionOutcome::Reject(error.into()),
        };
        // The endpoint there may be somebody else's.
        self.is_own = false;
        let taken = self.take_request(true).and_then(|mut request| {
            path.apply(&mut request)?;
            Ok(request)
        });
        let sent = match taken {
            Ok(request) => context.run_internal(route.as_ref(), address, request).await,
            Err(error) => Err(error.into()),
        };
        // What the endpoint answers is to circuit breakers what an upstream answers.
        context.upstream_status = match &sent {
            Ok(response) => Some(response.status().as_u16()),
            Err(Rejection::Respond(error)) => Some(error.status),
            Err(Rejection::Elsewhere | Rejection::Close) => None,
        };
        if let Some(status) = context.upstream_status {
            self.record_status(status);
        }
        match sent {
            Ok(response) => ExecutionOutcome::Respond(Box::new(response)),
            Err(rejection) => ExecutionOutcome::Reject(rejection),
        }
    }

    async fn gather_request(&mut self, limit: usize) -> Result<(), BodyError> {
        let gathered = gather_body(&mut self.body, limit).await?;
        let Some(request) = self.exchange.request_mut() else { return Ok(()) };
        match gathered {
            BufferedBody::Whole(bytes, trailers) => {
                (request.body, request.trailers) = (Content::Full(bytes), trailers);
                request.body_received = Some(chrono::Utc::now());
            }
            BufferedBody::Begun(bytes) => {
                request.body = Content::TooLong(bytes.clone());
                self.body.put_back(Ok(Frame::data(bytes)));
            }
        }
        Ok(())
    }

    async fn gather_response(&mut self, body: &mut ResponseBody, limit: usize) {
        let gathered = gather_body(body, limit).await;
        let Some(response) = self.exchange.response_mut() else { return };
        response.body = match gathered {
            Ok(BufferedBody::Whole(bytes, trailers)) => {
                response.trailers = trailers;
                Content::Full(bytes)
            }
            Ok(BufferedBody::Begun(bytes)) => {
                body.put_back([Frame::data(bytes.clone())].into());
                Content::TooLong(bytes)
            }
            Err(error) => {
                body.set_failed(error);
                Content::TooLong(Bytes::new())
            }
        };
    }

    /// Keeps what agents learn of the rules that have matched since the last time.
    fn record_rules(&mut self, rules: &Rules, module: &str) {
        let matched = self.exchange.record.matched.as_mut().map(std::mem::take);
        for index in matched.unwrap_or_default() {
            let rule = rules.policy.request.get(index);
            self.notes.extend(rule.map(|rule| rule.notes(module, index).clone()));
        }
    }

    /// Tells who listens what was decided.
    fn record_decision(
        &mut self,
        context: &mut RequestContext<'_>,
        rules: &Rules,
        module: &'static str,
    ) {
        let record = &mut self.exchange.record;
        let (decision, logs) = (record.decision.take(), std::mem::take(&mut record.logs));
        context.services.count_decision(decision.as_ref());
        context.trace.update_record(|it| it.logs.extend(logs));
        if let Some(decision) = decision {
            context.trace.record_decision(module, &rules.policy, decision);
        }
    }
}

/// Whether a URL is one of an internal endpoint, by its host.
fn is_internal_url(url: &WebUrl) -> bool {
    url.host().name().is_some_and(HostName::is_internal)
}

/// Does what an action asks for at internal endpoints, as if the visitor had been forwarded there.
async fn fetch_internal(context: &RequestContext<'_>, spec: &Fetch) -> Fetched {
    let fetched = async {
        let (mut next, mut left) = (spec.url.clone(), spec.max_redirects);
        loop {
            let response = ask_internal(context, spec, &next).await?;
            match internal_fetch::redirect_location(&next, &response).filter(|_| left > 0) {
                None => return Ok(response),
                Some(location) if is_internal_url(&location) => {
                    left -= 1;
                    next = location;
                }
                Some(_) => {
                    return Err(unreachable_failure("a redirect leads to no internal endpoint"));
                }
            }
        }
    };
    tokio::time::timeout(spec.timeout, fetched).await.unwrap_or(Err(FetchFailed::Late))
}

/// Sends one request to an internal endpoint.
async fn ask_internal(context: &RequestContext<'_>, spec: &Fetch, url: &WebUrl) -> Fetched {
    let mut trace = RequestTrace::default();
    let mut inner = context.with_trace(&mut trace);
    inner.hops += EXTRA_HOPS;
    let (host, address) = inner.select_internal_host(&url.authority().to_string()).await.map_err(
        |error| match error {
            error_response::TOO_MANY_HOPS => FetchFailed::Loop,
            _ => unreachable_failure("no endpoint is online there"),
        },
    )?;
    let mut request = internal_fetch::build_request(spec, url)?;
    let ambiguous_paths = context.services.live.load().ambiguous_paths;
    let routed = host.route_request(request.uri().path(), ambiguous_paths);
    let (route, path) = routed.map_err(|error| unreachable_failure(error.text()))?;
    path.apply(&mut request).map_err(|error| unreachable_failure(error.text()))?;
    let response = match inner.run_internal(route.as_ref(), address, request).await {
        Ok(response) => response,
        Err(Rejection::Respond(error)) => {
            error.into_response(&context.services.settings.code_prefix)
        }
        Err(_) => return Err(unreachable_failure("the endpoint closed the connection")),
    };
    let (head, mut body) = response.into_parts();
    match gather_body(&mut body, spec.limit).await {
        Ok(BufferedBody::Whole(bytes, _)) => Ok(Response::from_parts(head, bytes)),
        Ok(BufferedBody::Begun(_)) => Err(FetchFailed::TooLong),
        Err(_) => Err(unreachable_failure("the response broke off")),
    }
}

/// Returns the prefix of error codes. `None` for the usual one.
pub(super) fn changed_code_prefix(services: &RequestServices) -> Option<String> {
    let prefix = &services.settings.code_prefix;
    (prefix != CODE_PREFIX).then(|| prefix.clone())
}

/// The keys of an issuer; none where they cannot be had.
async fn issuer_keys(
    context: &RequestContext<'_>,
    rules: &Rules,
    request: &KeyRequest,
) -> Option<Arc<KeySet>> {
    let owner = rules.owner_of(&context.route_ref);
    let keys = context.services.key_sets.get(request, (owner, rules.reach)).await;
    keys.inspect_err(|err| tracing::debug!(%err, "there are no keys of an issuer")).ok()
}

/// Brings a request that rules may have changed back into its form: the host in `Host` alone.
fn normalize_head(head: &mut request::Parts) -> Result<(), ErrorResponse> {
    let Some(authority) = head.uri.authority() else { return Ok(()) };
    let host =
        HeaderValue::from_str(authority.as_str()).map_err(|_| error_response::BAD_REQUEST)?;
    head.headers.insert(HOST, host);
    let path = head.uri.path_and_query().cloned();
    head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    Ok(())
}

/// Answers as a rule says; `prefix` stands before a code.
fn build_response(answer: LocalResponse, prefix: &str) -> Response<ResponseBody> {
    let LocalResponse { status, headers, body, code } = answer;
    let mut response = Response::new(ResponseBody::from_bytes(with_code(body, code, prefix)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    error_response::set_error_code(response.headers_mut(), code, prefix);
    response
}

/// What the service says itself, with its code behind it.
fn with_code(body: Bytes, code: Option<u16>, prefix: &str) -> Bytes {
    match code {
        Some(code) => {
            let sentence = String::from_utf8_lossy(&body);
            format!("{sentence}\n\n{prefix}{code}\n").into()
        }
        None => body,
    }
}
