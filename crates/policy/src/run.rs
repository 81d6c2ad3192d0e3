//! Running the rules of a phase.
//!
//! Traffic policy sheet, section 2. Running is a walk that stops where something is needed from
//! outside, a body or an answer, and goes on with the same action once it is there. So an action
//! asks before it changes anything.

use std::ops::ControlFlow;
use std::sync::Arc;

use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use serde_json::{Value as Json, json};

use super::action::{self, Action};
use super::action_error::{ActionError, ActionResult, failure};
use super::document::Policy;
use super::exchange::Exchange;
use super::expression::Expression;
use super::facts::Facts;
use super::jwt::{KeyRequest, KeySet};
use super::login::{LoginOutcome, LoginVisit};
use super::path::{Ambiguity, PathReadings};
use super::phase::Phase;
use super::record::{ActionTrace, PhaseDecision, RuleTrace};
use super::rule::Rule;
use super::secrets::{self, Mask, SecretName};
use super::turn::{Flow, Turn};
use super::verdict::{Fetch, Fetched, LocalResponse, StepOutcome, Verdict};
use super::world::World;

/// A walk through the rules of a phase.
#[derive(Debug)]
pub struct Run<'p> {
    rules: &'p [Rule],
    /// What the policy reads.
    secrets: &'p [SecretName],
    phase: Phase,
    /// The rule that is next, or that waits.
    rule: usize,
    /// The action that is next, once the rule has matched.
    action: Option<usize>,
    /// What was fetched for actions.
    answers: Vec<(Fetch, Fetched)>,
    asked: Option<Fetch>,
    /// The keys of issuers that actions have asked for.
    keys: Vec<(KeyRequest, Option<Arc<KeySet>>)>,
    asked_keys: Option<KeyRequest>,
    /// Who has sent the request, once an action has asked.
    login: Option<LoginOutcome>,
    /// Whether any of the rules asks who has sent the request.
    has_logins: bool,
    /// The rule and the action that is next, where a step of a login goes on elsewhere.
    jump: Option<(usize, usize)>,
}

impl Policy {
    /// Whether there is anything to run in a phase.
    pub fn has_rules(&self, phase: Phase) -> bool {
        self.enabled && !self.rules(phase).is_empty()
    }

    /// Begins a phase.
    pub fn start_phase(&self, phase: Phase) -> Run<'_> {
        let rules = if self.enabled { self.rules(phase) } else { &[] };
        Run {
            rules,
            secrets: &self.secrets,
            phase,
            rule: 0,
            action: None,
            answers: Vec::new(),
            asked: None,
            keys: Vec::new(),
            asked_keys: None,
            login: None,
            has_logins: self.enabled && self.has_logins && phase == Phase::Request,
            jump: None,
        }
    }
}

