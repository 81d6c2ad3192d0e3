//! Trying a policy without traffic: what its rules would do, and what the visitor would get.
//!
//! This is the same walk that real traffic takes, in a world that is given.

mod report;
mod traffic;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, Utc};
use http::StatusCode;

pub use self::report::{Answered, Decided, Outcome, Report, Sent};
pub use self::traffic::{InvalidTraffic, Peer, Ranges, SimulatedResponse, Traffic, Wish};

use super::exchange::{Carried, Content, Exchange, Response};
use super::ip_rules::IpRules;
use super::jwt::{KeyRequest, KeySet};
use super::login::{ClientSecret, OauthApplication, OauthClient, OauthProvider};
use super::path::Ambiguity;
use super::published::{Published, PublishedStatus};
use super::record::Record;
use super::secrets::SecretName;
use super::verdict::{Fetch, FetchFailed, Fetched, LocalResponse, StepOutcome, Verdict};
use super::{Phase, Policy, PolicyState, Problem, Protocol, World, read_document};

/// A policy that is tried with one message after the other, which share its state.
#[derive(Debug)]
pub struct Trial {
    policy: Policy,
    state: PolicyState,
    started: Instant,
    begin: DateTime<Utc>,
    elapsed: Duration,
    /// The keys of issuers, by where they are.
    keys: Mutex<HashMap<String, Published<KeySet, ()>>>,
}

/// Compiles a document in JSON or YAML for edges or for endpoints of agents; unless `edge` says
/// for which, its spelling does.
///
/// # Errors
/// All that is wrong with the document.
pub fn parse_policy(
    text: &str,
    protocol: Protocol,
    edge: Option<bool>,
) -> Result<Policy, Vec<Problem>> {
    let document = read_document(text).map_err(|problem| vec![problem])?;
    Policy::compile(&document, protocol.document_scope(&document, edge))
}

/// The world of one message.
struct SimulatedExchange<'t> {
    trial: &'t Trial,
    ip_policies: BTreeMap<String, Arc<IpRules>>,
}

impl World for SimulatedExchange<'_> {
    fn ip_policy(&self, id: &str) -> Arc<IpRules> {
        self.ip_policies.get(id).cloned().unwrap_or_default()
    }

    /// Nothing that is tried gets to see a secret: what stands for it names it.
    fn secret(&self, name: &SecretName) -> Option<Arc<str>> {
        Some(format!("[{}/{}]", name.vault, name.name).into())
    }

    /// Whether the operator has a client is the service's business: what is tried has one.
    fn oauth_application(&self, provider: OauthProvider) -> Arc<OauthApplication> {
        let id = format!("[{}]", provider.setting());
        let client = Some(OauthClient { id, secret: ClientSecret::default() });
        Arc::new(OauthApplication { client, ..OauthApplication::for_provider(provider) })
    }

    fn state(&self) -> &PolicyState {
        &self.trial.state
    }

    fn now(&self) -> DateTime<Utc> {
        self.trial.begin + self.trial.elapsed
    }

    fn instant(&self) -> Instant {
        self.trial.started + self.trial.elapsed
    }
}

impl Trial {
    /// A trial that begins now, or at a given time of day.
    pub fn new(policy: Policy, begin: Option<DateTime<Utc>>) -> Self {
        let begin = begin.unwrap_or_else(|| SystemTime::now().into());
        Self {
            policy,
            state: PolicyState::default(),
            started: Instant::now(),
            begin,
            elapsed: Duration::ZERO,
            keys: Mutex::default(),
        }
    }

    /// A trial of a document in JSON or YAML.
    ///
    /// # Errors
    /// All that is wrong with the document.
    pub fn parse(
        text: &str,
        protocol: Protocol,
        edge: Option<bool>,
        begin: Option<DateTime<Utc>>,
    ) -> Result<Self, Vec<Problem>> {
        Ok(Self::new(parse_policy(text, protocol, edge)?, begin))
    }

    /// Takes a request, or a connection where there is none, through the policy.
    ///
    /// # Errors
    /// When what is given is no traffic.
    pub fn simulate_traffic(&mut self, traffic: &Traffic) -> Result<Report, InvalidTraffic> {
        traffic.build_response()?;
        self.elapsed += traffic.elapsed_time()?;
        let world = SimulatedExchange { trial: self, ip_policies: traffic.ip_policies()? };
        let mut exchange =
            Exchange::new(traffic.build_connection(world.now())?, traffic.build_endpoint()?);
        exchange.record = Record::with_trace();
        let mut walk = Simulation { policy: &self.policy, world: &world, traffic, sent: None };
        let verdict = match traffic.build_request(world.now())? {
            None => walk.run_connection(&mut exchange)?,
            Some(request)
                if let Some(ambiguity) = self.policy.path_ambiguity(request.head.uri.path()) =>
            {
                exchange.set_request(request);
                let answer = ambiguous_path_response(ambiguity);
                exchange.set_local_response(answer.clone());
                Verdict::Respond(answer)
            }
            Some(request) => {
                let connected = walk.run_phase(Phase::Connect, &mut exchange)?;
                exchange.set_request(request);
                match connected {
                    Verdict::Continue => walk.run_request(&mut exchange)?,
                    other => other,
                }
            }
        };
        let sent = walk.sent;
        Ok(Report::from_exchange(verdict, sent, exchange, traffic))
    }
}

