//! Running the rules of a phase.
//!
//! Traffic policy sheet, section 2. Running is a walk that stops where something is needed from
//! outside, a body or an answer, and goes on with the same action once it is there. So an action
//! asks before it changes anything.

use std::time::Instant;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode};
use serde_json::{Value as Json, json};

use super::action::{self, Action};
use super::exchange::{Content, Exchange};
use super::expression::Expression;
use super::facts::Facts;
use super::record::{ActionTrace, Decision, RuleTrace};
use super::rule::Rule;
use super::template::Template;
use super::verdict::{Answer, Fetch, Fetched, Step, Verdict};
use super::world::World;
use super::{Phase, Policy};

/// A walk through the rules of a phase.
#[derive(Debug)]
pub struct Run<'p> {
    rules: &'p [Rule],
    phase: Phase,
    /// The rule that is next, or that waits.
    rule: usize,
    /// The action that is next, once the rule has matched.
    action: Option<usize>,
    /// What was fetched for actions.
    answers: Vec<(Fetch, Fetched)>,
    asked: Option<Fetch>,
}

/// What an action does next.
#[derive(Debug)]
pub enum Flow {
    /// The next action runs.
    Continue,
    /// The phase ends.
    End(Verdict),
    /// The action runs again when the body is there.
    NeedBody {
        /// How many bytes it takes at most.
        limit: usize,
    },
    /// The action runs again when the answer is there.
    Fetch(Fetch),
}

/// Why an action failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The number of the error.
    pub code: u16,
    /// Recent errors.
    pub message: String,
    /// Whether the request fails with it, as far as there is a request.
    pub fatal: bool,
}

/// Numbers of failures while rules run.
pub mod failure {
    /// A value that an expression gave cannot be used where it stands.
    pub const VALUE: u16 = 2238;
    /// A body is too long to be looked at.
    pub const BODY: u16 = 2249;
    /// A variable grows beyond what is sensible.
    pub const VARIABLE: u16 = 2253;
    /// An expression in a template failed.
    pub const EXPRESSION: u16 = 3900;
    /// A regular expression that was put together is none.
    pub const PATTERN: u16 = 3901;
}

/// What an action that runs can see and change.
pub struct Turn<'a> {
    /// The exchange.
    pub exchange: &'a mut Exchange,
    /// The world around it.
    pub world: &'a dyn World,
    /// The phase that runs.
    pub phase: Phase,
    /// The number of the rule in its phase.
    pub rule: usize,
    /// The number of the action in its rule.
    pub action: usize,
    answers: &'a [(Fetch, Fetched)],
    result: Json,
}

impl Policy {
    /// Whether there is anything to run in a phase.
    pub fn has(&self, phase: Phase) -> bool {
        self.enabled && !self.rules(phase).is_empty()
    }

    /// Begins a phase.
    pub fn run(&self, phase: Phase) -> Run<'_> {
        let rules = if self.enabled { self.rules(phase) } else { &[] };
        Run { rules, phase, rule: 0, action: None, answers: Vec::new(), asked: None }
    }
}

