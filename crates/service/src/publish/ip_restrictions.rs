//! IP restrictions.

use ginnel_api::remote::ip_restrictions::AccountIpRestriction;
use ginnel_gateway::{Gateway, Ingress, IngressRestriction};
use ginnel_store::{StoreError, View};

/// Publishes all IP restrictions: there are few.
pub(super) fn refresh(gateway: &Gateway, view: &View<'_>) -> Result<(), StoreError> {
    let mut restrictions: [Vec<IngressRestriction>; 4] = Default::default();
    view.each(|restriction: AccountIpRestriction| {
        let ingress = restriction.r#type.as_deref().and_then(Ingress::of);
        if let Some(ingress) = ingress {
            restrictions[ingress as usize].push(compiled(gateway, restriction));
        }
        Ok(())
    })?;
    for (ingress, restrictions) in Ingress::ALL.into_iter().zip(restrictions) {
        gateway.restrictions().replace(ingress, restrictions);
    }
    Ok(())
}

fn compiled(gateway: &Gateway, restriction: AccountIpRestriction) -> IngressRestriction {
    let policies = restriction.ip_policies.unwrap_or_default();
    let policies = policies.iter().map(|policy| gateway.ip_policy(&policy.id)).collect();
    let is_enforced = restriction.enforced == Some(true) && gateway.enforces_ip_restrictions();
    IngressRestriction::new(restriction.id, is_enforced, policies)
}
