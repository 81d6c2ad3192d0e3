//! IP restrictions.

use ginnel_api::remote::ip_restrictions::AccountIpRestriction;
use ginnel_gateway::{Gateway, Ingress, IngressRestriction};
use ginnel_store::{StoreResult, View};

/// Publishes all IP restrictions: there are few.
pub(super) fn publish_restrictions(gateway: &Gateway, view: &View<'_>) -> StoreResult<()> {
    let mut restrictions: [Vec<IngressRestriction>; 4] = Default::default();
    view.for_each_document(|restriction: AccountIpRestriction| {
        let ingress = restriction.r#type.as_deref().and_then(Ingress::from_name);
        if let Some(ingress) = ingress {
            restrictions[ingress as usize].push(build_restriction(gateway, restriction));
        }
        Ok(())
    })?;
    for (ingress, restrictions) in Ingress::ALL.into_iter().zip(restrictions) {
        gateway.restrictions().replace(ingress, restrictions);
    }
    Ok(())
}

fn build_restriction(gateway: &Gateway, restriction: AccountIpRestriction) -> IngressRestriction {
    let policies = restriction.ip_policies.unwrap_or_default();
    let policies = policies.iter().map(|policy| gateway.ip_policy(&policy.id)).collect();
    let is_enforced = restriction.enforced == Some(true) && gateway.enforces_ip_restrictions();
    IngressRestriction::new(restriction.id, is_enforced, policies)
}
