//! The resources whose changes are events, as their operation `get` shows them.

use ginnel_api::remote::backends::{failover, http_response, static_, tunnel_group, weighted};
use ginnel_api::remote::edges::{https, routes, tcp, tls};
use ginnel_api::remote::{
    api_keys, bot_users, certificate_authorities, credentials, endpoints, event_destinations,
    event_subscriptions, ip_policies, ip_policy_rules, ip_restrictions, reserved_addrs,
    reserved_domains, tls_certificates, vault_secrets, vaults,
};
use ginnel_api::{Operation, Resource};
use ginnel_gateway::Gateway;

use super::endpoints::shown_cloud;
use crate::cloud_endpoint::CloudEndpoint;
use crate::events::EventObject;
use crate::handlers::prelude::*;

/// Resources that are shown as their operation `get` shows them.
macro_rules! plain {
    ($base:ident, $has_acme:ident: $($resource:ident),+ $(,)?) => {
        [$(stored::<$resource::Get>(&$resource::RESOURCE, $base, $has_acme)),+]
    };
}

/// Those that are made without the management API too: by commands, and by the start of a service.
pub(crate) fn key_objects(base: &Base) -> Vec<EventObject> {
    let has_acme = false;
    plain![base, has_acme: api_keys, credentials].into()
}

/// The resources whose changes are events.
pub(crate) fn all_objects(base: &Base, gateway: &Gateway, has_acme: bool) -> Vec<EventObject> {
    let mut objects = key_objects(base);
    objects.extend(plain![
        base, has_acme:
        bot_users,
        certificate_authorities,
        event_destinations,
        event_subscriptions,
        failover,
        http_response,
        https,
        ip_policies,
        ip_policy_rules,
        ip_restrictions,
        reserved_addrs,
        reserved_domains,
        routes,
        static_,
        tcp,
        tls_certificates,
        tls,
        tunnel_group,
        vault_secrets,
        vaults,
        weighted,
    ]);
    let (base, gateway) = (base.clone(), gateway.clone());
    let endpoint = move |view: &View<'_>, endpoint: CloudEndpoint| {
        shown_cloud(view, &gateway, &base, endpoint)
    };
    objects.push(EventObject::new::<endpoints::Get, _>(&endpoints::RESOURCE, endpoint));
    objects
}

/// A stored resource, completed and with its addresses.
fn stored<Get: Operation<Output: StoredResource>>(
    resource: &'static Resource,
    base: &Base,
    has_acme: bool,
) -> EventObject {
    let base = base.clone();
    EventObject::new::<Get, Get::Output>(resource, move |view, mut stored: Get::Output| {
        stored.complete(view, has_acme)?;
        stored.locate(&base);
        Ok(stored)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::events::EventRecorder;
    use ginnel_api::id::prefix;
    use ginnel_api::remote;

    /// What has no events of its own: sources change their subscription, and service users are bot users.
    const WITHOUT: [&str; 2] = ["event_sources", "service_users"];

    async fn objects() -> Vec<EventObject> {
        let authority = ginnel_gateway::tls::authority::LocalAuthority::open(None).unwrap();
        let gateway = Gateway::start(Default::default(), authority).await.unwrap();
        all_objects(&Base::new("http://api.test"), &gateway, false)
    }

    #[tokio::test]
    async fn every_resource_that_can_be_created_has_events() {
        let objects = objects().await;
        let of_events: BTreeSet<_> = objects.iter().map(EventObject::resource_name).collect();

        let created = remote::resources()
            .filter(|resource| resource.operations.iter().any(|info| info.name == "create"))
            .map(|resource| resource.name)
            .filter(|name| !WITHOUT.contains(name));

        assert_eq!(of_events, created.collect());
        assert!(objects.iter().all(|object| object.kind != prefix::TLS_CERTIFICATE_KEY));
    }

    #[tokio::test]
    async fn the_guide_names_every_type_of_events() {
        let recorder = EventRecorder::new(objects().await);
        let guide = include_str!("../../../../docs/guides/events.md");

        let missing: Vec<_> = recorder
            .types()
            .names()
            .filter(|name| {
                let stem = name.trim_end_matches(".v0").rsplit_once('_').unwrap().0;
                !guide.contains(&format!("`{name}`")) && !guide.contains(&format!("`{stem}`"))
            })
            .collect();

        assert!(missing.is_empty(), "{missing:?}");
    }
}
