//! What the store says of edges, backends and IP policies, in the form that traffic finds.

use std::collections::HashSet;
use std::sync::Arc;

use ginnel_api::id::prefix;
use ginnel_api::remote::edges::tcp::TcpEdge;
use ginnel_api::remote::edges::tls::TlsEdge;
use ginnel_gateway::Gateway;
use ginnel_gateway::modules::policy_cache::PolicyCache;
use ginnel_store::{self as store, Changes, Document, View};

use crate::publish::backends::Backends;
use crate::publish::certificates::PublishedCertificates;
use crate::publish::cloud_endpoints::CloudEndpoints;
use crate::publish::flawed_backends::FlawedBackends;
use crate::publish::https_edges::HttpsEdges;
use crate::publish::ip_policies::IpPolicyTable;
use crate::publish::ip_restrictions;
use crate::publish::modules::ModuleCompiler;
use crate::publish::secrets::PublishedSecrets;
use crate::publish::tcp_edges::TcpEdges;
use crate::publish::tls_edges::TlsEdges;
use crate::vaults::VaultKey;

/// The kinds of documents that traffic depends on.
const PUBLISHED_KINDS: &[&str] = &[
    prefix::VAULT,
    prefix::VAULT_SECRET,
    prefix::IP_POLICY,
    prefix::IP_POLICY_RULE,
    prefix::IP_RESTRICTION,
    prefix::TUNNEL_GROUP,
    prefix::FAILOVER,
    prefix::HTTP_RESPONSE,
    prefix::WEIGHTED,
    prefix::STATIC,
    prefix::HTTPS_EDGE,
    prefix::HTTPS_ROUTE,
    prefix::TCP_EDGE,
    prefix::TLS_EDGE,
    prefix::ENDPOINT,
    prefix::RESERVED_DOMAIN,
    prefix::MANAGED_NAME,
];

/// Everything that was published; edges hold on to backends and IP policies, and need not be compiled
/// again when these change.
pub(super) struct RouteTables {
    gateway: Gateway,
    backends: Backends,
    ip_policies: IpPolicyTable,
    secrets: PublishedSecrets,
    modules: ModuleCompiler,
    https_edges: HttpsEdges,
    tcp_edges: Arc<TcpEdges>,
    tls_edges: TlsEdges,
    cloud_endpoints: CloudEndpoints,
    certificates: PublishedCertificates,
}

impl RouteTables {
    pub(super) fn new(
        gateway: &Gateway,
        policies: Arc<PolicyCache>,
        flawed: Arc<FlawedBackends>,
        tcp_edges: Arc<TcpEdges>,
        vault_key: Arc<VaultKey>,
    ) -> Self {
        Self {
            gateway: gateway.clone(),
            backends: Backends::new(gateway.clone(), flawed),
            ip_policies: IpPolicyTable::new(gateway.clone()),
            secrets: PublishedSecrets::new(gateway.clone(), vault_key),
            modules: ModuleCompiler::new(gateway.clone(), policies),
            https_edges: HttpsEdges::new(gateway.clone()),
            cloud_endpoints: CloudEndpoints::new(gateway.clone(), tcp_edges.clone()),
            tcp_edges,
            tls_edges: TlsEdges::new(gateway.clone()),
            certificates: PublishedCertificates::new(gateway.clone()),
        }
    }

    /// Publishes everything, and takes back what was published and is gone.
    pub(super) fn publish_all(&mut self, view: &View<'_>) -> store::StoreResult<()> {
        self.ip_policies.publish_all(view)?;
        // Before the policies that read them.
        self.secrets.publish_all(view)?;
        ip_restrictions::publish_restrictions(&self.gateway, view)?;
        self.backends.publish_all(view)?;
        self.https_edges.publish_all(view, &mut self.modules, &mut self.backends)?;
        self.refresh_ids(view, &gone_first(self.tcp_edges.ids(), oldest_first::<TcpEdge>(view)?))?;
        self.refresh_ids(view, &gone_first(self.tls_edges.ids(), oldest_first::<TlsEdge>(view)?))?;
        self.cloud_endpoints.publish_all(view, &mut self.modules)?;
        self.certificates.publish_all(view)
    }

