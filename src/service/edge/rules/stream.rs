//! One connection of bytes on its way through a policy.

use std::sync::Arc;

use chrono::Utc;

use super::Rules;
use crate::policy::{Carried, Connection, Endpoint, Exchange, Phase, Step, Verdict};
use crate::service::edge::Inner;
use crate::service::edge::event::Trace;

/// A connection, and what rules know of it.
pub(in crate::service::edge) struct Watched {
    exchange: Exchange,
}

impl Watched {
    pub(in crate::service::edge) fn new(
        connection: Arc<Connection>,
        endpoint: Arc<Endpoint>,
    ) -> Self {
        Self { exchange: Exchange::new(connection, endpoint) }
    }

    /// Runs the rules for connections; gives where to forward it, or an error to close it.
    pub(in crate::service::edge) async fn enter(
        &mut self,
        edges: &Inner,
        rules: &Rules,
        trace: &mut Trace,
        mut reachable: impl FnMut(&str) -> bool,
    ) -> Result<Option<String>, ()> {
        let mut run = rules.policy.run(Phase::Connect);
        let entered = loop {
            match run.step(&mut self.exchange, rules) {
                Step::Done(Verdict::Continue) => break Ok(None),
                Step::Done(Verdict::Respond(_) | Verdict::Close) => break Err(()),
                Step::Done(Verdict::Forward { url }) => {
                    if reachable(&url) {
                        break Ok(Some(url));
                    }
                    if !run.forward_failed(&mut self.exchange, 3200, "offline") {
                        break Err(());
                    }
                }
                // A connection of bytes has no body that could be looked at.
                Step::NeedBody { .. } => break Err(()),
                Step::Fetch(fetch) => run.answer(edges.fetcher.fetch(&fetch).await),
            }
        };
        self.note(trace);
        entered
    }

    /// Runs the rules for connections that have closed.
    pub(in crate::service::edge) fn leave(
        mut self,
        rules: &Rules,
        carried: Carried,
        trace: &mut Trace,
    ) {
        self.exchange.carried = carried;
        self.exchange.ended = Some(Utc::now());
        let mut run = rules.policy.run(Phase::Close);
        // Nothing is left that could be answered, and nobody waits for anything.
        let _ = run.step(&mut self.exchange, rules);
        self.note(trace);
    }

    fn note(&mut self, trace: &mut Trace) {
        let record = &mut self.exchange.record;
        let (decision, logs) = (record.decision.take(), std::mem::take(&mut record.logs));
        trace.note(|it| {
            it.logs.extend(logs);
            if let Some(decision) = decision {
                it.module = Some("policy");
                it.action = Some(decision.action.to_owned());
                it.rule = Some(match decision.rule_name {
                    name if name.is_empty() => decision.rule.to_string(),
                    name => name,
                });
            }
        });
    }
}
