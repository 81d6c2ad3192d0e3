//! The modules of routes and edges, and what outlives a change of them.

use std::collections::HashMap;
use std::sync::Arc;

use ginnel_gateway::Gateway;
use ginnel_gateway::modules::edge_module::{ModuleBuilder, ModuleMemory};
use ginnel_gateway::modules::module::{Module, Modules};
use ginnel_gateway::modules::policy_cache::PolicyCache;
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
    pub(super) fn forget(&mut self, owner: &str) {
        self.memory.remove(owner);
        self.policies.forget_refused(owner);
    }

    /// The modules of a route or edge, as `build` makes them; none where none does anything.
    pub(super) fn build(
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
        };
        let modules = build(&mut builder).into_iter().flatten().collect();
        if !memory.is_empty() {
            self.memory.insert(owner.to_owned(), memory);
        }
        Modules::new(modules)
    }
}

/// Makes the modules that are switched on, in a table of modules.
macro_rules! build_modules {
    (
        [$owner:ident, $builder:ident]
        $({ $(#[doc = $doc:literal])+ $name:ident : $Module:ident from $($rest:tt)+ })+
    ) => {
        vec![$(
            $owner.$name.filter(EdgeModule::is_enabled).and_then(|module| module.build($builder))
        ),+]
    };
}

pub(super) use build_modules;
