//! IP policies: deleted with their rules, whoever refers to them.

use ginnel_api::id::prefix;
use ginnel_api::remote::ip_policies::{Create, Delete, Get, IpPolicy, List, Update};
use ginnel_api::remote::ip_policy_rules::IpPolicyRule;

use super::{Context, Handler, OperationResult, on, resource};
use crate::context::{found, remove};
use crate::references::POLICY_OF_RULE;
use crate::restrictions::POLICY_OF_RESTRICTION;
use crate::{Refusal, code};

resource! { IpPolicy }

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let create = service.change(move |change| {
        let policy = IpPolicy {
            id: change.new_id(prefix::IP_POLICY)?,
            created_at: Some(change.now()),
            description: Some(params.description.unwrap_or_default()),
            metadata: Some(params.metadata.unwrap_or_default()),
            ..IpPolicy::default()
        };
        change.put(&policy)?;
        Ok(policy)
    });
    create.await
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    service.page::<List, _>(params.before_id, params.limit).await
}

async fn get(service: Context, params: Get) -> OperationResult<Get> {
    service.find(params.id).await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let update = service.change(move |change| {
        let mut policy: IpPolicy = found(change, &params.id)?;
        policy.description = params.description.or(policy.description);
        policy.metadata = params.metadata.or(policy.metadata);
        change.put(&policy)?;
        Ok(policy)
    });
    update.await
}

/// What refers to the policy keeps its identifier (specification, rule 4 of the states); an IP restriction
/// would refuse everybody then, so that its policies stay.
async fn delete(service: Context, params: Delete) -> OperationResult<Delete> {
    let delete = service.write(move |change| {
        if let Some(restriction) = change.referrers(&params.id, POLICY_OF_RESTRICTION)?.first() {
            let message = format!("the IP policy is in use by {restriction}");
            return Err(Refusal::new(code::POLICY_IN_USE, message));
        }
        let rules = change.referrers(&params.id, POLICY_OF_RULE)?;
        change.for_each(&rules, |rule| change.remove::<IpPolicyRule>(rule).map(drop))?;
        remove::<IpPolicy>(change, &params.id)
    });
    delete.await
}
