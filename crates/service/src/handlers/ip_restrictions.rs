//! IP restrictions: changed by admins, who cannot lock themselves out.

use std::collections::HashSet;

use ginnel_api::id::has_prefix;
use ginnel_api::remote::Ref;
use ginnel_api::remote::ip_restrictions::{AccountIpRestriction, Create, Update};
use ginnel_gateway::Ingress;

use crate::accounts::Caller;
use crate::context::wrong_prefix;
use crate::handlers::prelude::*;
use crate::restrictions::{INGRESS, POLICY_OF_RESTRICTION, check_admin, check_caller};

/// How many IP policies a restriction may name.
const MAX_POLICIES: usize = 100;

impl StoredResource for AccountIpRestriction {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        for policy in self.ip_policies.iter_mut().flatten() {
            policy.uri = base.of(&policy.id);
        }
    }

    fn check_writer(caller: &Caller) -> Result<()> {
        check_admin(caller)
    }
}

usual_handlers! { ip_restrictions }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    check_admin(&service.caller)?;
    check_type(&params.r#type)?;
    let policies = policy_references(params.ip_policy_ids)?;
    let address = service.restricted_address();
    let create = service.write_resource(move |change| {
        let restriction = new_item!(change, params => AccountIpRestriction {
            enforced: Some(params.enforced.unwrap_or(false)),
            r#type: Some(params.r#type),
        });
        let restriction = store_restriction(change, restriction, Some(policies))?;
        check_caller(change, address)?;
        Ok(restriction)
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    check_admin(&service.caller)?;
    // Generated clients send an empty list for what their caller left out.
    let ids = params.ip_policy_ids.filter(|ids| !ids.is_empty());
    let policies = ids.map(policy_references).transpose()?;
    let address = service.restricted_address();
    let update = service.write_resource(move |change| {
        let restriction = changed_item!(
            change, params => AccountIpRestriction { description, metadata, enforced }
        );
        let restriction = store_restriction(change, restriction, policies)?;
        check_caller(change, address)?;
        Ok(restriction)
    });
    update.await
}

fn check_type(name: &str) -> Result<()> {
    if Ingress::from_name(name).is_some() {
        return Ok(());
    }
    let known = Ingress::ALL.map(Ingress::name).join(", ");
    let message = format!("type: {name:?} is not one of {known}");
    Err(Refusal::new(code::INVALID_VALUE, message))
}

fn policy_references(ids: Vec<String>) -> Result<Vec<Ref>> {
    if ids.is_empty() {
        let message = "ip_policy_ids: must name at least one IP policy";
        return Err(Refusal::new(code::RESTRICTION_EMPTY, message));
    }
    if ids.len() > MAX_POLICIES {
        let count = ids.len();
        let message = format!("ip_policy_ids: has {count} entries, the limit is {MAX_POLICIES}");
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    let mut seen = HashSet::new();
    let reference = |(index, id): (usize, String)| {
        let place = format!("ip_policy_ids[{index}]");
        if !has_prefix(&id, prefix::IP_POLICY) {
            return Err(wrong_prefix(&place, &id, prefix::IP_POLICY));
        }
        if !seen.insert(id.clone()) {
            let message = format!("{place}: {id:?} is there twice");
            return Err(Refusal::new(code::INVALID_VALUE, message));
        }
        Ok(Ref { id, ..Ref::default() })
    };
    ids.into_iter().enumerate().map(reference).collect()
}

/// Stores a restriction, with new IP policies if there are any.
fn store_restriction(
    change: &Transaction<'_>,
    mut restriction: AccountIpRestriction,
    policies: Option<Vec<Ref>>,
) -> Result<AccountIpRestriction> {
    if let Some(policies) = policies {
        for (index, policy) in policies.iter().enumerate() {
            if !change.exists(&policy.id)? {
                let id = &policy.id;
                let message = format!("ip_policy_ids[{index}]: there is no IP policy {id:?}");
                return Err(Refusal::new(code::RESTRICTION_POLICY_UNKNOWN, message));
            }
        }
        let ids = policies.iter().map(|policy| policy.id.as_str());
        change.replace_references(&restriction.id, POLICY_OF_RESTRICTION, ids)?;
        restriction.ip_policies = Some(policies);
    }
    change.replace_references(&restriction.id, INGRESS, restriction.r#type.as_deref())?;
    stored(change, restriction)
}
