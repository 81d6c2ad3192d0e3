//! One connection of bytes on its way through a policy.

use std::sync::Arc;

use chrono::Utc;

use ginnel_base::logging::ignore;
use ginnel_policy::{
    Carried, EndpointFacts, Exchange, Phase, StepOutcome, Verdict, VisitorConnection,
};

use crate::message::error_response::ErrorResponse;
use crate::message::events::RequestTrace;
use crate::message::request_services::RequestServices;
use crate::modules::traffic_policy::execution::changed_code_prefix;
use crate::modules::traffic_policy::rules::Rules;

/// A connection, and what rules know of it.
pub struct ConnectionExecution {
    exchange: Exchange,
}

impl ConnectionExecution {
    pub fn new(connection: Arc<VisitorConnection>, endpoint: Arc<EndpointFacts>) -> Self {
        Self { exchange: Exchange::new(connection, endpoint) }
    }

    /// Runs the rules for connections; gives where to forward it, or an error to close it.
    ///
    /// `find` finds what is at the URL of an internal endpoint, or says why nothing can be.
    pub async fn run_connect_rules<T, F: Future<Output = Result<T, ErrorResponse>>>(
        &mut self,
        services: &RequestServices,
        rules: &Rules,
        trace: &mut RequestTrace,
        find: impl Fn(String) -> F,
    ) -> Result<Option<T>, ()> {
        self.exchange.record.code_prefix = changed_code_prefix(services);
        let mut run = rules.policy.start_phase(Phase::Connect);
        let entered = loop {
            match run.step(&mut self.exchange, rules) {
                StepOutcome::Done(Verdict::Continue) => break Ok(None),
                StepOutcome::Done(Verdict::Respond(_) | Verdict::Close) => break Err(()),
                StepOutcome::Done(Verdict::Forward { url }) => match find(url).await {
                    Ok(found) => break Ok(Some(found)),
                    Err(error) => {
                        let code = error.number.unwrap_or_default();
                        if !run.forward_failed(&mut self.exchange, code, error.text()) {
                            break Err(());
                        }
                    }
                },
                // A connection of bytes has no body that could be looked at, no token, and nobody logs in on it.
                // Only rules for requests and responses fetch.
                StepOutcome::NeedBody { .. }
                | StepOutcome::Keys(_)
                | StepOutcome::Login(_)
                | StepOutcome::Fetch(_) => break Err(()),
            }
        };
        self.record_decision(services, rules, trace);
        entered
    }

    /// Runs the rules for connections that have closed.
    pub fn run_close_rules(
        mut self,
        services: &RequestServices,
        rules: &Rules,
        carried: Carried,
        trace: &mut RequestTrace,
    ) {
        self.exchange.carried = carried;
        self.exchange.ended = Some(Utc::now());
        let mut run = rules.policy.start_phase(Phase::Close);
        let step = run.step(&mut self.exchange, rules);
        ignore(step, "nothing is left that could be answered, and nobody waits for anything");
        self.record_decision(services, rules, trace);
    }

    fn record_decision(
        &mut self,
        services: &RequestServices,
        rules: &Rules,
        trace: &mut RequestTrace,
    ) {
        let record = &mut self.exchange.record;
        let (decision, logs) = (record.decision.take(), std::mem::take(&mut record.logs));
        services.count_decision(decision.as_ref());
        trace.update_record(|it| it.logs.extend(logs));
        if let Some(decision) = decision {
            trace.record_decision("policy", &rules.policy, decision);
        }
    }
}
