//! What is done with requests and answers on their way, module by module.
//!
//! Remote API sheet, section 6, gives the order: who may come, what the request becomes, whether
//! the backend is spared; then what the answer becomes.

pub(super) mod compress;

mod headers;
mod restriction;

use std::sync::Arc;
use std::time::Instant;

use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Request, Response};

pub(super) use crate::policy::credentials::Passwords;
pub(super) use crate::policy::state::breaker::{self, Breaker};
pub(super) use headers::Changes;
pub(super) use restriction::{IpRules, Restriction};

use super::body::Body;
use super::fault::{self, Fault};
use super::site::Way;
use super::target::Visitor;
use crate::policy::user_agent::Filter;
use breaker::Attempt;
use compress::{ALL, Coding};

/// The modules of a route; what is none does nothing.
#[derive(Default)]
pub(super) struct Modules {
    pub restriction: Option<Restriction>,
    pub agents: Option<Filter>,
    pub passwords: Option<Passwords>,
    pub breaker: Option<Arc<Breaker>>,
    pub request_headers: Changes,
    pub response_headers: Changes,
    pub compression: bool,
    /// WebSockets become connections of bytes.
    pub converter: bool,
}

/// What the modules remember of a request until its answer comes.
pub(super) struct Passage {
    attempt: Option<Attempt>,
    coding: Option<Coding>,
}

impl Modules {
    /// True when no module does anything.
    pub(super) fn is_empty(&self) -> bool {
        self.restriction.is_none()
            && self.agents.is_none()
            && self.passwords.is_none()
            && self.breaker.is_none()
            && self.request_headers.is_empty()
            && self.response_headers.is_empty()
            && !self.compression
            && !self.converter
    }

    /// Lets a visitor of bytes in, or not.
    pub(super) fn admits(&self, visitor: &Visitor) -> bool {
        self.restriction.as_ref().is_none_or(|it| it.allows(visitor.peer.ip()))
    }

    /// Lets a request in, or says why not.
    pub(super) fn enter<B>(
        &self,
        way: &mut Way<'_>,
        request: &mut Request<B>,
    ) -> Result<Passage, Fault> {
        let mut turned = |module, fault| {
            way.trace.note(|it| it.module = Some(module));
            Err(fault)
        };
        if !self.admits(way.visitor) {
            return turned("ip_restriction", fault::BLOCKED);
        }
        if !self.admits_agent(request.headers()) {
            return turned("user_agent_filter", fault::AGENT_BLOCKED);
        }
        if self.passwords.as_ref().is_some_and(|it| !it.allow(request.headers())) {
            return turned("basic_auth", fault::UNAUTHORIZED);
        }
        let coding = self.coding(request);
        let attempt = self.breaker.as_ref().map(|breaker| breaker.try_once(Instant::now()));
        let attempt = match attempt {
            Some(None) => return turned("circuit_breaker", fault::TRIPPED),
            attempt => attempt.flatten(),
        };
        self.request_headers.apply(request.headers_mut());
        Ok(Passage { attempt, coding })
    }

    /// Readies the answer; a fault counts as the failure that it is.
    pub(super) fn leave(
        &self,
        passage: Passage,
        answer: Result<Response<Body>, Fault>,
    ) -> Result<Response<Body>, Fault> {
        if let Some(attempt) = passage.attempt {
            let status = answer.as_ref().map_or_else(|it| it.status, |it| it.status().as_u16());
            attempt.ended(status < 500, Instant::now());
        }
        let mut response = answer?;
        self.response_headers.apply(response.headers_mut());
        Ok(match passage.coding {
            Some(coding) => compress::compress(response, coding),
            None => response,
        })
    }

    fn admits_agent(&self, headers: &HeaderMap) -> bool {
        let agent = headers.get(header::USER_AGENT).map(HeaderValue::as_bytes);
        self.agents.as_ref().is_none_or(|filter| filter.allows(agent))
    }

    fn coding<B>(&self, request: &Request<B>) -> Option<Coding> {
        let wanted = self.compression && request.method() != Method::HEAD;
        wanted.then(|| compress::negotiate(request.headers(), ALL))?
    }
}
