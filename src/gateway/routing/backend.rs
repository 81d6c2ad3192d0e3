//! Where requests and connections go, and in which order targets are tried.
//!
//! Remote API sheet, section 7.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use crate::gateway::Inner;
use crate::gateway::http::body::Body;
use crate::gateway::http::error_response::{self, Fault};
use crate::gateway::routing::target::Undialable;
use crate::gateway::slot::Slot;
use crate::gateway::upstream::forward::Upstream;

/// How deep backends may lie in one another.
const DEPTH: usize = 8;
/// How many targets are tried for one request.
const TRIES: usize = 100;

/// Where requests and connections go.
pub(crate) struct Backend {
    /// The identifier; empty for the endpoint of an agent.
    pub id: Arc<str>,
    /// What it is.
    pub kind: Kind,
}

/// What a backend is.
pub(crate) enum Kind {
    /// Nothing: it was deleted, switched off, or never set.
    Nothing,
    /// The endpoint of an agent that is gone for now.
    Offline,
    /// One target.
    Upstream(Upstream),
    /// All online tunnels with these labels, in turn.
    Group { labels: BTreeMap<String, String>, turn: AtomicUsize },
    /// The first that can be dialed.
    Failover(Vec<Arc<Slot<Backend>>>),
    /// One at random, in proportion to its weight.
    Weighted(Vec<(u64, Arc<Slot<Backend>>)>),
    /// An answer that is always the same.
    Fixed(Fixed),
}

/// An answer that is always the same.
pub(crate) struct Fixed {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Something that can be tried.
pub(crate) enum Candidate {
    Upstream(Upstream),
    Fixed(Arc<Backend>),
}

/// The targets to try, in order; found one after the other.
pub(crate) struct Candidates<'e> {
    edges: &'e Inner,
    waiting: Vec<Waiting>,
    given: usize,
    /// True when a group without tunnels was among them.
    empty_group: bool,
    /// The backend that gave the last candidate.
    pub from: Option<Arc<str>>,
}

enum Waiting {
    Backend(Arc<Slot<Backend>>, usize),
    Upstream(Upstream, Arc<str>),
}

impl Backend {
    /// The backend of a route that has none.
    pub(crate) fn nothing() -> Self {
        Self { id: "".into(), kind: Kind::Nothing }
    }
}

impl Fixed {
    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::full(self.body.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response
    }
}

impl<'e> Candidates<'e> {
    pub(crate) fn of(edges: &'e Inner, backend: Arc<Slot<Backend>>) -> Self {
        let waiting = vec![Waiting::Backend(backend, 0)];
        Self { edges, waiting, given: 0, empty_group: false, from: None }
    }

    /// Whether others may be left.
    pub(crate) fn has_more(&self) -> bool {
        !self.waiting.is_empty() && self.given < TRIES
    }

    /// The next target to try.
    pub(crate) fn next(&mut self) -> Option<Candidate> {
        while self.has_more() {
            match self.waiting.pop()? {
                Waiting::Upstream(upstream, from) => {
                    self.given += 1;
                    self.from = Some(from);
                    return Some(Candidate::Upstream(upstream));
                }
                Waiting::Backend(slot, depth) => {
                    if let Some(candidate) = self.unfold(&slot.get(), depth) {
                        self.given += 1;
                        return Some(candidate);
                    }
                }
            }
        }
        None
    }

    /// What is said when nothing took the request; `last` is why the last target did not.
    pub(crate) fn exhausted(&self, last: Option<&Undialable>) -> Fault {
        let is_endpoint = self.from.as_deref() == Some("");
        match last {
            Some(Undialable::Offline) if is_endpoint => error_response::NO_ENDPOINT,
            Some(Undialable::Unreachable(_)) => error_response::UNREACHABLE,
            Some(Undialable::Busy) => error_response::BUSY,
            Some(Undialable::Offline) => error_response::NO_TARGET,
            None if self.empty_group => error_response::NO_TUNNEL,
            None => error_response::NO_TARGET,
        }
    }

    /// A backend that can be tried itself, or its parts put in line.
    fn unfold(&mut self, backend: &Arc<Backend>, depth: usize) -> Option<Candidate> {
        if depth >= DEPTH {
            return None;
        }
        match &backend.kind {
            Kind::Nothing | Kind::Offline => {}
            Kind::Upstream(upstream) => {
                self.from = Some(backend.id.clone());
                return Some(Candidate::Upstream(upstream.clone()));
            }
            Kind::Fixed(_) => {
                self.from = Some(backend.id.clone());
                return Some(Candidate::Fixed(backend.clone()));
            }
            Kind::Group { labels, turn } => self.group(&backend.id, labels, turn),
            Kind::Failover(children) => {
                let children = children.iter().rev().cloned();
                self.waiting.extend(children.map(|child| Waiting::Backend(child, depth + 1)));
            }
            Kind::Weighted(children) => {
                let child = pick(children).map(|child| Waiting::Backend(child, depth + 1));
                self.waiting.extend(child);
            }
        }
        None
    }

    /// Puts the tunnels of a group in line, each time starting with another one.
    fn group(&mut self, id: &Arc<str>, labels: &BTreeMap<String, String>, turn: &AtomicUsize) {
        let mut targets = match &*self.edges.groups.get() {
            Some(groups) if !labels.is_empty() => groups.matching(labels),
            _ => Vec::new(),
        };
        if targets.is_empty() {
            self.empty_group = true;
            return;
        }
        let first = turn.fetch_add(1, Relaxed) % targets.len();
        targets.rotate_left(first);
        for target in targets.into_iter().rev() {
            let pool = self.edges.pools.of(target.key());
            self.waiting.push(Waiting::Upstream(Upstream { target, pool }, id.clone()));
        }
    }
}

/// One child at random; a weight of zero is never picked.
fn pick(children: &[(u64, Arc<Slot<Backend>>)]) -> Option<Arc<Slot<Backend>>> {
    let all: u64 = children.iter().map(|(weight, _)| weight).sum();
    if all == 0 {
        return None;
    }
    let mut left = random() % all;
    let picked = children.iter().find(|(weight, _)| match left.checked_sub(*weight) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    picked.map(|(_, child)| child.clone())
}

fn random() -> u64 {
    // Which child is picked is no secret; a failing source of chance picks the first.
    getrandom::u64().unwrap_or(0)
}
