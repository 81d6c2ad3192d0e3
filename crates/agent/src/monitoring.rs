//! What an agent shows to whoever watches it: whether it is ready, and its figures.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use ginnel_api::local::tunnels::Metrics;
use ginnel_metrics::{Collect, Families};
use ginnel_net::ShutdownPhase;
use ginnel_net::admin::{MonitorTarget, ReadyFor};

use super::inner::AgentInner;
use super::session_state::SessionState;

/// How many tunnels have series of their own.
const MAX_TUNNELS: usize = 200;
/// What the tunnels beyond that are shown as.
const OTHER: &str = "other";

/// An agent, as others watch it.
pub(super) struct AgentMonitor(pub Weak<AgentInner>);

impl MonitorTarget for AgentMonitor {
    fn unready_reasons(&self, _: ReadyFor) -> Vec<String> {
        let Some(agent) = self.0.upgrade() else { return vec!["the agent has ended".to_owned()] };
        if agent.shutdown.phase() > ShutdownPhase::Running {
            return vec!["draining: the agent is stopping".to_owned()];
        }
        match &*agent.state.borrow() {
            SessionState::Online(_) => Vec::new(),
            state => vec![format!("session: {}", state.name())],
        }
    }

    fn metric_collectors(&self) -> Vec<Box<dyn Collect>> {
        let agent = self.0.upgrade();
        agent.map(|agent| Box::new(AgentFigures(agent)) as Box<dyn Collect>).into_iter().collect()
    }
}

struct AgentFigures(Arc<AgentInner>);

/// What one tunnel has carried, or several that share a name.
struct TunnelFigures {
    name: String,
    requests: u64,
    connections: u64,
    open: i64,
}

impl Collect for AgentFigures {
    fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        self.collect_session(families)?;
        self.collect_tunnels(families)?;
        self.collect_captures(families)
    }
}

impl AgentFigures {
    fn collect_session(&self, families: &mut Families<'_>) -> fmt::Result {
        let streams: Vec<_> =
            self.0.state.borrow().sessions().map(|online| online.session.stream_count()).collect();
        let is_online = f64::from(u8::from(!streams.is_empty()));
        let help = "1 while the agent has a session with the service.";
        families.gauge("ginnel_agent_online", help)?.write_gauge(&[], is_online)?;
        let help = "Sessions with the service; 2 where it has several nodes and none is away.";
        families.gauge("ginnel_agent_sessions", help)?.write_gauge(&[], streams.len() as f64)?;
        let reconnects = self.0.with_history(|history| history.reconnects);
        let help = "How often a session was lost and made again.";
        families.counter("ginnel_agent_reconnects", help)?.write_counter(&[], reconnects)?;
        let help = "Streams that are open in the sessions.";
        let open = streams.iter().sum::<usize>() as f64;
        families.gauge("ginnel_agent_streams", help)?.write_gauge(&[], open)
    }

    fn collect_tunnels(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Requests by the kind of their tunnel and the class of the response.";
        let mut family = families.counter("ginnel_agent_requests", help)?;
        for (kind, codes) in self.0.requests.by_kind() {
            for (code, count) in codes.nonzero_counts() {
                family.write_counter(&[("kind", kind), ("code", code)], count)?;
            }
        }
        let tunnels = self.tunnel_figures();
        let help = "Requests that tunnels have taken.";
        let mut family = families.counter("ginnel_agent_tunnel_requests", help)?;
        for tunnel in &tunnels {
            family.write_counter(&[("tunnel", &tunnel.name)], tunnel.requests)?;
        }
        let help = "Connections that tunnels have taken.";
        let mut family = families.counter("ginnel_agent_tunnel_connections_accepted", help)?;
        for tunnel in &tunnels {
            family.write_counter(&[("tunnel", &tunnel.name)], tunnel.connections)?;
        }
        let help = "Connections of tunnels that are open.";
        let mut family = families.gauge("ginnel_agent_tunnel_connections", help)?;
        for tunnel in &tunnels {
            family.write_gauge(&[("tunnel", &tunnel.name)], tunnel.open as f64)?;
        }
        Ok(())
    }

    /// The tunnels that run; those beyond the bound are one.
    fn tunnel_figures(&self) -> Vec<TunnelFigures> {
        let now = Instant::now();
        let all = self.0.tunnels.all();
        let figures = all.iter().map(|tunnel| {
            let Metrics { conns, http } = tunnel.metrics.report(now);
            TunnelFigures {
                name: tunnel.name.clone(),
                requests: u64::try_from(http.count).unwrap_or_default(),
                connections: u64::try_from(conns.count).unwrap_or_default(),
                open: conns.gauge,
            }
        });
        let mut figures: Vec<_> = figures.collect();
        let beyond = figures.split_off(figures.len().min(MAX_TUNNELS));
        figures.extend(beyond.into_iter().reduce(|one, other| TunnelFigures {
            name: OTHER.to_owned(),
            requests: one.requests + other.requests,
            connections: one.connections + other.connections,
            open: one.open + other.open,
        }));
        figures
    }

    fn collect_captures(&self, families: &mut Families<'_>) -> fmt::Result {
        let usage = self.0.captures.usage();
        let help = "Captured requests that are kept.";
        families.gauge("ginnel_capture_requests", help)?.write_gauge(&[], usage.records as f64)?;
        let help = "Memory that captured requests take.";
        families.gauge("ginnel_capture_bytes", help)?.write_gauge(&[], usage.bytes as f64)?;
        let help = "Memory that captured requests may take.";
        families.gauge("ginnel_capture_limit_bytes", help)?.write_gauge(&[], usage.limit as f64)?;
        let help = "Captured requests that were let go to make room.";
        families.counter("ginnel_capture_evictions", help)?.write_counter(&[], usage.evicted)
    }
}
