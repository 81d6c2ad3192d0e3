//! What is counted of public traffic.
//!
//! A route holds the handle of its edge, and a connection that of its protocol, so that a request costs
//! a few relaxed additions and two looks at the clock, and allocates nothing. Without a listener for
//! metrics there are no handles, and nothing is counted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ginnel_metrics::{CodeCounts, Collect, DurationHistogram, Families, NameTable};
use ginnel_policy::actions;

use crate::request_phase::RequestPhase;

/// The protocols of visitors, as [`Visitor::proto`](crate::Visitor) has it.
const PROTOS: [&str; 4] = ["http", "https", "tcp", "tls"];
/// What routes without an edge are called: those of agents' own addresses.
pub(crate) const ENDPOINT: &str = "endpoint";
/// Where a request counts that no route takes.
const NO_EDGE: &str = "none";

/// What is counted of all public traffic.
#[derive(Debug)]
pub struct GatewayMetrics {
    edges: NameTable<EdgeMetrics>,
    /// Of requests that no route takes.
    unrouted: Arc<EdgeMetrics>,
    bytes: [Arc<ByteCounts>; PROTOS.len()],
    /// How often an action of a policy has decided, in the order of the actions.
    decisions: [AtomicU64; actions::KINDS.len()],
    /// Rejections by the gateway itself, in the order of the phases.
    rejections: [AtomicU64; RequestPhase::ALL.len()],
    /// Whether requests have names.
    names_requests: bool,
}

/// What is counted of one edge.
#[derive(Debug)]
pub struct EdgeMetrics {
    requests: [CodeCounts; PROTOS.len()],
    durations: DurationHistogram,
    connections: [AtomicU64; PROTOS.len()],
}

/// The bytes of visitors of one protocol, without what TLS adds.
#[derive(Debug, Default)]
pub struct ByteCounts {
    received: AtomicU64,
    sent: AtomicU64,
}

/// A request under way; counts when it is dropped.
#[derive(Debug)]
pub struct RequestRecord {
    edge: Arc<EdgeMetrics>,
    proto: usize,
    started: Instant,
    /// 0 until there is a response.
    status: u16,
    is_discarded: bool,
    name: Option<Box<str>>,
}

impl GatewayMetrics {
    pub fn new(names_requests: bool) -> Self {
        let edge = || EdgeMetrics::new(names_requests);
        Self {
            edges: NameTable::new(edge()),
            unrouted: Arc::new(edge()),
            bytes: Default::default(),
            decisions: [const { AtomicU64::new(0) }; _],
            rejections: [const { AtomicU64::new(0) }; _],
            names_requests,
        }
    }

    /// The handle of an edge; of all agents' own addresses where the id is empty.
    pub fn edge_metrics(&self, id: &str) -> Arc<EdgeMetrics> {
        let name = if id.is_empty() { ENDPOINT } else { id };
        self.edges.get_or_insert(name, || EdgeMetrics::new(self.names_requests))
    }

    /// Returns true if an edge has series.
    #[cfg(test)]
    pub fn has_edge(&self, name: &str) -> bool {
        self.edges.all().into_iter().any(|(other, _)| *other == *name)
    }

    /// The handle for what no route takes.
    pub fn unrouted(&self) -> &Arc<EdgeMetrics> {
        &self.unrouted
    }

    /// The handle for the bytes of a protocol.
    pub fn protocol_bytes(&self, proto: &str) -> Arc<ByteCounts> {
        self.bytes[protocol_index(proto)].clone()
    }

    /// Counts that an action of a policy has decided.
    pub fn count_decision(&self, action: &str) {
        let place = actions::KINDS.iter().position(|kind| kind.name == action);
        if let Some(count) = place.and_then(|place| self.decisions.get(place)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// The rejections by the gateway itself in a phase.
    pub fn rejections(&self, phase: RequestPhase) -> u64 {
        self.rejections.get(phase as usize).map_or(0, |count| count.load(Relaxed))
    }

    /// Counts a rejection by the gateway itself.
    pub fn rejected(&self, phase: RequestPhase) {
        if let Some(count) = self.rejections.get(phase as usize) {
            count.fetch_add(1, Relaxed);
        }
    }
}

/// What was counted of all requests together, and the bytes of all visitors.
#[derive(Debug, Clone, Default)]
pub struct TrafficTotals {
    pub requests: u64,
    /// Of these, those with a response of 400 to 499.
    pub client_errors: u64,
    /// Of these, those with a response of 500 or more.
    pub server_errors: u64,
    /// The upper bound of each bucket of durations in seconds, and how many are in it.
    pub durations: Vec<(f64, u64)>,
    /// The bytes that visitors have sent.
    pub received: u64,
    /// The bytes that visitors were sent.
    pub sent: u64,
}

impl GatewayMetrics {
    /// What was counted so far.
    pub fn totals(&self) -> TrafficTotals {
        let mut totals = TrafficTotals::default();
        self.unrouted.add_to(&mut totals);
        for (_, edge) in self.edges.all() {
            edge.add_to(&mut totals);
        }
        totals.received = self.bytes.iter().map(|bytes| bytes.received.load(Relaxed)).sum();
        totals.sent = self.bytes.iter().map(|bytes| bytes.sent.load(Relaxed)).sum();
        totals
    }
}

impl EdgeMetrics {
    /// Counts a request that has ended.
    pub fn count_response(&self, status: u16, took: Duration) {
        self.requests[0].count_status(status);
        self.durations.observe_request(took, None);
    }

    fn add_to(&self, totals: &mut TrafficTotals) {
        for (code, count) in self.requests.iter().flat_map(CodeCounts::nonzero_counts) {
            totals.requests += count;
            match code {
                "4xx" => totals.client_errors += count,
                "5xx" => totals.server_errors += count,
                _ => {}
            }
        }
        let durations = self.durations.buckets();
        if totals.durations.is_empty() {
            totals.durations = durations;
        } else {
            let counts = totals.durations.iter_mut().zip(durations);
            counts.for_each(|((_, total), (_, count))| *total += count);
        }
    }
}

impl EdgeMetrics {
    fn new(names_requests: bool) -> Self {
        Self {
            requests: Default::default(),
            durations: DurationHistogram::new(names_requests),
            connections: Default::default(),
        }
    }

    /// Counts a connection of bytes.
    pub fn count_connection(&self, proto: &str) {
        self.connections[protocol_index(proto)].fetch_add(1, Relaxed);
    }
}

impl ByteCounts {
    pub fn count_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    pub fn count_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
    }
}

impl RequestRecord {
    /// A request that arrives now.
    pub fn begin(edge: Arc<EdgeMetrics>, proto: &str) -> Self {
        let (proto, started) = (protocol_index(proto), Instant::now());
        Self { edge, proto, started, status: 0, is_discarded: false, name: None }
    }

