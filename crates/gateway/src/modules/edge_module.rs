//! Modules as the management API has them: how they are checked, and what is made of them.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;
use serde_json::json;

use ginnel_api::id;
use ginnel_api::remote::Ref;
use ginnel_net::Reach;
use ginnel_policy::ip_rules::IpRules;
use ginnel_policy::login::OauthApplications;
use ginnel_policy::problem::code;
use ginnel_policy::secrets::SecretName;
use ginnel_policy::user_agent::Filter;
use ginnel_policy::{AddressKinds, Policy, Problem, Scope};

use crate::modules::module::{Module, ModuleKind};
use crate::modules::policy_cache::PolicyCache;
use crate::secrets::SecretTable;

/// The number of a wrong value that has none of its own.
const INVALID_VALUE: u16 = 215;
/// The number of an identifier of another kind; one kind is possible.
const WRONG_PREFIX: u16 = 227;
/// The text that visitors get while the policy of an endpoint is refused.
const UNUSABLE_BODY: &str =
    "The traffic policy of this endpoint is not valid. Its operator must correct it.\n";
/// How many problems of a policy a message names; the rest are counted.
const MAX_NAMED_PROBLEMS: usize = 10;

/// A module of an edge, of a route or of a tunnel, from which something that acts on traffic can be built.
pub trait BuildModule: Sized {
    /// Builds what acts on traffic. Returns `None` if nothing does, or if the module is not a step on the way of
    /// requests.
    ///
    /// # Errors
    /// If an agent gives a module that cannot be applied. Modules that are stored were checked before.
    fn build(self, _builder: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        Ok(None)
    }
}

/// A module of an edge or route, as the API shows it.
pub trait EdgeModule: BuildModule + Clone + Send + Sync + 'static {
    /// What a call gives for it.
    type Change: Send + 'static;

    /// How the store calls what it refers to; none where it refers to nothing.
    const REFERENCE: Option<ReferenceField> = None;

    /// Checks what a call gives; the module as it is stored.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    fn check(change: Self::Change, checker: &ModuleChecker) -> ModuleResult<CheckedModule<Self>>;

    /// False while it is switched off.
    fn is_enabled(&self) -> bool;

    /// What it refers to and shows with its address.
    fn references_mut(&mut self) -> Vec<&mut Ref> {
        Vec::new()
    }
}

/// What a module refers to, in the words of refusals.
#[derive(Debug, Clone, Copy)]
pub struct ReferenceField {
    /// The field with the identifiers.
    pub field: &'static str,
    /// What they are identifiers of.
    pub noun: &'static str,
    /// The number of the refusal of one that does not exist.
    pub number: u16,
}

/// A module that can be stored, if all that it refers to exists.
pub struct CheckedModule<M> {
    pub module: M,
    /// The identifiers of what it refers to.
    pub references: Vec<String>,
    /// The secrets that it reads.
    pub secrets: Vec<SecretName>,
    /// What was compiled; as long as this is held, it is not compiled again.
    pub compiled: Option<Arc<dyn Any + Send + Sync>>,
}

impl<M: EdgeModule> From<M> for CheckedModule<M> {
    fn from(mut module: M) -> Self {
        let references = module.references_mut().into_iter().map(|one| one.id.clone()).collect();
        Self { module, references, secrets: Vec::new(), compiled: None }
    }
}

/// The result of checking or building a module.
pub type ModuleResult<T> = Result<T, InvalidModule>;

/// Why a module cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidModule {
    /// The number of the refusal.
    pub number: u16,
    /// The field, the value and the limit.
    pub message: String,
    /// The problems of a policy, or of the rule that the module is.
    pub problems: Vec<Problem>,
}

impl InvalidModule {
    /// A value that is wrong.
    pub fn from_message(message: impl Into<String>) -> Self {
        Self { number: INVALID_VALUE, message: message.into(), problems: Vec::new() }
    }

    /// The same with a number of its own.
    pub fn with_number(number: u16, message: impl Into<String>) -> Self {
        Self { number, message: message.into(), problems: Vec::new() }
    }

