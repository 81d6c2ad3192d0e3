//! What a service shows to whoever watches it: whether it is ready, and its figures.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ginnel_api::Info;
use ginnel_base::address::HostPort;
use ginnel_metrics::{Collect, DurationHistogram, Families};
use ginnel_net::admin::{AdminListener, MonitorTarget, ReadyFor};
use ginnel_net::{ConnectionCounts, ConnectionLimit};
use ginnel_settings::settings;

use super::agents::AgentListener;
use super::cluster::{Cluster, UnreachableNode};
use super::context::ServiceState;
use super::error::Error;
use super::handlers;

settings! {
    /// How a service is watched.
    #[derive(Debug, Clone)]
    pub struct MonitoringSettings {
    }

    /// The setting of the admin address.
    address {
        admin_addr: Option<HostPort> = None,
            "admin_addr", "HOST:PORT",
            "Address of /healthz, /readyz and /metrics, such as 127.0.0.1:4090",
            listed_in_help(), when_unset("nowhere, and nothing is counted"), with_keyword();
    }

    /// The setting of the end.
    draining {
        drain_delay: Duration = Duration::ZERO,
            "drain_delay", "DURATION",
            "Time for which /readyz fails before listeners close when stopping",
            with_bounds(0, 3_600_000), live();
    }
}

/// A service from its start to its end, as others watch it.
#[derive(Default)]
pub(super) struct ServiceMonitor {
    /// Set when everything listens; dropped by the service before its end.
    state: OnceLock<Weak<ServiceState>>,
    limits: OnceLock<Vec<Arc<ConnectionLimit>>>,
    draining: AtomicBool,
}

impl ServiceMonitor {
    /// Listens for monitoring systems, if the settings name an address.
    pub(super) async fn listen(
        self: &Arc<Self>,
        settings: &MonitoringSettings,
    ) -> Result<Option<AdminListener>, Error> {
        let Some(address) = &settings.admin_addr else { return Ok(None) };
        let started = AdminListener::start(address, self.clone()).await;
        let failed = |source| Error::AdminAddress { address: address.to_string(), source };
        started.map(Some).map_err(failed)
    }

    /// Everything listens, and the routes are loaded.
    pub(super) fn mark_started(
        &self,
        state: &Arc<ServiceState>,
        api: &Arc<ConnectionLimit>,
        agents: Option<&AgentListener>,
    ) {
        let gateway = state.gateway.connection_limit().clone();
        let agents = agents.map(|agents| agents.limit().clone());
        let limits = [Some(gateway), Some(api.clone()), agents];
        self.limits.get_or_init(|| limits.into_iter().flatten().collect());
        self.state.get_or_init(|| Arc::downgrade(state));
    }

    /// Takes no more connections soon.
    pub(super) fn mark_draining(&self) {
        self.draining.store(true, Relaxed);
    }

    fn upgrade_state(&self) -> Option<Arc<ServiceState>> {
        self.state.get()?.upgrade()
    }
}

impl MonitorTarget for ServiceMonitor {
    fn unready_reasons(&self, purpose: ReadyFor) -> Vec<String> {
        if self.draining.load(Relaxed) {
            return vec!["draining: the service is stopping".to_owned()];
        }
        let Some(state) = self.upgrade_state() else {
            return vec!["starting: listeners and routes are not all there yet".to_owned()];
        };
        let closing = state.gateway.is_closing();
        let closing = closing.then(|| "listeners: public traffic is not taken".to_owned());
        let unwritable =
            (purpose == ReadyFor::Writes).then(|| state.store.fault_message()).flatten();
        let unwritable = unwritable.map(|fault| format!("store: {fault}"));
        let unsaved = (purpose == ReadyFor::Backups).then(|| backup_failure(&state)).flatten();
        let unmet = state.peers.as_ref().map(|peers| peers.unmet_nodes()).unwrap_or_default();
        let unmet = unmet
            .into_iter()
            .map(|name| format!("cluster: there is no session with the node {name:?} yet"));
        closing.into_iter().chain(unmet).chain(unwritable).chain(unsaved).collect()
    }