impl Run<'_> {
    /// Goes on until the phase is over or something is needed.
    ///
    /// The response phase never ends with an answer of its own: it changes the response.
    pub fn step(&mut self, exchange: &mut Exchange, world: &dyn World) -> StepOutcome {
        if self.rule == 0 && self.action.is_none() {
            exchange.record.vars.clear();
            if self.has_logins {
                exchange.withhold_logins();
            }
            // A rule that cannot read it might let pass whom it was made to stop.
            if !self.rules.is_empty()
                && let Some(name) = secrets::find_missing(self.secrets, world)
            {
                tracing::debug!("a policy reads {name}, which is not there");
                let failure = ActionError::fatal(failure::EXPRESSION, format!("no {name}"));
                return self.end_phase(failure_verdict(self.phase, &failure), exchange);
            }
        }
        while let Some(rule) = self.rules.get(self.rule) {
            let start = match self.action {
                Some(action) => action,
                None => {
                    let matches = self.rule_matches(rule, exchange, world);
                    if rule.reads_path && has_other_match(rule, matches, exchange, world) {
                        return self
                            .end_phase(Verdict::Respond(ambiguous_path_response()), exchange);
                    }
                    match matches.then_some(0).or_else(|| self.login_step(rule, exchange)) {
                        Some(action) => action,
                        None => {
                            self.rule += 1;
                            continue;
                        }
                    }
                }
            };
            if let Some(step) = self.run_actions(rule, start, exchange, world) {
                return step;
            }
            match self.jump.take() {
                Some((rule, action)) => (self.rule, self.action) = (rule, Some(action)),
                None => (self.rule, self.action) = (self.rule + 1, None),
            }
        }
        self.end_phase(Verdict::Continue, exchange)
    }

    /// Gives what came of the last [`StepOutcome::Fetch`].
    pub fn answer_fetch(&mut self, fetched: Fetched) {
        if let Some(asked) = self.asked.take() {
            self.answers.push((asked, fetched));
        }
    }

    /// Gives the keys that the last [`StepOutcome::Keys`] has asked for; none where they cannot be had.
    pub fn answer_keys(&mut self, keys: Option<Arc<KeySet>>) {
        if let Some(asked) = self.asked_keys.take() {
            self.keys.push((asked, keys));
        }
    }

    /// Gives who has sent the request, which the last [`StepOutcome::Login`] has asked for.
    pub fn answer_login(&mut self, outcome: LoginOutcome) {
        self.login = Some(outcome);
    }

    /// The action of a rule that a step of a login is for: it has paths of its own, for which the
    /// expressions of the rule need not be true.
    fn login_step(&self, rule: &Rule, exchange: &Exchange) -> Option<usize> {
        let visit = exchange.login_visit().filter(|visit| self.has_logins && visit.is_step())?;
        rule.actions.iter().position(|step| takes_step(step, visit))
    }

    /// Where a step of a login goes on that has come to a login which it is not for: none of the actions in
    /// between may run for somebody who has not logged in. None where there is no such place.
    fn later_login(&self, action: usize, visit: &LoginVisit) -> Option<(usize, usize)> {
        let rules = self.rules.iter().enumerate().skip(self.rule);
        rules.into_iter().find_map(|(number, rule)| {
            let first = if number == self.rule { action + 1 } else { 0 };
            let mut actions = rule.actions.iter().enumerate().skip(first);
            let action = actions.find(|(_, step)| takes_step(step, visit))?.0;
            Some((number, action))
        })
    }

    /// Says that the last [`Verdict::Forward`] failed with a code, so that rules can go on, if they
    /// say so.
    ///
    /// False when the request is to fail with it.
    pub fn forward_failed(&mut self, exchange: &mut Exchange, code: u16, message: &str) -> bool {
        let Some(step) = self.rules.get(self.rule).zip(self.action) else { return false };
        let Some(step) = step.0.actions.get(step.1) else { return false };
        if step.action.always_ends() {
            return false;
        }
        let error = exchange.record.error_json(code, message);
        let results = &mut exchange.record.results;
        if let Some(Json::Object(result)) = results.get_mut(step.kind.name) {
            result.insert("error".to_owned(), error);
        }
        exchange.record.decision = None;
        self.action = self.action.map(|action| action + 1);
        true
    }

    fn rule_matches(&self, rule: &Rule, exchange: &mut Exchange, world: &dyn World) -> bool {
        let facts = Facts::new(exchange, world);
        let mut failed = None;
        let explain = exchange.record.trace.is_some();
        let is_true = |expression: &Expression| {
            let truth = expression.is_true(&facts, explain);
            truth.unwrap_or_else(|reason| {
                failed = Some(reason);
                false
            })
        };
        let matched = rule.expressions.iter().all(is_true);
        let record = &mut exchange.record;
        record.failed_expressions += u64::from(failed.is_some());
        let error = failed.flatten();
        if let Some(numbers) = record.matched.as_mut().filter(|_| matched) {
            numbers.push(self.rule);
        }
        if let Some(trace) = &mut record.trace {
            trace.push(RuleTrace {
                phase: self.phase.name(),
                index: self.rule,
                name: rule.name.clone(),
                matched,
                error,
                actions: Vec::new(),
            });
        }
        matched
    }

    /// Runs the actions of a rule from one on; none when the next rule is to run.
    fn run_actions(
        &mut self,
        rule: &Rule,
        start: usize,
        exchange: &mut Exchange,
        world: &dyn World,
    ) -> Option<StepOutcome> {
        for (index, step) in rule.actions.iter().enumerate().skip(start) {
            self.action = Some(index);
            if self.has_logins
                && let Some(outcome) = self.skip_login(rule, step, index, exchange)
            {
                return outcome;
            }
            let mut turn = Turn {
                exchange,
                world,
                phase: self.phase,
                rule: self.rule,
                action: index,
                answers: &self.answers,
                keys: &self.keys,
                login: self.login.take(),
                result: None,
            };
            if step.reads_path && has_other_result(step, &mut turn) {
                return Some(self.end_phase(Verdict::Respond(ambiguous_path_response()), exchange));
            }
            let logged = turn.exchange.record.logs.len();
            let (flow, result) = (step.action.run(&mut turn), turn.result.take());
            let mut flow = match self.await_flow(flow) {
                ControlFlow::Break(outcome) => return Some(outcome),
                ControlFlow::Continue(flow) => flow,
            };
            if !self.secrets.is_empty() {
                self.mask_secrets(exchange, world, logged, &mut flow);
            }
            self.record_result(step, index, exchange, result, &flow);
            let verdict = match flow {
                Ok(Flow::End(verdict)) => verdict,
                Err(failure) if self.is_fatal_failure(step.action.as_ref(), &failure) => {
                    failure_verdict(self.phase, &failure)
                }
                _ => continue,
            };
            exchange.record.decision = Some(self.phase_decision(rule, step));
            return Some(self.end_phase(verdict, exchange));
        }
        None
    }

    /// Handles a visit that is a step of another login than that of an action: the run continues at that login, or
    /// ends. Returns none if the action is to run.
    fn skip_login(
        &mut self,
        rule: &Rule,
        step: &action::ActionStep,
        index: usize,
        exchange: &mut Exchange,
    ) -> Option<Option<StepOutcome>> {
        let visit = exchange.login_visit().filter(|visit| visit.is_step())?;
        step.action.login_config().filter(|config| !visit.is_for(config))?;
        self.jump = self.later_login(index, visit);
        if self.jump.is_some() {
            return Some(None);
        }
        exchange.record.decision = Some(self.phase_decision(rule, step));
        Some(Some(self.end_phase(Verdict::Respond(no_login_response()), exchange)))
    }

    /// Returns what an action needs before it can run, or its flow if it has run.
    fn await_flow(
        &mut self,
        flow: ActionResult<Flow>,
    ) -> ControlFlow<StepOutcome, ActionResult<Flow>> {
        ControlFlow::Break(match flow {
            Ok(Flow::NeedBody { limit }) => StepOutcome::NeedBody { limit },
            Ok(Flow::Fetch(fetch)) => {
                self.asked = Some(fetch.clone());
                StepOutcome::Fetch(fetch)
            }
            Ok(Flow::Keys(request)) => {
                self.asked_keys = Some(request.clone());
                StepOutcome::Keys(request)
            }
            Ok(Flow::Login(request)) => StepOutcome::Login(request),
            flow => return ControlFlow::Continue(flow),
        })
    }

    /// Masks secrets in what an action leaves behind for people to see; later rules see its result as it is.
    fn mask_secrets(
        &self,
        exchange: &mut Exchange,
        world: &dyn World,
        logged: usize,
        flow: &mut ActionResult<Flow>,
    ) {
        let logs = exchange.record.logs.get_mut(logged..).unwrap_or_default();
        if logs.is_empty() && flow.is_ok() {
            return;
        }
        let mask = Mask::from_names(self.secrets, world);
        if let Err(failure) = flow {
            mask.text(&mut failure.message);
        }
        logs.iter_mut().for_each(|entry| mask.json(entry));
    }

    fn phase_decision(&self, rule: &Rule, step: &action::ActionStep) -> PhaseDecision {
        let (phase, rule_name) = (self.phase, rule.name.clone());
        PhaseDecision { phase, rule: self.rule, rule_name, action: step.kind.name }
    }

    /// Whether nothing may go on after a failure.
    fn is_fatal_failure(&self, action: &dyn Action, failure: &ActionError) -> bool {
        match self.phase {
            Phase::Connect | Phase::Request => failure.fatal,
            // A response that may not be seen by everybody is not shown to anybody.
            Phase::Response => failure.fatal && action.fails_closed(),
            Phase::Close => false,
        }
    }

    /// Keeps the result of an action, and notes what it did.
    fn record_result(
        &self,
        step: &action::ActionStep,
        index: usize,
        exchange: &mut Exchange,
        mut result: Option<Arc<Json>>,
        flow: &ActionResult<Flow>,
    ) {
        let failure = flow.as_ref().err();
        // Actions give the numbers of their refusals.
        let number = result.as_ref().and_then(|it| it.get("error")?.get("code")?.as_u64());
        if let Some((number, result)) = number.zip(result.as_mut())
            && let Some(Json::Object(error)) = Arc::make_mut(result).get_mut("error")
        {
            error.insert("code".to_owned(), exchange.record.format_code(number).into());
        }
        if let Some(failure) = failure {
            let error = exchange.record.error_json(failure.code, &failure.message);
            match result.as_mut().map(Arc::make_mut) {
                Some(Json::Object(fields)) => drop(fields.insert("error".to_owned(), error)),
                _ => result = Some(Arc::new(json!({"error": error}))),
            }
        }
        exchange.record.update_trace(|rule| {
            rule.actions.push(ActionTrace {
                index,
                r#type: step.kind.name,
                result: result.as_deref().cloned().unwrap_or_default(),
                ended: matches!(flow, Ok(Flow::End(_))),
                error_code: failure.map(|it| it.code),
                error: failure.map(|it| it.message.clone()),
            });
        });
        if let Some(result) = result.filter(|result| !result.is_null()) {
            exchange.record.results.insert(step.kind.name, result);
        }
    }

    fn end_phase(&mut self, verdict: Verdict, exchange: &mut Exchange) -> StepOutcome {
        if !matches!(verdict, Verdict::Forward { .. }) {
            self.rule = self.rules.len();
            self.action = None;
        }
        if self.has_logins && verdict == Verdict::Continue && is_login_step(exchange) {
            // Upstreams have no part in logins.
            return StepOutcome::Done(Verdict::Respond(no_login_response()));
        }
        if self.phase != Phase::Response {
            return StepOutcome::Done(verdict);
        }
        if let Verdict::Respond(answer) = verdict {
            exchange.set_local_response(answer);
        }
        exchange.end_response();
        StepOutcome::Done(Verdict::Continue)
    }
}