    /// Of a policy: the first problem gives the number, the message names them all.
    pub fn from_problems(problems: &[Problem]) -> Self {
        let named = problems.iter().take(MAX_NAMED_PROBLEMS);
        let mut message: Vec<String> =
            named.map(|problem| problem.to_string().replace('\n', " ")).collect();
        if problems.len() > MAX_NAMED_PROBLEMS {
            message.push(format!("and {} more", problems.len() - MAX_NAMED_PROBLEMS));
        }
        let number = problems.first().map_or(INVALID_VALUE, |first| first.code);
        Self { number, message: message.join("; "), problems: problems.to_vec() }
    }
}

/// What modules are checked with.
pub struct ModuleChecker {
    pub policies: Arc<PolicyCache>,
    /// What the modules belong to.
    pub scope: Scope,
    /// What rules may ask of the addresses of visitors.
    pub known_addresses: AddressKinds,
    /// What the operator has at providers.
    pub applications: Arc<OauthApplications>,
}

impl ModuleChecker {
    /// Compiles a policy.
    pub fn compile_policy(&self, document: &impl Serialize) -> ModuleResult<Arc<Policy>> {
        let policy = self.policies.compiled_policy(document, self.scope);
        let policy = policy.map_err(|problems| InvalidModule::from_problems(&problems))?;
        let problem = policy.address_kinds.missing_from(self.known_addresses);
        match problem.or_else(|| policy.login_problem(&self.applications)) {
            Some(problem) => Err(InvalidModule::from_problems(&[problem])),
            None => Ok(policy),
        }
    }

    /// Compiles a user agent filter.
    pub fn compile_filter(&self, allow: &[String], deny: &[String]) -> ModuleResult<Arc<Filter>> {
        let filter = self.policies.compiled_filter(allow, deny);
        filter.map_err(|problems| InvalidModule::from_problems(&problems))
    }
}

/// Identifiers of one kind as references, in a field.
pub fn parse_references(field: &str, ids: Vec<String>, prefix: &str) -> ModuleResult<Vec<Ref>> {
    let mut seen = HashSet::new();
    let reference = |(index, id): (usize, String)| {
        if !id::has_prefix(&id, prefix) {
            let message = format!("{field}[{index}]: {id:?} does not start with {prefix}_");
            return Err(InvalidModule::with_number(WRONG_PREFIX, message));
        }
        if !seen.insert(id.clone()) {
            return Err(InvalidModule::from_message(format!(
                "{field}[{index}]: {id:?} is there twice"
            )));
        }
        Ok(Ref { id, ..Ref::default() })
    };
    ids.into_iter().enumerate().map(reference).collect()
}

/// What modules remember of a route or edge, by their kinds; it outlives changes of the modules.
pub type ModuleMemory = HashMap<ModuleKind, Arc<dyn Any + Send + Sync>>;

/// What the modules of a route or edge are made with.
pub struct ModuleBuilder<'b> {
    /// The identifier of the route or edge.
    pub owner: &'b str,
    /// What rules may ask of the addresses of visitors.
    pub known_addresses: AddressKinds,
    pub policies: &'b PolicyCache,
    /// Finds the rules of an IP policy.
    pub ip_policy: &'b dyn Fn(&str) -> Arc<ArcSwap<IpRules>>,
    /// The secrets that policies read.
    pub secrets: &'b Arc<SecretTable>,
    /// What the operator has at providers.
    pub applications: &'b Arc<OauthApplications>,
    pub memory: &'b mut ModuleMemory,
    /// What the modules belong to.
    pub scope: Scope,
    /// The limits of the agent whose tunnel the modules are for. Unset for modules that are stored.
    pub agent: Option<AgentLimits>,
}

/// Limits for the modules of an agent.
pub struct AgentLimits {
    /// The account of the agent.
    pub account: Option<Arc<str>>,
    /// The addresses that rules may send requests to.
    pub reach: Reach,
    /// False if modules are only checked, without a service that has databases and applications.
    pub has_service: bool,
}