    fn warnings(&self) -> Vec<String> {
        let Some(state) = self.upgrade_state() else { return Vec::new() };
        let cluster = state.cluster.as_ref().map(|cluster| cluster_warnings(cluster));
        let cluster = cluster.into_iter().flatten().chain(unreachable_nodes(&state));
        let policies = refused_policies(&state).into_iter().chain(paused_deletion(&state));
        let policies = policies.chain(refused_backends(&state));
        let backends = unverified_backends(&state);
        backup_failure(&state).into_iter().chain(cluster).chain(policies).chain(backends).collect()
    }

    fn metric_collectors(&self) -> Vec<Box<dyn Collect>> {
        let Some(state) = self.upgrade_state() else { return Vec::new() };
        let limits = self.limits.get().cloned().unwrap_or_default();
        let mut figures: Vec<Box<dyn Collect>> = Vec::new();
        if let Some(metrics) = state.gateway.metrics() {
            figures.push(Box::new(metrics.clone()));
        }
        figures.push(Box::new(state.gateway.logins().clone()));
        figures.push(Box::new(ServiceFigures { state, limits }));
        figures
    }
}

/// What is wrong in the cluster; traffic goes on meanwhile.
fn cluster_warnings(cluster: &Cluster) -> Vec<String> {
    let blind = cluster
        .stale_news_age()
        .map(|age| format!("cluster: no news from the database for {} s", age.as_secs()));
    let now = Instant::now();
    let nodes = cluster.directory.nodes().into_iter().filter(|node| node.is_lapsed(now));
    let lapsed = nodes.map(|node| format!("cluster: the node {:?} has lapsed", node.record.name));
    blind.into_iter().chain(lapsed).collect()
}

/// The nodes with which there is no session.
fn unreachable_nodes(state: &ServiceState) -> Vec<String> {
    let nodes = state.peers.as_ref().map(|peers| peers.unreachable_nodes()).unwrap_or_default();
    let describe = |node: UnreachableNode| {
        let (name, seconds) = (node.name, node.since.elapsed().as_secs());
        format!("cluster: no session with the node {name:?} for {seconds} s: {}", node.cause)
    };
    nodes.into_iter().map(describe).collect()
}

/// The stored policies that are refused: an earlier version accepted them.
pub(super) fn refused_policies(state: &ServiceState) -> Vec<String> {
    let refused = state.publisher.policies.refused_policies().into_iter();
    let describe = |(owner, problem)| {
        format!("policy: that of {owner} is refused, and its visitors get a 503: {problem}")
    };
    refused.map(describe).collect()
}

/// The static backends over TLS whose certificates are not verified.
fn unverified_backends(state: &ServiceState) -> Option<String> {
    let names = state.publisher.flawed_backends.unverified_names();
    let listed = names.join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "backends: the certificates of these static backends are not verified: {listed}; set tls.verify to true"
        )
    })
}

/// The static backends whose stored addresses are refused.
fn refused_backends(state: &ServiceState) -> Vec<String> {
    let refused = state.publisher.flawed_backends.refused_addresses().into_iter();
    let describe = |(id, problem)| {
        format!("backend: the address of {id} is refused, and its visitors get a 503: {problem}")
    };
    refused.map(describe).collect()
}

/// The pause after a leap of the clock.
fn paused_deletion(state: &ServiceState) -> Option<String> {
    let minutes = state.store.age_clock().remaining_pause()?.as_secs().div_ceil(60);
    Some(format!(
        "clock: it has leapt, and nothing is deleted for its age for {minutes} more minutes; if it is right, confirm \
         it with `ginnel api clock confirm`"
    ))
}

/// Why there is no backup since the last one, if it failed.
fn backup_failure(state: &ServiceState) -> Option<String> {
    state.backups.status().error.map(|error| format!("backups: the last one failed: {error}"))
}

/// What is counted of the operations of the management API.
pub(super) struct ApiMetrics(BTreeMap<(&'static str, &'static str), OperationMetrics>);