/// Returns true if a rule matches the request with another reading of its path but not with its normal form,
/// or the other way round.
fn has_other_match(rule: &Rule, matches: bool, exchange: &mut Exchange, world: &dyn World) -> bool {
    let Some(PathReadings(readings)) = exchange.path_readings() else { return false };
    readings.iter().any(|path| {
        let matches_so = exchange.with_path_reading(path, |exchange| {
            let facts = Facts::new(exchange, world);
            rule.expressions.iter().all(|it| it.is_true(&facts, false).unwrap_or(false))
        });
        matches_so != Some(matches)
    })
}

/// Returns true if an action has another result for the request with another reading of its path.
fn has_other_result(step: &action::ActionStep, turn: &mut Turn<'_>) -> bool {
    let Some(PathReadings(readings)) = turn.exchange.path_readings() else { return false };
    let Some(result) = step.action.result_of_path(turn) else { return true };
    readings.iter().any(|path| {
        let Turn { world, phase, rule, action, answers, keys, .. } = *turn;
        let result_so = turn.exchange.with_path_reading(path, |exchange| {
            let (login, result) = (None, None);
            let turn = Turn { exchange, world, phase, rule, action, answers, keys, login, result };
            step.action.result_of_path(&turn)
        });
        result_so.flatten() != Some(result)
    })
}

