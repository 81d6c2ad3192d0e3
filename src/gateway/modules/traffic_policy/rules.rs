//! A policy with what its requests share.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::policy::ip_rules::IpRules;
use crate::policy::{Phase, Policy, PolicyState, World};

/// The action that makes it necessary to know the request when the answer comes.
const COMPRESS_ACTION: &str = "compress-response";

/// A policy, and what its requests share.
pub(crate) struct Rules {
    pub(super) policy: Arc<Policy>,
    state: Arc<PolicyState>,
    /// The IP policies that the rules name.
    ip_policies: HashMap<String, Arc<ArcSwap<IpRules>>>,
    /// True when the response phase has something to do.
    responds: bool,
}

impl Rules {
    /// Rules over IP policies that are found by `ip_policy`.
    pub(crate) fn new(
        policy: Arc<Policy>,
        state: Arc<PolicyState>,
        ip_policy: impl Fn(&str) -> Arc<ArcSwap<IpRules>>,
    ) -> Self {
        let ip_policies = policy.ip_policy_ids().map(|id| (id.to_owned(), ip_policy(id))).collect();
        let steps = policy.request.iter().flat_map(|rule| &rule.actions);
        let responds = policy.has(Phase::Response)
            || policy.enabled && steps.into_iter().any(|step| step.kind.name == COMPRESS_ACTION);
        Self { policy, state, ip_policies, responds }
    }

    /// Whether anything is to be done in a phase.
    pub(crate) fn has(&self, phase: Phase) -> bool {
        match phase {
            Phase::Response => self.responds,
            phase => self.policy.has(phase),
        }
    }
}

impl Rules {
    /// Whether they look at the paths of requests.
    pub(crate) fn read_paths(&self) -> bool {
        self.policy.enabled && self.policy.reads_paths
    }
}

impl World for Rules {
    fn ip_policy(&self, id: &str) -> Arc<IpRules> {
        self.ip_policies.get(id).map(|rules| rules.load_full()).unwrap_or_default()
    }

    fn state(&self) -> &PolicyState {
        &self.state
    }
}
