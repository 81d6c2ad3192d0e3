//! Where requests and connections go, and in which order targets are tried.
//!
//! Remote API sheet, section 7.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use crate::message::error_response::{self, ErrorResponse};
use crate::message::response_body::ResponseBody;
use crate::routing::agent_return::WaitingPlaces;
use crate::upstream::forward::Upstream;
use crate::upstream::pool::UpstreamPools;
use crate::upstream::target::{DialError, Target, TunnelGroups};

/// How deep backends may lie in one another.
const MAX_DEPTH: usize = 8;
/// How many targets are tried for one request.
const MAX_CANDIDATES: usize = 100;

/// Where requests and connections go.
pub struct Backend {
    /// The identifier; empty for the endpoint of an agent.
    pub id: Arc<str>,
    /// What it is.
    pub kind: BackendKind,
}

/// What a backend is.
pub enum BackendKind {
    /// Nothing: it was deleted, switched off, or never set.
    Nothing,
    /// The endpoint of an agent that is gone for now: since when, if it was lost and not stopped.
    Offline(Option<Instant>),
    /// One target.
    Upstream(Upstream),
    /// Endpoints that share an address: the one whose modules a request went through, then those with the
    /// same options.
    Pool { first: Option<Upstream>, all: Arc<[Upstream]> },
    /// All online tunnels with these labels, in turn.
    Group { labels: BTreeMap<String, String>, turn: AtomicUsize },
    /// The first that can be dialed.
    Failover(Vec<Arc<ArcSwap<Backend>>>),
    /// One at random, in proportion to its weight.
    Weighted(Vec<(u64, Arc<ArcSwap<Backend>>)>),
    /// An answer that is always the same.
    Fixed(FixedResponse),
}

/// An answer that is always the same.
pub struct FixedResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The targets that backends lead to, with their idle connections.
pub struct TargetDirectory {
    /// The idle connections of all targets.
    pub pools: UpstreamPools,
    /// The tunnels of labels.
    groups: ArcSwap<Option<Arc<dyn TunnelGroups>>>,
    /// The places of requests that wait for an agent that was lost.
    pub waiting_places: WaitingPlaces,
}

/// Something that can be tried.
pub enum BackendCandidate {
    Upstream(Upstream),
    Fixed(Arc<Backend>),
}

/// The targets to try, in order; found one after the other.
pub struct BackendCandidates<'e> {
    targets: &'e TargetDirectory,
    pending: Vec<PendingCandidate>,
    tried: usize,
    /// True when a group without tunnels was among them.
    empty_group: bool,
    /// When an agent was lost that one of them led to, the last of several.
    pub lost: Option<Instant>,
    /// The backend that gave the last candidate.
    pub from: Option<Arc<str>>,
}

enum PendingCandidate {
    Backend(Arc<ArcSwap<Backend>>, usize),
    /// An endpoint that shares its address with others.
    Endpoint(Upstream),
    /// A tunnel of the group with this identifier.
    Tunnel(Arc<dyn Target>, Arc<str>),
}

impl Backend {
    /// The backend of a route that has none.
    pub fn nothing() -> Self {
        Self { id: "".into(), kind: BackendKind::Nothing }
    }
}

impl TargetDirectory {
    /// A directory that keeps at most `max_idle` idle connections for each way to a target.
    pub fn new(max_idle: usize) -> Self {
        Self {
            pools: UpstreamPools::new(max_idle),
            groups: ArcSwap::from_pointee(None),
            waiting_places: WaitingPlaces::default(),
        }
    }

    /// Finds the tunnels of labels in `groups` from now on.
    pub fn find_tunnels_in(&self, groups: Arc<dyn TunnelGroups>) {
        self.groups.store(Arc::new(Some(groups)));
    }

    /// Returns a target with its connections.
    pub fn upstream(&self, target: Arc<dyn Target>) -> Upstream {
        let pool = self.pools.pool_for_target(target.as_ref());
        Upstream { target, pool }
    }
}

impl FixedResponse {
    pub fn to_response(&self) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::from_bytes(self.body.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response
    }
}

impl<'e> BackendCandidates<'e> {
    pub fn for_backend(targets: &'e TargetDirectory, backend: Arc<ArcSwap<Backend>>) -> Self {
        let pending = vec![PendingCandidate::Backend(backend, 0)];
        Self { targets, pending, tried: 0, empty_group: false, lost: None, from: None }
    }

    /// Whether others may be left.
    pub fn has_more(&self) -> bool {
        !self.pending.is_empty() && self.tried < MAX_CANDIDATES
    }

