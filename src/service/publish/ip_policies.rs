//! IP policies.

use std::sync::Arc;

use crate::api::remote::ip_policy_rules::IpPolicyRule;
use crate::gateway::modules::IpRules;
use crate::service::publish::State;
use crate::service::references::POLICY_OF_RULE;
use crate::service::store::{self, View};

impl State {
    pub(super) fn refresh_policy(&mut self, view: &View<'_>, id: &str) -> Result<(), store::Error> {
        let mut rules = IpRules::default();
        for rule_id in view.referrers(id, POLICY_OF_RULE)? {
            let Some(rule) = view.find::<IpPolicyRule>(&rule_id)? else { continue };
            // Stored rules were checked.
            let Some(Ok(range)) = rule.cidr.as_deref().map(str::parse) else { continue };
            match rule.action.as_deref() {
                Some("allow") => rules.allow.push(range),
                _ => rules.deny.push(range),
            }
            self.rules.insert(rule_id, id.to_owned());
        }
        self.gateway.ip_policy(id).store(Arc::new(rules));
        Ok(())
    }
}