struct OperationMetrics {
    durations: DurationHistogram,
    /// How many responses there were, by status.
    codes: Mutex<BTreeMap<u16, u64>>,
}

impl Default for ApiMetrics {
    fn default() -> Self {
        let operation = |info: &'static Info| {
            let durations = DurationHistogram::new(true);
            ((info.resource, info.name), OperationMetrics { durations, codes: Mutex::default() })
        };
        Self(handlers::handled_operations().into_iter().map(operation).collect())
    }
}

impl ApiMetrics {
    /// Counts a response to an operation, with the name of its request.
    pub(super) fn record_response(
        &self,
        info: &Info,
        status: u16,
        took: Duration,
        name: Option<&str>,
    ) {
        let Some(operation) = self.0.get(&(info.resource, info.name)) else { return };
        operation.durations.observe_request(took, name);
        let mut codes = operation.codes.lock().unwrap_or_else(PoisonError::into_inner);
        *codes.entry(status).or_default() += 1;
    }

    /// The operations that were called: name, durations, responses by status.
    fn called_operations(&self) -> Vec<(String, &DurationHistogram, BTreeMap<u16, u64>)> {
        let called = self.0.iter().map(|((resource, name), operation)| {
            let codes = operation.codes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            (format!("{resource}.{name}"), &operation.durations, codes)
        });
        called.filter(|(_, _, codes)| !codes.is_empty()).collect()
    }

    fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let called = self.called_operations();
        let help = "Operations of the management API, by name and status.";
        let mut family = families.counter("ginnel_api_operations", help)?;
        for (operation, _, codes) in &called {
            for (code, count) in codes {
                let code = code.to_string();
                family.write_counter(&[("operation", operation), ("code", &code)], *count)?;
            }
        }
        let help = "How long operations of the management API took.";
        let mut family = families.histogram("ginnel_api_operation_duration_seconds", help)?;
        for (operation, durations, _) in &called {
            family.write_durations(&[("operation", operation)], durations)?;
        }
        Ok(())
    }
}

/// The figures of a service beside those of its public traffic.
struct ServiceFigures {
    state: Arc<ServiceState>,
    limits: Vec<Arc<ConnectionLimit>>,
}

impl Collect for ServiceFigures {
    fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        self.collect_connections(families)?;
        self.collect_sessions(families)?;
        if let Some(cluster) = &self.state.cluster {
            collect_cluster(cluster, families)?;
            let help = "Nodes with which this one has had no session for 5 seconds or more.";
            let peers = self.state.peers.as_ref();
            let unreachable = peers.map_or(0, |peers| peers.unreachable_nodes().len());
            let mut family = families.gauge("ginnel_cluster_unreachable_nodes", help)?;
            family.write_gauge(&[], unreachable as f64)?;
        }
        self.state.store.collect_metrics(families)?;
        let help = "The rest of the pause in which nothing is deleted for its age after a leap of the clock.";
        let pause = self.state.store.age_clock().remaining_pause().unwrap_or_default();
        families
            .gauge("ginnel_deletion_pause_seconds", help)?
            .write_gauge(&[], pause.as_secs_f64())?;
        self.state.backups.collect_metrics(families)?;
        self.state.event_metrics.collect(families)?;
        if self.state.has_acme {
            self.state.certificates.collect_metrics(families)?;
        }
        self.collect_certificates(families)?;
        self.state.metrics.as_ref().map_or(Ok(()), |metrics| metrics.collect(families))
    }
}

