//! What is done with requests and answers on their way, module by module.
//!
//! Remote API sheet, section 6, gives the order: who may come, what the request becomes, whether
//! the backend is spared; then what the answer becomes.

pub(crate) mod compression;
mod headers;
mod ip_restriction;
pub(crate) mod traffic_policy;
pub(crate) mod websocket_tcp;

use std::sync::Arc;
use std::time::Instant;

use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Request, Response};

pub(crate) use crate::policy::credentials::Passwords;
pub(crate) use crate::policy::state::breaker::{self, Breaker};
pub(crate) use headers::HeaderEdits;
pub(crate) use ip_restriction::{IpPolicies, IpRestrictions, IpRules};

use crate::gateway::http::body::{Body, RequestBody};
use crate::gateway::http::error_response::{self, ErrorResponse};
use crate::gateway::http::request_context::RequestContext;
use crate::gateway::routing::target::Visitor;
use crate::gateway::routing::virtual_host::{Rejection, Route};
use crate::policy::Phase;
use crate::policy::user_agent::Filter;
use compression::{ALL, Coding};
use traffic_policy::Rules;

/// The modules of a route; what is none does nothing.
#[derive(Default)]
pub(crate) struct Modules {
    pub restriction: Option<IpRestrictions>,
    pub agents: Option<Filter>,
    pub passwords: Option<Passwords>,
    /// The rule that only signed webhooks pass.
    pub webhook: Option<Rules>,
    pub policy: Option<Rules>,
    pub breaker: Option<Arc<Breaker>>,
    pub request_headers: HeaderEdits,
    pub response_headers: HeaderEdits,
    pub compression: bool,
    /// WebSockets become connections of bytes.
    pub converter: bool,
}

