//! IP policies.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ginnel_api::remote::ip_policies::IpPolicy;
use ginnel_api::remote::ip_policy_rules::IpPolicyRule;
use ginnel_gateway::Gateway;
use ginnel_policy::ip_rules::IpRules;
use ginnel_store::{self as store, View};

use crate::references::POLICY_OF_RULE;

/// Publishes IP policies.
pub(super) struct IpPolicyTable {
    gateway: Gateway,
    /// Which policy a rule belongs to.
    policies_of_rules: HashMap<String, String>,
}

impl IpPolicyTable {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self { gateway, policies_of_rules: HashMap::new() }
    }

    /// The policy of a rule, which may be gone.
    pub(super) fn policy_of(
        &mut self,
        view: &View<'_>,
        rule_id: &str,
    ) -> store::StoreResult<Option<String>> {
        let Some(rule) = view.find_document::<IpPolicyRule>(rule_id)? else {
            return Ok(self.policies_of_rules.remove(rule_id));
        };
        let policy = rule.ip_policy.map(|policy| policy.id);
        if let Some(policy) = &policy {
            self.policies_of_rules.insert(rule.id, policy.clone());
        }
        Ok(policy)
    }

    /// Publishes the rules of all policies, and takes back those of policies that are gone; each document is
    /// read once.
    pub(super) fn publish_all(&mut self, view: &View<'_>) -> store::StoreResult<()> {
        let mut gone: HashSet<String> = self.policies_of_rules.drain().map(|(_, it)| it).collect();
        let mut rules: HashMap<String, IpRules> = HashMap::new();
        view.for_each_document(|rule: IpPolicyRule| {
            if let Some(policy) = &rule.ip_policy {
                add_rule(rules.entry(policy.id.clone()).or_default(), &rule);
                self.policies_of_rules.insert(rule.id, policy.id.clone());
            }
            Ok(())
        })?;
        view.for_each_document(|policy: IpPolicy| {
            gone.remove(&policy.id);
            let rules = rules.remove(&policy.id).unwrap_or_default();
            self.gateway.ip_policy(&policy.id).store(Arc::new(rules));
            Ok(())
        })?;
        gone.iter().for_each(|id| self.gateway.ip_policy(id).store(Arc::default()));
        Ok(())
    }

    /// Publishes the rules of a policy.
    pub(super) fn refresh_policy(&mut self, view: &View<'_>, id: &str) -> store::StoreResult<()> {
        let mut rules = IpRules::default();
        // One read for all: with a server, each costs a round trip.
        let stored: Vec<IpPolicyRule> =
            view.find_documents(&view.referrers(id, POLICY_OF_RULE)?)?;
        for rule in stored {
            add_rule(&mut rules, &rule);
            self.policies_of_rules.insert(rule.id, id.to_owned());
        }
        self.gateway.ip_policy(id).store(Arc::new(rules));
        Ok(())
    }
}

/// Adds a rule that is stored to those of its IP policy.
pub(crate) fn add_rule(rules: &mut IpRules, rule: &IpPolicyRule) {
    // Stored rules were checked.
    let Some(Ok(range)) = rule.cidr.as_deref().map(str::parse) else { return };
    match rule.action.as_deref() {
        Some("allow") => rules.allow.push(range),
        _ => rules.deny.push(range),
    }
}