    /// The next target to try.
    pub fn next_candidate(&mut self) -> Option<BackendCandidate> {
        while self.has_more() {
            match self.pending.pop()? {
                PendingCandidate::Tunnel(target, from) => {
                    self.tried += 1;
                    self.from = Some(from);
                    return Some(BackendCandidate::Upstream(self.targets.upstream(target)));
                }
                PendingCandidate::Endpoint(upstream) => {
                    self.tried += 1;
                    self.from = Some("".into());
                    return Some(BackendCandidate::Upstream(upstream));
                }
                PendingCandidate::Backend(slot, depth) => {
                    if let Some(candidate) = self.unfold_backend(&slot.load_full(), depth) {
                        self.tried += 1;
                        return Some(candidate);
                    }
                }
            }
        }
        None
    }

    /// What is said when nothing took the request; `last` is why the last target did not.
    pub fn exhausted_error(&self, last: Option<&DialError>) -> ErrorResponse {
        let is_endpoint = self.from.as_deref() == Some("");
        match last {
            None if is_endpoint => error_response::NO_ENDPOINT,
            Some(DialError::Offline) if is_endpoint => error_response::NO_ENDPOINT,
            Some(DialError::Unreachable(_) | DialError::Reset) => error_response::UNREACHABLE,
            Some(DialError::Busy) => error_response::BUSY,
            Some(DialError::Offline) => error_response::NO_TARGET,
            None if self.empty_group => error_response::NO_TUNNEL,
            None => error_response::NO_TARGET,
        }
    }

    /// A backend that can be tried itself, or its parts put in line.
    fn unfold_backend(&mut self, backend: &Arc<Backend>, depth: usize) -> Option<BackendCandidate> {
        if depth >= MAX_DEPTH {
            return None;
        }
        match &backend.kind {
            BackendKind::Nothing => {}
            BackendKind::Offline(lost) => {
                self.from = Some(backend.id.clone());
                self.lost = self.lost.max(*lost);
            }
            BackendKind::Upstream(upstream) => {
                self.from = Some(backend.id.clone());
                return Some(BackendCandidate::Upstream(upstream.clone()));
            }
            BackendKind::Fixed(_) => {
                self.from = Some(backend.id.clone());
                return Some(BackendCandidate::Fixed(backend.clone()));
            }
            BackendKind::Pool { first, all } => self.queue_pool(first.as_ref(), all),
            BackendKind::Group { labels, turn } => self.queue_group(&backend.id, labels, turn),
            BackendKind::Failover(children) => {
                let children = children.iter().rev().cloned();
                self.pending
                    .extend(children.map(|child| PendingCandidate::Backend(child, depth + 1)));
            }
            BackendKind::Weighted(children) => {
                let child =
                    pick_child(children).map(|child| PendingCandidate::Backend(child, depth + 1));
                self.pending.extend(child);
            }
        }
        None
    }

    /// Puts endpoints that share an address in line: one of them first, the others from a place at random.
    fn queue_pool(&mut self, first: Option<&Upstream>, all: &[Upstream]) {
        let (before, after) = all.split_at(random_below(all.len()));
        let is_other =
            |one: &&Upstream| first.is_none_or(|first| one.target.key() != first.target.key());
        let others = after.iter().chain(before).filter(is_other).take(MAX_CANDIDATES);
        let mut line: Vec<_> = first.into_iter().chain(others).cloned().collect();
        line.reverse();
        self.pending.extend(line.into_iter().map(PendingCandidate::Endpoint));
    }

    /// Puts the tunnels of a group in line, each time starting with another one.
    fn queue_group(
        &mut self,
        id: &Arc<str>,
        labels: &BTreeMap<String, String>,
        turn: &AtomicUsize,
    ) {
        let most = MAX_CANDIDATES - self.tried;
        let groups = self.targets.groups.load_full();
        let groups = (*groups).as_ref().filter(|_| !labels.is_empty());
        let targets =
            groups.map(|it| it.matching_targets(labels, turn.fetch_add(1, Relaxed), most));
        let targets = targets.unwrap_or_default();
        if targets.is_empty() {
            self.lost = self.lost.max(groups.and_then(|groups| groups.agent_lost_at(labels)));
        }
        self.empty_group |= targets.is_empty();
        let targets = targets.into_iter().rev();
        self.pending.extend(targets.map(|target| PendingCandidate::Tunnel(target, id.clone())));
    }
}

/// One child at random; a weight of zero is never picked.
fn pick_child(children: &[(u64, Arc<ArcSwap<Backend>>)]) -> Option<Arc<ArcSwap<Backend>>> {
    let all: u64 = children.iter().map(|(weight, _)| weight).sum();
    if all == 0 {
        return None;
    }
    let mut left = random_number() % all;
    let picked = children.iter().find(|(weight, _)| match left.checked_sub(*weight) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    picked.map(|(_, child)| child.clone())
}

/// A number from 0 to one below this, or 0.
pub fn random_below(limit: usize) -> usize {
    /// Counts in steps that no limit divides; what is made of the count looks random, without a system call.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut number = COUNT.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
    usize::try_from((number ^ (number >> 31)) % limit).unwrap_or(0)
}

fn random_number() -> u64 {
    // Which child is picked is no secret; a failing source of chance picks the first.
    getrandom::u64().unwrap_or(0)
}