/// What the service answers itself where a path is ambiguous.
fn ambiguous_path_response(ambiguity: Ambiguity) -> LocalResponse {
    LocalResponse {
        code: None,
        ..LocalResponse::refusal(StatusCode::BAD_REQUEST, 0, ambiguity.sentence())
    }
}

/// The way of one message.
struct Simulation<'w> {
    policy: &'w Policy,
    world: &'w SimulatedExchange<'w>,
    traffic: &'w Traffic,
    sent: Option<Sent>,
}

impl Simulation<'_> {
    /// A connection from its beginning to its end.
    fn run_connection(&mut self, exchange: &mut Exchange) -> Result<Verdict, InvalidTraffic> {
        let verdict = self.run_phase(Phase::Connect, exchange)?;
        exchange.ended = Some(self.world.now());
        exchange.carried = Carried { received: 0, sent: 0 };
        self.run_phase(Phase::Close, exchange)?;
        Ok(verdict)
    }

    /// A request, and its response where there is one.
    fn run_request(&mut self, exchange: &mut Exchange) -> Result<Verdict, InvalidTraffic> {
        let verdict = self.run_phase(Phase::Request, exchange)?;
        match &verdict {
            Verdict::Close => return Ok(verdict),
            Verdict::Respond(answer) => exchange.set_local_response(answer.clone()),
            Verdict::Continue | Verdict::Forward { .. } => {
                self.sent =
                    exchange.request().map(|request| Sent::from_request(request, self.traffic));
                let response = self.traffic.build_response()?;
                let good = response.head.status < StatusCode::INTERNAL_SERVER_ERROR;
                exchange.record_upstream_outcome(good, self.world.instant());
                exchange.set_response(response);
            }
        }
        self.run_phase(Phase::Response, exchange)?;
        Ok(verdict)
    }

    /// One phase; what its actions ask for is given.
    fn run_phase(
        &mut self,
        phase: Phase,
        exchange: &mut Exchange,
    ) -> Result<Verdict, InvalidTraffic> {
        let mut run = self.policy.start_phase(phase);
        loop {
            match run.step(exchange, self.world) {
                StepOutcome::NeedBody { limit } => self.give_body(phase, limit, exchange),
                StepOutcome::Fetch(fetch) => run.answer_fetch(self.fetch_result(&fetch)?),
                StepOutcome::Keys(request) => run.answer_keys(self.issuer_keys(&request)?),
                StepOutcome::Login(request) => run.answer_login(self.traffic.logged_in(&request)),
                StepOutcome::Done(Verdict::Forward { url }) if self.traffic.is_offline(&url) => {
                    if !run.forward_failed(exchange, 3200, "nothing is online at this address") {
                        let sentence = "Nothing is online at this address.";
                        let answer = LocalResponse::refusal(StatusCode::NOT_FOUND, 3200, sentence);
                        return Ok(Verdict::Respond(answer));
                    }
                }
                StepOutcome::Done(verdict) => return Ok(verdict),
            }
        }
    }

    fn give_body(&self, phase: Phase, limit: usize, exchange: &mut Exchange) {
        let body = match phase {
            Phase::Request => self.traffic.request_body(),
            _ => self.traffic.response_body(),
        };
        let content = if body.len() > limit { Content::TooLong(body) } else { Content::Full(body) };
        if phase == Phase::Request {
            let now = self.world.now();
            if let Some(request) = exchange.request_mut() {
                request.body = content;
                request.body_received = Some(now);
            }
        } else if let Some(response) = exchange.response_mut() {
            response.body = content;
        }
    }

    /// The keys of an issuer, as a gateway keeps them, which would ask for newer ones while it uses old ones.
    fn issuer_keys(&self, request: &KeyRequest) -> Result<Option<Arc<KeySet>>, InvalidTraffic> {
        let (lifetime, now) = (&request.lifetime, self.world.instant());
        let mut all = self.world.trial.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(request.url.clone()).or_default();
        match known.status(lifetime, request.is_missing, now) {
            PublishedStatus::Current(keys) | PublishedStatus::Old(keys) => return Ok(Some(keys)),
            PublishedStatus::Failed(()) => {}
            PublishedStatus::Missing => {
                let set = match self.traffic.find_reply(&request.url) {
                    Some(reply) => {
                        let (head, body) = reply.to_message()?;
                        let set = KeySet::parse(&body).ok().filter(|_| head.status.is_success());
                        set.map(Arc::new)
                    }
                    None => None,
                };
                known.store_result(set.clone().ok_or(()), now);
                if set.is_some() {
                    return Ok(set);
                }
            }
        }
        Ok(known.usable_value(lifetime, now).filter(|_| !request.is_missing))
    }

    fn fetch_result(&self, fetch: &Fetch) -> Result<Fetched, InvalidTraffic> {
        let Some(reply) = self.traffic.find_reply(fetch.url.as_written()) else {
            let reason = "the trial has no response for it".to_owned();
            return Ok(Err(FetchFailed::Unreachable(reason)));
        };
        let (head, body) = reply.to_message()?;
        if body.len() > fetch.limit {
            return Ok(Err(FetchFailed::TooLong));
        }
        Ok(Ok(http::Response::from_parts(head, body)))
    }
}

impl SimulatedResponse {
    /// A response whose body nobody has looked at.
    fn to_response(&self) -> Result<Response, InvalidTraffic> {
        Ok(Response::new(self.to_message()?.0))
    }
}