/// The figures of the cluster, as this node sees it.
fn collect_cluster(cluster: &Cluster, families: &mut Families<'_>) -> fmt::Result {
    let now = Instant::now();
    let nodes = cluster.directory.nodes().into_iter().filter(|node| !node.state.stopped);
    let nodes: Vec<_> = nodes.map(|node| (node.phase(now), node.version_lag)).collect();
    let help = "Nodes of the cluster, as this one sees them.";
    let mut family = families.gauge("ginnel_cluster_nodes", help)?;
    for state in ["alive", "draining", "lapsed"] {
        let of_state = nodes.iter().filter(|(phase, _)| *phase == state);
        family.write_gauge(&[("state", state)], of_state.count() as f64)?;
    }
    let present = nodes.iter().filter(|(phase, _)| *phase != "lapsed");
    let lag = present.map(|(_, version_lag)| *version_lag).max().unwrap_or_default();
    let help = "How many changes of the database the slowest node was behind.";
    families.gauge("ginnel_cluster_version_lag", help)?.write_gauge(&[], lag as f64)?;
    let help = "Tunnels of other nodes that this one knows.";
    let tunnels = cluster.directory.tunnel_count();
    families.gauge("ginnel_cluster_remote_tunnels", help)?.write_gauge(&[], tunnels as f64)?;
    let help = "How long ago this node learned what others have changed.";
    let age = cluster.news_age().as_secs_f64();
    families.gauge("ginnel_cluster_news_age_seconds", help)?.write_gauge(&[], age)?;
    let help = "The epoch of this node, which grows when it is taken for gone.";
    families.gauge("ginnel_cluster_epoch", help)?.write_gauge(&[], cluster.owner().epoch as f64)
}

impl ServiceFigures {
    fn collect_connections(&self, families: &mut Families<'_>) -> fmt::Result {
        let counts: Vec<_> = self.limits.iter().map(|limit| limit.total_counts()).collect();
        let mut family = families.gauge("ginnel_connections", "Connections that are open.")?;
        for ConnectionCounts { of, open, .. } in &counts {
            family.write_gauge(&[("of", of)], *open as f64)?;
        }
        let help = "Connections that were accepted.";
        let mut family = families.counter("ginnel_connections_accepted", help)?;
        for ConnectionCounts { of, accepted, .. } in &counts {
            family.write_counter(&[("of", of)], *accepted)?;
        }
        let help = "Connections that were closed at once, because there were too many.";
        let mut family = families.counter("ginnel_connections_refused", help)?;
        for ConnectionCounts { of, refused, .. } in &counts {
            family.write_counter(&[("of", of)], *refused)?;
        }
        Ok(())
    }

    fn collect_certificates(&self, families: &mut Families<'_>) -> fmt::Result {
        let configured = self.state.gateway.authority().provided_end();
        let ends = [
            ("configured", configured.and_then(|end| end.unix_seconds())),
            ("acme", self.state.certificates.next_end()),
        ];
        let help = "When a certificate ends: the configured one, and the first that ACME obtained.";
        let mut family = families.gauge("ginnel_certificate_end_timestamp_seconds", help)?;
        for (source, end) in ends {
            if let Some(end) = end {
                family.write_gauge(&[("source", source)], end as f64)?;
            }
        }
        Ok(())
    }

    fn collect_sessions(&self, families: &mut Families<'_>) -> fmt::Result {
        let registry = &self.state.registry;
        let sessions = registry.sessions();
        let help = "Agents that are connected.";
        families.gauge("ginnel_sessions", help)?.write_gauge(&[], sessions.len() as f64)?;
        let counts = registry.counts();
        let help = "Sessions that agents have begun.";
        families.counter("ginnel_sessions_started", help)?.write_counter(&[], counts.sessions())?;
        let help = "Sessions that agents have begun in place of one that they had lost.";
        families
            .counter("ginnel_session_reconnects", help)?
            .write_counter(&[], counts.reconnects())?;
        let help = "Tunnels that are online.";
        let tunnels = registry.tunnels().len();
        families.gauge("ginnel_tunnels", help)?.write_gauge(&[], tunnels as f64)?;
        let open: usize = sessions.iter().map(|online| online.session.stream_count()).sum();
        let help = "Streams that are open in sessions of agents.";
        families.gauge("ginnel_streams", help)?.write_gauge(&[], open as f64)?;
        let help = "Streams that were opened to agents for visitors.";
        families.counter("ginnel_streams_opened", help)?.write_counter(&[], counts.streams())
    }
}
