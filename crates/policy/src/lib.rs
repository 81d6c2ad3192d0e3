//! Traffic policy: document in, compiled rules, verdicts out. Pure, no I/O.
//!
//! [`Policy::compile`] checks a document and compiles all of it, so that nothing is left to be
//! compiled when traffic arrives. A policy never harms the process: expressions are limited in
//! size, depth and work.
//!
//! [`Policy::start_phase`] begins a phase of an [`Exchange`]. [`Run::step`] walks through its rules until
//! there is a [`Verdict`], or until an action needs something from outside: a body, or an answer of
//! another server. Whoever walks gets it and steps on:
//!
//! ```no_run
//! # use ginnel_policy::{Exchange, Phase, Policy, StepOutcome, Verdict, World};
//! # fn body() -> ginnel_policy::Content { todo!() }
//! # fn fetch(_: &ginnel_policy::Fetch) -> ginnel_policy::Fetched { todo!() }
//! # use ginnel_policy::jwt::{KeyRequest, KeySet};
//! # fn keys(_: &KeyRequest) -> Option<std::sync::Arc<KeySet>> { todo!() }
//! # use ginnel_policy::login::{LoginOutcome, LoginRequest};
//! # fn login(_: &LoginRequest) -> LoginOutcome { todo!() }
//! fn walk(policy: &Policy, exchange: &mut Exchange, world: &dyn World) -> Verdict {
//!     let mut run = policy.start_phase(Phase::Request);
//!     loop {
//!         match run.step(exchange, world) {
//!             StepOutcome::Done(verdict) => return verdict,
//!             StepOutcome::NeedBody { .. } => exchange.request_mut().unwrap().body = body(),
//!             StepOutcome::Fetch(request) => run.answer_fetch(fetch(&request)),
//!             StepOutcome::Keys(request) => run.answer_keys(keys(&request)),
//!             StepOutcome::Login(request) => run.answer_login(login(&request)),
//!         }
//!     }
//! }
//! ```
//!
//! What requests share is in a [`PolicyState`], and [`trial`] tries a policy without traffic.
//!
//! # Invariants
//!
//! - This crate does no I/O and starts no threads.

pub mod action;
pub mod action_error;
mod action_results;
pub mod actions;
mod address;
mod authority;
mod body_replacer;
pub mod certificate;
mod checker;
mod cidr;
pub mod compression;
mod config;
pub mod credentials;
mod document;
mod exchange;
pub mod expression;
mod facts;
mod fields;
pub mod head_change;
mod head_rules;
pub mod head_view;
mod headers;
mod internal_address;
pub mod ip_rules;
pub mod jwt;
pub mod login;
mod markup;
mod memo;
pub mod path;
mod phase;
pub mod problem;
pub mod published;
mod record;
mod regex;
mod replace;
mod rule;
mod rule_note;
pub mod run;
pub mod secrets;
pub mod state;
pub mod template;
pub mod trial;
pub mod turn;
mod url;
pub mod user_agent;
mod user_agent_facts;
mod verdict;
pub mod webhook;
mod world;

pub use self::address::{AddressDatabase, AddressFacts, AddressKind, AddressKinds, AddressLookup};
pub use self::authority::is_canonical_authority;
pub use self::body_replacer::{BodyReplacement, BodyReplacer, ReplacementError};
pub use self::cidr::Cidr;
pub use self::document::{Policy, as_edge_module, read_document, unclear_number};
pub use self::exchange::{
    Carried, Content, DEFAULT_IPV6_PREFIX, EndpointFacts, Exchange, Request, Response,
    TakenMessage, TlsFacts, VisitorConnection,
};
pub use self::phase::{Phase, Protocol, Scope};
pub use self::problem::Problem;
pub use self::record::CODE_PREFIX;
pub use self::record::{ActionTrace, PhaseDecision, Record, RuleTrace};
pub use self::rule::Rule;
pub use self::run::Run;
pub use self::state::PolicyState;
pub use self::verdict::{Fetch, FetchFailed, Fetched, LocalResponse, StepOutcome, Verdict};
pub use self::world::World;
