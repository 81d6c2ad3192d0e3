//! The modules of routes and edges, and what outlives a change of them.

use std::collections::HashMap;
use std::sync::Arc;

use ginnel_gateway::Gateway;
use ginnel_gateway::modules::edge_module::{BuildModule, ModuleBuilder, ModuleMemory};
use ginnel_gateway::modules::module::{Module, ModuleKind, Modules};
use ginnel_gateway::modules::policy_cache::PolicyCache;
use ginnel_gateway::modules::traffic_policy::Rules;
use ginnel_gateway::modules::traffic_policy::module::PolicyModule;
use ginnel_policy::Scope;

/// Makes modules of what the store says of them.
pub(super) struct ModuleCompiler {
    gateway: Gateway,
    policies: Arc<PolicyCache>,
    /// What modules remember, by the identifiers of routes and edges.
    memory: HashMap<String, ModuleMemory>,
}

impl ModuleCompiler {
    pub(super) fn new(gateway: Gateway, policies: Arc<PolicyCache>) -> Self {
        Self { gateway, policies, memory: HashMap::new() }
    }

    /// Forgets a route or edge that is gone.
    pub(super) fn forget_owner(&mut self, owner: &str) {
        self.memory.remove(owner);
        self.policies.forget_refused(owner);
    }

    /// The modules of a route or edge, as `build` makes them; none where none does anything.
    pub(super) fn compile_for(
        &mut self,
        owner: &str,
        scope: Scope,
        build: impl FnOnce(&mut ModuleBuilder<'_>) -> Vec<Option<Box<dyn Module>>>,
    ) -> Option<Modules> {
        let mut memory = self.memory.remove(owner).unwrap_or_default();
        self.policies.forget_refused(owner);
        let mut builder = ModuleBuilder {
            owner,
            known_addresses: self.gateway.known_addresses(),
            policies: &self.policies,
            ip_policy: &|id| self.gateway.ip_policy(id),
            secrets: self.gateway.secrets(),
            applications: self.gateway.oauth_applications(),
            memory: &mut memory,
            scope,
            agent: None,
        };
        let modules = build(&mut builder).into_iter().flatten().collect();
        if !memory.is_empty() {
            self.memory.insert(owner.to_owned(), memory);
        }
        Modules::new(modules)
    }
}

/// Builds a module that was stored. If it cannot be applied, visitors get a 503.
pub(super) fn build_stored<M: BuildModule>(
    module: M,
    builder: &mut ModuleBuilder<'_>,
) -> Option<Box<dyn Module>> {
    module.build(builder).unwrap_or_else(|invalid| {
        let policy = builder.report_unusable(&invalid.problems, builder.scope);
        let rules = Rules::new(policy, Arc::default(), builder.ip_policy);
        Some(Box::new(PolicyModule { kind: ModuleKind::Policy, rules }))
    })
}

/// Makes the modules that are switched on, in a table of modules.
macro_rules! build_modules {
    (
        [$owner:ident, $builder:ident]
        $({ $(#[doc = $doc:literal])+ $name:ident : $Module:ident from $($rest:tt)+ })+
    ) => {
        vec![$(
            $owner.$name
                .filter(EdgeModule::is_enabled)
                .and_then(|module| build_stored(module, $builder))
        ),+]
    };
}

pub(super) use build_modules;