impl Modules {
    /// True when no module does anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.restriction.is_none()
            && self.agents.is_none()
            && self.passwords.is_none()
            && self.webhook.is_none()
            && self.policy.is_none()
            && self.breaker.is_none()
            && self.request_headers.is_empty()
            && self.response_headers.is_empty()
            && !self.compression
            && !self.converter
    }

    /// Whether a module looks at the paths of requests.
    pub(crate) fn read_paths(&self) -> bool {
        self.policy.as_ref().is_some_and(Rules::read_paths)
    }

    /// Whether a visitor may come from its address.
    pub(crate) fn admits(&self, visitor: &Visitor) -> bool {
        self.restriction.as_ref().is_none_or(|it| it.allows(visitor.peer.ip()))
    }

    /// Takes a request through all modules, to the backend of its route and back.
    pub(crate) async fn serve(
        &self,
        route: &Route,
        context: &mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, Rejection> {
        self.let_in(context, &request)?;
        let coding = self.coding(&request);
        let (mut execution, entered) = self.apply_rules(route, context, request).await?;
        let response = match entered {
            PolicyResult::Respond(response) => response,
            PolicyResult::Continue(request) => {
                self.send(route, context, request, execution.as_mut()).await?
            }
        };
        Ok(self.leave(context, execution, response, coding).await)
    }

    /// Lets a request in by who sends it, or says why not.
    fn let_in<B>(
        &self,
        context: &mut RequestContext<'_>,
        request: &Request<B>,
    ) -> Result<(), ErrorResponse> {
        let rejection = if !self.admits(context.visitor) {
            ("ip_restriction", error_response::BLOCKED)
        } else if !self.admits_agent(request.headers()) {
            ("user_agent_filter", error_response::AGENT_BLOCKED)
        } else if self.passwords.as_ref().is_some_and(|it| !it.allow(request.headers())) {
            ("basic_auth", error_response::UNAUTHORIZED)
        } else {
            return Ok(());
        };
        context.trace.note(|it| it.module = Some(rejection.0));
        Err(rejection.1)
    }

    /// Runs the rules for requests, if there are any.
    async fn apply_rules(
        &self,
        route: &Route,
        context: &mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> Result<(Option<traffic_policy::PolicyExecution>, PolicyResult), Rejection> {
        if self.webhook.is_none() && self.policy.is_none() {
            return Ok((None, PolicyResult::Continue(request)));
        }
        let mut execution = traffic_policy::PolicyExecution::new(
            context,
            context.endpoint(route, request.headers()),
            request,
        );
        let rules = [(&self.webhook, "webhook_verification"), (&self.policy, "policy")];
        for (rules, module) in rules.into_iter().filter_map(|(it, name)| Some((it.as_ref()?, name)))
        {
            match execution.enter(context, rules, module).await {
                traffic_policy::ExecutionOutcome::Continue => {}
                traffic_policy::ExecutionOutcome::Respond(response) => {
                    return Ok((Some(execution), PolicyResult::Respond(*response)));
                }
                traffic_policy::ExecutionOutcome::Reject(rejection) => return Err(rejection),
            }
        }
        let request = execution.take(self.responds())?;
        Ok((Some(execution), PolicyResult::Continue(request)))
    }

    /// Sends a request to the backend, unless that is being spared.
    async fn send(
        &self,
        route: &Route,
        context: &mut RequestContext<'_>,
        mut request: Request<RequestBody>,
        execution: Option<&mut traffic_policy::PolicyExecution>,
    ) -> Result<Response<Body>, Rejection> {
        self.request_headers.apply(request.headers_mut());
        match self.try_send(route, context, request, execution).await {
            // The rules for answers may have something to say to that as well.
            Err(error) if self.responds() => {
                Ok(error.into_response(&context.gateway.settings.code_prefix))
            }
            answer => Ok(answer?),
        }
    }

    async fn try_send(
        &self,
        route: &Route,
        context: &mut RequestContext<'_>,
        request: Request<RequestBody>,
        execution: Option<&mut traffic_policy::PolicyExecution>,
    ) -> Result<Response<Body>, ErrorResponse> {
        let attempt = match &self.breaker {
            None => None,
            Some(breaker) => {
                let attempt = breaker.try_once(Instant::now());
                if attempt.is_none() {
                    context.trace.note(|it| it.module = Some("circuit_breaker"));
                }
                Some(attempt.ok_or(error_response::TRIPPED)?)
            }
        };
        let answer = route.send(context, request).await;
        let status = answer.as_ref().map_or_else(|it| it.status, |it| it.status().as_u16());
        if let Some(attempt) = attempt {
            attempt.ended(status < 500, Instant::now());
        }
        if let Some(execution) = execution {
            execution.answered(status);
        }
        answer
    }

    /// Readies an answer for the visitor.
    async fn leave(
        &self,
        context: &mut RequestContext<'_>,
        execution: Option<traffic_policy::PolicyExecution>,
        mut response: Response<Body>,
        coding: Option<Coding>,
    ) -> Response<Body> {
        self.response_headers.apply(response.headers_mut());
        let rules = self.policy.as_ref().filter(|rules| rules.has(Phase::Response));
        if let (Some(rules), Some(execution)) = (rules, execution) {
            response = execution.leave(context, rules, response).await;
        }
        match coding {
            Some(coding) => compression::compress(response, coding),
            None => response,
        }
    }

    fn responds(&self) -> bool {
        self.policy.as_ref().is_some_and(|rules| rules.has(Phase::Response))
    }

    fn admits_agent(&self, headers: &HeaderMap) -> bool {
        let agents = headers.get_all(header::USER_AGENT).iter().map(HeaderValue::as_bytes);
        self.agents.as_ref().is_none_or(|filter| filter.allows(agents))
    }

    fn coding<B>(&self, request: &Request<B>) -> Option<Coding> {
        let spec = self.compression && request.method() != Method::HEAD;
        spec.then(|| compression::negotiate(request.headers(), ALL))?
    }
}

/// What rules have made of a request.
enum PolicyResult {
    Continue(Request<RequestBody>),
    Respond(Response<Body>),
}
