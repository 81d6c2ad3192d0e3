//! IP restrictions: which there are, and that nobody locks themselves out.

use std::net::IpAddr;

use ginnel_api::remote::ip_policy_rules::IpPolicyRule;
use ginnel_api::remote::ip_restrictions::AccountIpRestriction;
use ginnel_gateway::Ingress;
use ginnel_policy::ip_rules::{IpRules, decide_access};

use super::accounts::Caller;
use super::publish::add_rule;
use super::references::POLICY_OF_RULE;
use super::store::{StoreResult, Transaction, View};
use super::{Refusal, Result, code};

/// The role of an IP policy for the IP restrictions that use it.
pub(super) const POLICY_OF_RESTRICTION: &str = "restriction_policy";
/// The role of the name of an ingress for its IP restrictions.
pub(super) const INGRESS: &str = "ingress";

/// The rules with these identifiers, of one IP policy.
fn rules_of(view: &View<'_>, rule_ids: &[String]) -> StoreResult<IpRules> {
    let mut rules = IpRules::default();
    // One read for all: with a server, each costs a round trip.
    let stored: Vec<IpPolicyRule> = view.find_documents(rule_ids)?;
    stored.iter().for_each(|rule| add_rule(&mut rules, rule));
    Ok(rules)
}

/// Refuses a change of IP restrictions after which its caller could not use the API.
pub(super) fn check_caller(change: &Transaction<'_>, address: Option<IpAddr>) -> Result<()> {
    let Some(address) = address else { return Ok(()) };
    for id in change.referrers(Ingress::Api.name(), INGRESS)? {
        let Some(restriction) = change.find_document::<AccountIpRestriction>(&id)? else {
            continue;
        };
        if restriction.enforced == Some(true) && !allows_address(change, &restriction, address)? {
            let message = format!("the IP restriction {id} would refuse the caller, {address}");
            return Err(Refusal::new(code::RESTRICTION_LOCKOUT, message));
        }
    }
    Ok(())
}

/// The same for a change of the rules of an IP policy, which most IP restrictions do not use; with those that do,
/// only admins may.
pub(super) fn check_caller_of_policy(
    change: &Transaction<'_>,
    policy_id: &str,
    caller: &Caller,
    address: Option<IpAddr>,
) -> Result<()> {
    if change.referrers(policy_id, POLICY_OF_RESTRICTION)?.is_empty() {
        return Ok(());
    }
    check_admin(caller)?;
    check_caller(change, address)
}

/// Refuses changes of IP restrictions by others than admins.
pub(super) fn check_admin(caller: &Caller) -> Result<()> {
    let action = "change IP restrictions, and the IP policies that they use";
    caller.check_admin(code::RESTRICTION_NEEDS_ADMIN, action)
}

fn allows_address(
    view: &View<'_>,
    restriction: &AccountIpRestriction,
    address: IpAddr,
) -> StoreResult<bool> {
    let policies = restriction.ip_policies.iter().flatten();
    let rules = policies.map(|policy| {
        let rule_ids = view.referrers(&policy.id, POLICY_OF_RULE)?;
        rules_of(view, &rule_ids)
    });
    let rules = rules.collect::<StoreResult<Vec<_>>>()?;
    Ok(decide_access(address, &rules).allowed)
}