    /// Publishes what has changed.
    pub(super) fn publish_changes(
        &mut self,
        view: &View<'_>,
        changes: &Changes,
    ) -> store::StoreResult<()> {
        match changes {
            Changes::Of(ids) => self.refresh_ids(view, ids),
            Changes::All => {
                self.publish_all(view)?;
                // One edge may have got what another had.
                self.retry_missing();
                Ok(())
            }
        }
    }

    /// Publishes what has changed, each thing once.
    fn refresh_ids(&mut self, view: &View<'_>, changed: &[String]) -> store::StoreResult<()> {
        let Self {
            gateway,
            backends,
            ip_policies,
            secrets,
            modules,
            https_edges,
            tcp_edges,
            tls_edges,
            cloud_endpoints,
            certificates,
        } = self;
        let mut owners = Vec::new();
        let mut known = HashSet::new();
        for id in changed {
            let owner = match kind_of(id) {
                prefix::HTTPS_ROUTE => https_edges.edge_of(view, modules, id)?,
                prefix::IP_POLICY_RULE => ip_policies.policy_of(view, id)?,
                _ => Some(id.clone()),
            };
            owners.extend(owner.filter(|owner| known.insert(owner.clone())));
        }
        for id in &owners {
            match kind_of(id) {
                prefix::HTTPS_EDGE => https_edges.refresh_edge(view, modules, backends, id)?,
                prefix::TCP_EDGE => tcp_edges.refresh_edge(view, modules, backends, id)?,
                prefix::TLS_EDGE => tls_edges.refresh_edge(view, modules, backends, id)?,
                prefix::ENDPOINT => cloud_endpoints.refresh_endpoint(view, modules, id)?,
                prefix::IP_RESTRICTION => ip_restrictions::publish_restrictions(gateway, view)?,
                prefix::VAULT => secrets.refresh_vault(view, id)?,
                prefix::VAULT_SECRET => secrets.refresh_secret(view, id)?,
                prefix::IP_POLICY => ip_policies.refresh_policy(view, id)?,
                prefix::RESERVED_DOMAIN => certificates.refresh_domain(view, id)?,
                prefix::MANAGED_NAME => certificates.refresh_managed(view, id)?,
                kind => backends.refresh_backend(view, kind, id)?,
            }
        }
        secrets.publish_changes();
        Ok(())
    }

    /// Tries again to get the ports and names of edges that others had.
    pub(super) fn retry_missing(&mut self) {
        self.tcp_edges.retry_listeners();
        self.https_edges.retry_names();
        self.tls_edges.retry_names();
        self.cloud_endpoints.retry_names();
    }
}

/// The identifiers of all documents of a kind.
fn oldest_first<D: Document>(view: &View<'_>) -> store::StoreResult<Vec<String>> {
    let mut ids: Vec<_> =
        view.all_documents::<D>()?.iter().map(|document| document.id().to_owned()).collect();
    ids.reverse();
    Ok(ids)
}

/// What is stored, after what was known and is not: others may have its names and ports.
fn gone_first(known: Vec<String>, stored: Vec<String>) -> Vec<String> {
    let present: HashSet<&String> = stored.iter().collect();
    let mut ids: Vec<_> = known.into_iter().filter(|id| !present.contains(id)).collect();
    ids.extend(stored);
    ids
}

/// Whether traffic depends on what this identifier names.
pub(super) fn is_published(id: &str) -> bool {
    PUBLISHED_KINDS.contains(&kind_of(id))
}

/// The kind of resource that an identifier names.
fn kind_of(id: &str) -> &str {
    id.rsplit_once('_').map_or(id, |(prefix, _)| prefix)
}
