//! IP policies: deleted with their rules, whoever refers to them.

use ginnel_api::remote::ip_policies::{Create, IpPolicy, Update};
use ginnel_api::remote::ip_policy_rules::IpPolicyRule;

use crate::handlers::prelude::*;
use crate::references::POLICY_OF_RULE;
use crate::restrictions::POLICY_OF_RESTRICTION;

impl StoredResource for IpPolicy {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
    }

    /// Resources that refer to the policy keep its identifier (specification, rule 4 of the states). The policies of
    /// an IP restriction cannot be deleted, because the restriction would reject all callers.
    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        check_unused(change, id, &[POLICY_OF_RESTRICTION], "IP policy", code::POLICY_IN_USE)?;
        let rules = change.referrers(id, POLICY_OF_RULE)?;
        change.for_each(&rules, |rule| change.remove_document::<IpPolicyRule>(rule).map(drop))?;
        remove_or_refuse::<Self>(change, id)
    }
}

usual_handlers! { ip_policies }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let create = service
        .write_resource(move |change| stored(change, new_item!(change, params => IpPolicy {})));
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let update = service.write_resource(move |change| {
        stored(change, changed_item!(change, params => IpPolicy { description, metadata }))
    });
    update.await
}
