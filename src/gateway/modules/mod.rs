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
pub(crate) use headers::Changes;
pub(crate) use ip_restriction::{IpPolicies, IpRules, Restriction};

use crate::gateway::http::body::{Body, Outgoing};
use crate::gateway::http::error_response::{self, Fault};
use crate::gateway::http::request_context::Way;
use crate::gateway::routing::target::Visitor;
use crate::gateway::routing::virtual_host::{Route, Turned};
use crate::policy::Phase;
use crate::policy::user_agent::Filter;
use compression::{ALL, Coding};
use traffic_policy::Rules;

/// The modules of a route; what is none does nothing.
#[derive(Default)]
pub(crate) struct Modules {
    pub restriction: Option<Restriction>,
    pub agents: Option<Filter>,
    pub passwords: Option<Passwords>,
    /// The rule that only signed webhooks pass.
    pub webhook: Option<Rules>,
    pub policy: Option<Rules>,
    pub breaker: Option<Arc<Breaker>>,
    pub request_headers: Changes,
    pub response_headers: Changes,
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
        way: &mut Way<'_>,
        request: Request<Outgoing>,
    ) -> Result<Response<Body>, Turned> {
        self.let_in(way, &request)?;
        let coding = self.coding(&request);
        let (mut passage, entered) = self.apply_rules(route, way, request).await?;
        let response = match entered {
            Entered::Answered(response) => response,
            Entered::Goes(request) => self.send(route, way, request, passage.as_mut()).await?,
        };
        Ok(self.leave(way, passage, response, coding).await)
    }

    /// Lets a request in by who sends it, or says why not.
    fn let_in<B>(&self, way: &mut Way<'_>, request: &Request<B>) -> Result<(), Fault> {
        let turned = if !self.admits(way.visitor) {
            ("ip_restriction", error_response::BLOCKED)
        } else if !self.admits_agent(request.headers()) {
            ("user_agent_filter", error_response::AGENT_BLOCKED)
        } else if self.passwords.as_ref().is_some_and(|it| !it.allow(request.headers())) {
            ("basic_auth", error_response::UNAUTHORIZED)
        } else {
            return Ok(());
        };
        way.trace.note(|it| it.module = Some(turned.0));
        Err(turned.1)
    }

    /// Runs the rules for requests, if there are any.
    async fn apply_rules(
        &self,
        route: &Route,
        way: &mut Way<'_>,
        request: Request<Outgoing>,
    ) -> Result<(Option<traffic_policy::Passage>, Entered), Turned> {
        if self.webhook.is_none() && self.policy.is_none() {
            return Ok((None, Entered::Goes(request)));
        }
        let mut passage =
            traffic_policy::Passage::new(way, way.endpoint(route, request.headers()), request);
        let rules = [(&self.webhook, "webhook_verification"), (&self.policy, "policy")];
        for (rules, module) in rules.into_iter().filter_map(|(it, name)| Some((it.as_ref()?, name)))
        {
            match passage.enter(way, rules, module).await {
                traffic_policy::Verdict::On => {}
                traffic_policy::Verdict::Answered(response) => {
                    return Ok((Some(passage), Entered::Answered(*response)));
                }
                traffic_policy::Verdict::Turned(turned) => return Err(turned),
            }
        }
        let request = passage.take(self.responds())?;
        Ok((Some(passage), Entered::Goes(request)))
    }

    /// Sends a request to the backend, unless that is being spared.
    async fn send(
        &self,
        route: &Route,
        way: &mut Way<'_>,
        mut request: Request<Outgoing>,
        passage: Option<&mut traffic_policy::Passage>,
    ) -> Result<Response<Body>, Turned> {
        self.request_headers.apply(request.headers_mut());
        match self.try_send(route, way, request, passage).await {
            // The rules for answers may have something to say to that as well.
            Err(fault) if self.responds() => {
                Ok(fault.into_response(&way.edges.settings.code_prefix))
            }
            answer => Ok(answer?),
        }
    }

    async fn try_send(
        &self,
        route: &Route,
        way: &mut Way<'_>,
        request: Request<Outgoing>,
        passage: Option<&mut traffic_policy::Passage>,
    ) -> Result<Response<Body>, Fault> {
        let attempt = match &self.breaker {
            None => None,
            Some(breaker) => {
                let attempt = breaker.try_once(Instant::now());
                if attempt.is_none() {
                    way.trace.note(|it| it.module = Some("circuit_breaker"));
                }
                Some(attempt.ok_or(error_response::TRIPPED)?)
            }
        };
        let answer = route.send(way, request).await;
        let status = answer.as_ref().map_or_else(|it| it.status, |it| it.status().as_u16());
        if let Some(attempt) = attempt {
            attempt.ended(status < 500, Instant::now());
        }
        if let Some(passage) = passage {
            passage.answered(status);
        }
        answer
    }

    /// Readies an answer for the visitor.
    async fn leave(
        &self,
        way: &mut Way<'_>,
        passage: Option<traffic_policy::Passage>,
        mut response: Response<Body>,
        coding: Option<Coding>,
    ) -> Response<Body> {
        self.response_headers.apply(response.headers_mut());
        let rules = self.policy.as_ref().filter(|rules| rules.has(Phase::Response));
        if let (Some(rules), Some(passage)) = (rules, passage) {
            response = passage.leave(way, rules, response).await;
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
        let wanted = self.compression && request.method() != Method::HEAD;
        wanted.then(|| compression::negotiate(request.headers(), ALL))?
    }
}

/// What rules have made of a request.
enum Entered {
    Goes(Request<Outgoing>),
    Answered(Response<Body>),
}
