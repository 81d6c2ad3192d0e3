//! IP policy rules: one network each, named once in its policy.

use std::net::IpAddr;

use ginnel_api::id;
use ginnel_api::remote::Ref;
use ginnel_api::remote::ip_policy_rules::{Create, IpPolicyRule, Update};

use crate::accounts::Caller;
use crate::context::wrong_prefix;
use crate::handlers::prelude::*;
use crate::references::POLICY_OF_RULE;
use crate::restrictions::check_caller_of_policy;
/// How many rules a policy may hold (remote API sheet, section 6).
const MOST_RULES: i64 = 1000;

impl StoredResource for IpPolicyRule {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        if let Some(policy) = &mut self.ip_policy {
            policy.uri = base.of(&policy.id);
        }
    }

    fn remove(change: &Transaction<'_>, id: &str, call: &RemovalContext) -> Result<()> {
        let rule: Self = find_or_refuse(change, id)?;
        remove_or_refuse::<Self>(change, id)?;
        check_caller_of(change, &rule, &call.caller, call.restricted_address)
    }
}

usual_handlers! { ip_policy_rules }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    check_cidr(&params.cidr)?;
    check_action(&params.action)?;
    if !id::has_prefix(&params.ip_policy_id, prefix::IP_POLICY) {
        return Err(wrong_prefix("ip_policy_id", &params.ip_policy_id, prefix::IP_POLICY));
    }
    let (caller, address) = (service.caller.clone(), service.restricted_address());
    let create = service.write_resource(move |change| {
        let policy = Ref { id: params.ip_policy_id, ..Ref::default() };
        check_policy(change, &policy.id)?;
        let rule = new_item!(change, params => IpPolicyRule {
            cidr: Some(params.cidr),
            ip_policy: Some(policy),
            action: Some(params.action),
        });
        store_rule(change, &rule)?;
        check_caller_of(change, &rule, &caller, address)?;
        Ok(rule)
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    params.cidr.as_deref().map_or(Ok(()), check_cidr)?;
    let (caller, address) = (service.caller.clone(), service.restricted_address());
    let update = service.write_resource(move |change| {
        let rule = changed_item!(change, params => IpPolicyRule { cidr, description, metadata });
        store_rule(change, &rule)?;
        check_caller_of(change, &rule, &caller, address)?;
        Ok(rule)
    });
    update.await
}

/// Refuses a change of a rule after which its caller could not use the API.
fn check_caller_of(
    change: &Transaction<'_>,
    rule: &IpPolicyRule,
    caller: &Caller,
    address: Option<IpAddr>,
) -> Result<()> {
    let policy = rule.ip_policy.as_ref().map_or("", |policy| policy.id.as_str());
    check_caller_of_policy(change, policy, caller, address)
}

/// Stores a rule with its claim on the network.
fn store_rule(change: &Transaction<'_>, rule: &IpPolicyRule) -> Result<()> {
    let policy = rule.ip_policy.as_ref().map_or("", |policy| policy.id.as_str());
    let cidr = rule.cidr.as_deref().unwrap_or_default();
    let networks = network_space(policy);
    change.release_claims(&networks, &rule.id)?;
    if !change.claim_key(&networks, &canonical_cidr(cidr), &rule.id)? {
        let message = format!("cidr: the IP policy has a rule for {cidr} already");
        return Err(Refusal::new(code::CIDR_DUPLICATE, message));
    }
    change.replace_references(&rule.id, POLICY_OF_RULE, [policy])?;
    Ok(change.put_document(rule)?)
}

/// Where the networks of a policy are unique.
fn network_space(policy: &str) -> String {
    format!("cidr:{policy}")
}

fn check_policy(change: &Transaction<'_>, id: &str) -> Result<()> {
    if !change.exists(id)? {
        let message = format!("ip_policy_id: there is no IP policy {id:?}");
        return Err(Refusal::new(code::RULE_POLICY_UNKNOWN, message));
    }
    if change.count_claims(&network_space(id))? >= MOST_RULES {
        let message = format!("the IP policy has {MOST_RULES} rules, which is the limit");
        return Err(Refusal::new(code::RULES_TOO_MANY, message));
    }
    Ok(())
}

fn check_action(action: &str) -> Result<()> {
    if matches!(action, "allow" | "deny") {
        return Ok(());
    }
    let message = format!("action: {action:?} is neither allow nor deny");
    Err(Refusal::new(code::RULE_ACTION, message))
}

fn check_cidr(cidr: &str) -> Result<()> {
    let invalid = || {
        let message =
            format!("cidr: {cidr:?} is not a network such as 10.0.0.0/8 or 2001:db8::/32");
        Refusal::new(code::CIDR_INVALID, message)
    };
    if cidr.is_empty() {
        return Err(Refusal::new(code::CIDR_MISSING, "cidr: must not be empty"));
    }
    let Some((address, mask)) = cidr.split_once('/') else {
        let Ok(address) = cidr.parse::<IpAddr>() else { return Err(invalid()) };
        let message =
            format!("cidr: {cidr:?} has no mask; for one address write {}", host_network(address));
        return Err(Refusal::new(code::CIDR_NO_MASK, message));
    };
    let Some((address, mask)) = parse_network(address, mask) else { return Err(invalid()) };
    let network = mask_address(address, mask);
    if network != address {
        let message = format!("cidr: {cidr:?} has bits outside its mask; write {network}/{mask}");
        return Err(Refusal::new(code::CIDR_HOST_BITS, message));
    }
    Ok(())
}

/// One spelling for each network.
fn canonical_cidr(cidr: &str) -> String {
    let parsed = cidr.split_once('/').and_then(|(address, mask)| parse_network(address, mask));
    parsed.map_or_else(|| cidr.to_owned(), |(address, mask)| format!("{address}/{mask}"))
}

fn parse_network(address: &str, mask: &str) -> Option<(IpAddr, u32)> {
    let address: IpAddr = address.parse().ok()?;
    let digits = !mask.is_empty() && mask.bytes().all(|byte| byte.is_ascii_digit());
    let mask = mask.parse().ok().filter(|mask| digits && *mask <= address_bits(address))?;
    Some((address, mask))
}

fn address_bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn host_network(address: IpAddr) -> String {
    format!("{address}/{}", address_bits(address))
}

fn mask_address(address: IpAddr, mask: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let bits = u32::MAX.checked_shl(32 - mask).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & bits).into())
        }
        IpAddr::V6(v6) => {
            let bits = u128::MAX.checked_shl(128 - mask).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & bits).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_no_bits_outside_its_mask() {
        for good in ["0.0.0.0/0", "10.0.0.0/8", "1.2.3.4/32", "::/0", "2001:db8::/32", "::1/128"] {
            assert_eq!(check_cidr(good), Ok(()), "{good}");
        }
        for bad in ["10.0.0.1/8", "0.0.0.1/0", "2001:db8::1/32", "1.2.3.4", "1.2.3.4/33", "x/8"] {
            assert!(check_cidr(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_network_has_one_spelling() {
        assert_eq!(canonical_cidr("2001:DB8:0::/032"), "2001:db8::/32");
    }
}