impl ModuleBuilder<'_> {
    /// What a module remembers, if it still fits; else what it begins with.
    pub fn reuse_or_create<T: Any + Send + Sync>(
        &mut self,
        kind: ModuleKind,
        fits: impl Fn(&T) -> bool,
        begin: impl FnOnce() -> Arc<T>,
    ) -> Arc<T> {
        let known = self.memory.get(&kind).and_then(|known| known.clone().downcast::<T>().ok());
        if let Some(known) = known.filter(|known| fits(known)) {
            return known;
        }
        let made = begin();
        self.memory.insert(kind, made.clone());
        made
    }

    /// Compiles a policy. A stored policy was checked, but an earlier version may have accepted a document that this
    /// one refuses: then visitors get a 503.
    ///
    /// # Errors
    /// If the policy is an agent's, and cannot be applied.
    pub fn compile_policy(
        &self,
        document: &impl Serialize,
        scope: Scope,
    ) -> ModuleResult<Arc<Policy>> {
        let policy = match (self.policies.compiled_policy(document, scope), &self.agent) {
            (Ok(policy), _) => policy,
            (Err(problems), None) => self.report_unusable(&problems, scope),
            (Err(problems), Some(_)) => return Err(InvalidModule::from_problems(&problems)),
        };
        let address_problem = || policy.address_kinds.missing_from(self.known_addresses);
        let login_problem = || policy.login_problem(self.applications);
        let problem =
            match &self.agent {
                Some(agent) => policy.secrets.first().map(unreadable).or_else(|| {
                    address_problem().or_else(login_problem).filter(|_| agent.has_service)
                }),
                None => {
                    self.warn_of_gaps(address_problem(), login_problem());
                    None
                }
            };
        match problem {
            Some(problem) => Err(InvalidModule::from_problems(&[problem])),
            None => Ok(policy),
        }
    }

    /// Reports the needs of a stored policy that the service lacks. The rest of the policy still counts.
    fn warn_of_gaps(&self, address_problem: Option<Problem>, login_problem: Option<Problem>) {
        if let Some(problem) = address_problem {
            tracing::warn!(owner = self.owner, err = %problem, "a stored policy asks for what nobody knows");
        }
        if let Some(problem) = login_problem {
            tracing::warn!(owner = self.owner, err = %problem, "nobody can log in as a stored policy says");
        }
    }

    /// Returns the addresses that rules may send requests to.
    pub fn reach(&self) -> Reach {
        self.agent.as_ref().map(|agent| agent.reach).unwrap_or_default()
    }

    /// Reports a stored policy that is refused, and returns one that no visitor passes.
    pub fn report_unusable(&self, problems: &[Problem], scope: Scope) -> Arc<Policy> {
        let problem = InvalidModule::from_problems(problems).message;
        tracing::error!(
            owner = self.owner,
            err = problem,
            "a stored policy is refused; visitors get a 503"
        );
        self.policies.record_refused(self.owner, problem);
        closed_policy(scope)
    }
}

/// Refuses a secret: agents could read all secrets by a policy that responds with them.
fn unreadable(secret: &SecretName) -> Problem {
    let message = format!(
        "{secret}: the policy of an agent may read no secrets of the service: put it on a cloud \
         endpoint or an edge"
    );
    Problem { code: code::EXPRESSION, place: "document".to_owned(), message }
}

/// A policy that no visitor passes: requests get a 503, and other connections are closed.
fn closed_policy(scope: Scope) -> Arc<Policy> {
    let action = match scope.is_http() {
        true => json!({
            "type": "custom-response",
            "config": {"status_code": 503, "body": UNUSABLE_BODY},
        }),
        false => json!({"type": "deny"}),
    };
    let document = json!({"inbound": [{"actions": [action]}]});
    // The document is always the same one, and a test compiles it for each scope.
    Arc::new(Policy::compile(&document, scope).unwrap_or_else(|_| Policy::empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_visitor_passes_a_closed_policy() {
        for scope in [Scope::HttpsRoute, Scope::HttpTunnel, Scope::TcpEdge, Scope::TcpTunnel] {
            let policy = closed_policy(scope);

            let rules = if scope.is_http() { &policy.request } else { &policy.connect };
            let mut actions = rules.iter().flat_map(|rule| &rule.actions);
            assert!(actions.any(|action| action.always_ends()), "{scope:?}");
        }
    }
}