/// Says that servers would read the path in different ways, of which rules allow only some.
fn ambiguous_path_response() -> LocalResponse {
    let sentence = Ambiguity::Readings.sentence();
    LocalResponse { code: None, ..LocalResponse::refusal(StatusCode::BAD_REQUEST, 0, sentence) }
}

/// Whether a step of a login is for an action.
fn takes_step(step: &action::ActionStep, visit: &LoginVisit) -> bool {
    step.action.login_config().is_some_and(|config| visit.is_for(config))
}

/// Whether a visitor has sent a request to a path of logins, whatever rules have made of it.
fn is_login_step(exchange: &Exchange) -> bool {
    exchange.login_visit().is_some_and(LoginVisit::is_step)
}

/// Says that a login has not begun here.
fn no_login_response() -> LocalResponse {
    let sentence =
        "This login has not begun in this browser, or it was too long ago: open the page again.";
    let mut response = LocalResponse::refusal(StatusCode::BAD_REQUEST, 3442, sentence);
    response.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn failure_verdict(phase: Phase, failure: &ActionError) -> Verdict {
    if phase == Phase::Connect {
        return Verdict::Close;
    }
    let (status, sentence) = match (phase, failure.code) {
        (Phase::Response, failure::BODY) => {
            (StatusCode::BAD_GATEWAY, "The body of the response is too long for the policy.")
        }
        (Phase::Response, failure::UNREADABLE) => {
            (StatusCode::BAD_GATEWAY, "The policy cannot read the body of the response.")
        }
        (_, failure::BODY) => {
            (StatusCode::PAYLOAD_TOO_LARGE, "The body is too long for the policy.")
        }
        (_, failure::UNREADABLE) => {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The policy cannot read the body.")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "An action of the policy has failed."),
    };
    Verdict::Respond(LocalResponse::refusal(status, failure.code, sentence))
}