    /// Counts it for another edge.
    pub fn set_edge(&mut self, edge: Arc<EdgeMetrics>) {
        self.edge = edge;
    }

    /// Names it.
    pub fn set_name(&mut self, name: Option<&str>) {
        self.name = name.map(Into::into);
    }

    /// Leaves it to others to count it.
    pub fn discard(&mut self) {
        self.is_discarded = true;
    }

    /// Notes the status of its response.
    pub fn set_status(&mut self, status: u16) {
        self.status = status;
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        if self.is_discarded {
            return;
        }
        self.edge.requests[self.proto].count_status(self.status);
        self.edge.durations.observe_request(self.started.elapsed(), self.name.as_deref());
    }
}

/// The place of a protocol in [`PROTOS`].
fn protocol_index(proto: &str) -> usize {
    PROTOS.iter().position(|known| *known == proto).unwrap_or_default()
}

impl Collect for GatewayMetrics {
    fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let mut edges = self.edges.all();
        edges.push((NO_EDGE.into(), self.unrouted.clone()));
        collect_edges(&edges, families)?;
        self.collect_bytes(families)?;
        let help = "Requests and connections that an action of a traffic policy has decided on.";
        let mut family = families.counter("ginnel_policy_decisions", help)?;
        for (kind, count) in actions::KINDS.iter().zip(&self.decisions) {
            family.write_counter(&[("action", kind.name)], count.load(Relaxed))?;
        }
        let help = "Requests and connections that the gateway itself has rejected, by phase.";
        let mut family = families.counter("ginnel_visitor_rejections", help)?;
        for (phase, count) in RequestPhase::ALL.iter().zip(&self.rejections) {
            count_some(&mut family, &[("phase", phase.name())], count)?;
        }
        Ok(())
    }
}

impl GatewayMetrics {
    fn collect_bytes(&self, families: &mut Families<'_>) -> fmt::Result {
        type Count = fn(&ByteCounts) -> &AtomicU64;
        let directions: [(&str, &str, Count); 2] = [
            ("ginnel_visitor_received_bytes", "Bytes that visitors have sent.", |it| &it.received),
            ("ginnel_visitor_sent_bytes", "Bytes that visitors were sent.", |it| &it.sent),
        ];
        for (name, help, count) in directions {
            let mut family = families.counter(name, help)?;
            for (proto, bytes) in PROTOS.iter().zip(&self.bytes) {
                family.write_counter(&[("proto", proto)], count(bytes).load(Relaxed))?;
            }
        }
        Ok(())
    }
}

/// Writes what is counted by edge; what never happened has no series.
fn collect_edges(
    edges: &[(Arc<str>, Arc<EdgeMetrics>)],
    families: &mut Families<'_>,
) -> fmt::Result {
    let help = "Requests of visitors, by edge, protocol and class of the response.";
    let mut family = families.counter("ginnel_http_requests", help)?;
    for (id, edge) in edges {
        for (proto, codes) in PROTOS.iter().zip(&edge.requests) {
            for (code, count) in codes.nonzero_counts() {
                family.write_counter(&[("edge", id), ("proto", proto), ("code", code)], count)?;
            }
        }
    }
    let help = "From the head of a request to the end of its response.";
    let mut family = families.histogram("ginnel_http_request_duration_seconds", help)?;
    for (id, edge) in edges.iter().filter(|(_, edge)| edge.has_requests()) {
        family.write_durations(&[("edge", id)], &edge.durations)?;
    }
    let help = "Connections of visitors that carry bytes, by edge and protocol.";
    let mut family = families.counter("ginnel_stream_connections", help)?;
    for (id, edge) in edges {
        for (proto, count) in PROTOS.iter().zip(&edge.connections) {
            count_some(&mut family, &[("edge", id), ("proto", proto)], count)?;
        }
    }
    Ok(())
}

fn count_some(
    family: &mut ginnel_metrics::Family<'_>,
    labels: &[(&'static str, &str)],
    count: &AtomicU64,
) -> fmt::Result {
    match count.load(Relaxed) {
        0 => Ok(()),
        count => family.write_counter(labels, count),
    }
}

impl EdgeMetrics {
    fn has_requests(&self) -> bool {
        self.requests.iter().any(|codes| codes.nonzero_counts().next().is_some())
    }
}
