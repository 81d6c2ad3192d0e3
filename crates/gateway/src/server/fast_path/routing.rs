//! What the fast path asks of whoever knows the visitor and the routes.

use std::sync::Arc;
use std::time::Duration;

use ginnel_http1::RequestHead;
use ginnel_policy::head_change::HeadChange;

use crate::message::connection_activity::ActiveRequest;
use crate::message::forwarded::VisitorOrigin;
use crate::message::visitor::{RouteRef, Visitor};
use crate::metrics::EdgeMetrics;
use crate::request_phase::RequestPhase;
use crate::upstream::forward::Upstream;

/// What the fast path asks of whoever knows the visitor and the routes.
pub trait RequestRouting {
    fn visitor(&self) -> &Visitor;

    /// Whether the other side is a proxy that says for whom it comes.
    fn trusts_peer(&self) -> bool;

    fn origin(&self) -> &VisitorOrigin;

    /// Marks the beginning of an answer.
    fn track_request(&self) -> ActiveRequest;

    /// Maximum time until an upstream begins its response. `None` removes the limit.
    fn response_timeout(&self) -> Option<Duration>;

    /// How long opening a connection to an upstream may take.
    fn dial_timeout(&self) -> Duration;

    /// Counts a rejection by the gateway itself.
    fn count_rejection(&self, phase: RequestPhase);

    /// What stands before the number of a code.
    fn code_prefix(&self) -> &str;

    /// Where a request is only carried to, with nothing done on the way but changes of its head; none in
    /// all other cases.
    fn fast_path_target(
        &self,
        head: &RequestHead<'_, '_>,
        host: &str,
        path: &str,
    ) -> Option<FastPathTarget>;

    /// Whether a host may be served elsewhere than at the node with this key.
    fn has_another_place(&self, host: &str, key: &str) -> bool;
}

/// A node that has failed with a request, which others may take now.
#[derive(Debug, Clone)]
pub struct NodeFailure {
    pub key: String,
    /// It has no agent there; else it ended with the request.
    pub has_no_agent: bool,
}

/// Where a request is carried to.
pub struct FastPathTarget {
    pub upstream: Upstream,
    pub route_ref: RouteRef,
    /// What modules change about the head.
    pub changes: Vec<Arc<HeadChange>>,
    /// Where it is counted; none where nobody scrapes.
    pub metrics: Option<Arc<EdgeMetrics>>,
}