impl Run<'_> {
    /// Goes on until the phase is over or something is needed.
    ///
    /// The response phase never ends with an answer of its own: it changes the response.
    pub fn step(&mut self, exchange: &mut Exchange, world: &dyn World) -> Step {
        if self.rule == 0 && self.action.is_none() {
            exchange.record.vars.clear();
        }
        while let Some(rule) = self.rules.get(self.rule) {
            let start = match self.action {
                Some(action) => action,
                None if self.matches(rule, exchange, world) => 0,
                None => {
                    self.rule += 1;
                    continue;
                }
            };
            if let Some(step) = self.act(rule, start, exchange, world) {
                return step;
            }
            self.rule += 1;
            self.action = None;
        }
        self.end(Verdict::Continue, exchange)
    }

    /// Gives what came of the last [`Step::Fetch`].
    pub fn answer(&mut self, fetched: Fetched) {
        if let Some(asked) = self.asked.take() {
            self.answers.push((asked, fetched));
        }
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
        let results = &mut exchange.record.results;
        if let Some(Json::Object(result)) = results.get_mut(&result_name(step.kind.name)) {
            result.insert("error".to_owned(), json!({"code": code, "message": message}));
        }
        exchange.record.decision = None;
        self.action = self.action.map(|action| action + 1);
        true
    }

    fn matches(&self, rule: &Rule, exchange: &mut Exchange, world: &dyn World) -> bool {
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
    fn act(
        &mut self,
        rule: &Rule,
        start: usize,
        exchange: &mut Exchange,
        world: &dyn World,
    ) -> Option<Step> {
        for (index, step) in rule.actions.iter().enumerate().skip(start) {
            self.action = Some(index);
            let mut turn = Turn {
                exchange,
                world,
                phase: self.phase,
                rule: self.rule,
                action: index,
                answers: &self.answers,
                result: Json::Null,
            };
            let flow = step.action.run(&mut turn);
            let result = std::mem::take(&mut turn.result);
            let flow = match flow {
                Ok(Flow::NeedBody { limit }) => return Some(Step::NeedBody { limit }),
                Ok(Flow::Fetch(fetch)) => {
                    self.asked = Some(fetch.clone());
                    return Some(Step::Fetch(fetch));
                }
                flow => flow,
            };
            self.note(step, index, exchange, result, &flow);
            let verdict = match flow {
                Ok(Flow::End(verdict)) => verdict,
                Err(failure) if self.fails(step.action.as_ref(), &failure) => {
                    failed(self.phase, &failure)
                }
                _ => continue,
            };
            exchange.record.decision = Some(self.decision(rule, step));
            return Some(self.end(verdict, exchange));
        }
        None
    }

    fn decision(&self, rule: &Rule, step: &action::Step) -> Decision {
        let (phase, rule_name) = (self.phase, rule.name.clone());
        Decision { phase, rule: self.rule, rule_name, action: step.kind.name }
    }

    /// Whether nothing may go on after a failure.
    fn fails(&self, action: &dyn Action, failure: &Failure) -> bool {
        match self.phase {
            Phase::Connect | Phase::Request => failure.fatal,
            // A response that may not be seen by everybody is not shown to anybody.
            Phase::Response => failure.fatal && action.guards(),
            Phase::Close => false,
        }
    }

    /// Keeps the result of an action, and notes what it did.
    fn note(
        &self,
        step: &action::Step,
        index: usize,
        exchange: &mut Exchange,
        mut result: Json,
        flow: &Result<Flow, Failure>,
    ) {
        let failure = flow.as_ref().err();
        if let Some(failure) = failure {
            let error = json!({"code": failure.code, "message": failure.message});
            match &mut result {
                Json::Object(fields) => drop(fields.insert("error".to_owned(), error)),
                other => *other = json!({"error": error}),
            }
        }
        exchange.record.note(|rule| {
            rule.actions.push(ActionTrace {
                index,
                r#type: step.kind.name,
                result: result.clone(),
                ended: matches!(flow, Ok(Flow::End(_))),
                error_code: failure.map(|it| it.code),
                error: failure.map(|it| it.message.clone()),
            });
        });
        if !result.is_null() {
            exchange.record.results.insert(result_name(step.kind.name), result);
        }
    }

    fn end(&mut self, verdict: Verdict, exchange: &mut Exchange) -> Step {
        if !matches!(verdict, Verdict::Forward { .. }) {
            self.rule = self.rules.len();
            self.action = None;
        }
        if self.phase != Phase::Response {
            return Step::Done(verdict);
        }
        if let Verdict::Respond(answer) = verdict {
            exchange.respond(answer);
        }
        exchange.end_response();
        Step::Done(Verdict::Continue)
    }
}

/// What expressions find the result of a type of action under, behind `actions.ngrok`.
fn result_name(kind: &str) -> String {
    match kind {
        "compress-response" => "compress".to_owned(),
        kind => kind.replace('-', "_"),
    }
}

fn failed(phase: Phase, failure: &Failure) -> Verdict {
    if phase == Phase::Connect {
        return Verdict::Close;
    }
    let (status, sentence) = match failure.code {
        failure::BODY => (StatusCode::PAYLOAD_TOO_LARGE, "The body is too long for the policy."),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "An action of the policy has failed."),
    };
    Verdict::Respond(Answer::refusal(status, failure.code, sentence))
}

impl Failure {
    /// A failure that the request fails with.
    pub(super) fn fatal(code: u16, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), fatal: true }
    }

    /// A failure after which the request goes on as if the action were not there.
    pub(super) fn harmless(code: u16, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), fatal: false }
    }
}

impl Turn<'_> {
    /// What expressions can see.
    pub(super) fn facts(&self) -> Facts<'_> {
        Facts::new(self.exchange, self.world)
    }

    /// The text of a template.
    pub(super) fn render(&self, template: &Template) -> Result<String, Failure> {
        template.render(&self.facts(), std::convert::identity)
    }

    /// Keeps what later expressions find under `actions.ngrok`.
    pub(super) fn result(&mut self, result: Json) {
        self.result = result;
    }

    /// The headers that the phase changes.
    pub(super) fn headers_mut(&mut self) -> Option<&mut HeaderMap> {
        self.exchange.headers_mut(self.phase)
    }

    /// All of the body of the phase; none while it is still to be asked for.
    pub(super) fn body(&self, limit: usize) -> Result<Option<Bytes>, Failure> {
        match self.exchange.body(self.phase) {
            Some(Content::Passing) => Ok(None),
            Some(Content::Full(body)) if body.len() <= limit => Ok(Some(body.clone())),
            _ => Err(Failure::fatal(failure::BODY, format!("a body of more than {limit} bytes"))),
        }
    }

    /// What came of something that was asked for.
    pub(super) fn fetched(&self, fetch: &Fetch) -> Option<&Fetched> {
        self.answers.iter().find(|(asked, _)| asked == fetch).map(|(_, fetched)| fetched)
    }

    pub(super) fn now(&self) -> DateTime<Utc> {
        self.world.now()
    }

    pub(super) fn instant(&self) -> Instant {
        self.world.instant()
    }
}
