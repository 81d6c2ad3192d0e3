//! What handlers work with.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use ginnel_api::id::{self, Ids};
use ginnel_api::{Info, Operation, Origin, Page};
use ginnel_gateway::Gateway;
use ginnel_gateway::modules::policy_cache::PolicyCache;
use ginnel_net::Reach;
use ginnel_policy::AddressKinds;
use ginnel_policy::login::OauthApplications;

use super::accounts::Caller;
use super::acme::CertificateProgress;
use super::address::Base;
use super::audit::{AuditTrail, AuditedCall};
use super::backup::{BackupDownloads, BackupProgress};
use super::callers::Callers;
use super::cluster::{self, Cluster, OwnedRow, Peers};
use super::events::{EventMetrics, EventRecorder, Principal};
use super::live::LiveSettings;
use super::monitoring::ApiMetrics;
use super::publish::Publisher;
use super::rehearsal::Rehearsal;
use super::reload::ReloadRequests;
use super::store::{
    Document, Job, ReadWork, Store, StoreError, StoreResult, Transaction, TypedJob, View,
};
use super::vaults::VaultKey;
use super::{Refusal, Result, code};
use crate::agents::Registry;

/// What a handler answers: the result of its operation, or a refusal.
pub(super) type OperationResult<O> = Result<<O as Operation>::Output>;

/// The result of a handler's work on the database. Its type is erased, so that the code that carries the work to the
/// database and back is compiled once, and not for each handler.
type ErasedValue = Box<dyn Any + Send>;
type ErasedRead = ReadWork<ErasedValue, Refusal>;
type ErasedWrite = Box<dyn FnMut(&Transaction<'_>) -> Result<ErasedValue> + Send>;
type ResourceWrite<R> = Box<dyn FnMut(&Transaction<'_>) -> Result<R> + Send>;

/// What all requests of a service share.
pub(super) struct ServiceState {
    pub store: Arc<Store>,
    pub callers: Callers,
    pub base: Base,
    pub code_prefix: String,
    /// What may change while it runs.
    pub live: LiveSettings,
    /// The way to whoever reloads the configuration.
    pub reloads: ReloadRequests,
    /// True when edges and agents may use only domains that their owner has reserved.
    pub reserved_domains_only: bool,
    /// True when the service obtains certificates by ACME.
    pub has_acme: bool,
    /// Where traffic comes in.
    pub gateway: Gateway,
    /// What secrets are encrypted with.
    pub vault_key: Arc<VaultKey>,
    /// Hands the gateway what the store says.
    pub publisher: Arc<Publisher>,
    /// The agents that are connected, and their tunnels.
    pub registry: Arc<Registry>,
    /// The cluster of which the service is a node; none where it is the only one.
    pub cluster: Option<Arc<Cluster>>,
    /// The other nodes; none where there are none, or where they cannot reach this one.
    pub peers: Option<Arc<Peers>>,
    /// Who changed what.
    pub audit: Arc<AuditTrail>,
    /// Who is told what has changed.
    pub events: Arc<EventRecorder>,
    /// What is counted of that.
    pub event_metrics: Arc<EventMetrics>,
    /// True when event destinations may be files.
    pub has_event_folder: bool,
    /// Where URLs of event destinations may lead.
    pub event_reach: Reach,
    /// How backups go.
    pub backups: Arc<BackupProgress>,
    /// How certificates by ACME go.
    pub certificates: Arc<CertificateProgress>,
    /// Copies of the database for callers.
    pub downloads: BackupDownloads,
    /// What tests have asked for.
    pub rehearsal: Rehearsal,
    /// Makes the identifiers of operations, as named in refusals.
    pub operation_ids: Ids,
    /// Counts operations; none where nobody scrapes.
    pub metrics: Option<ApiMetrics>,
    /// What time it is.
    pub origin: Origin,
}

/// The service as one request sees it.
#[derive(Clone)]
pub(super) struct Context {
    pub shared: Arc<ServiceState>,
    pub caller: Arc<Caller>,
    /// Where the call comes from.
    pub address: Option<IpAddr>,
    /// What the audit trail will have of the call; none where it only reads.
    pub call: Option<Arc<AuditedCall>>,
}

/// A resource that can be shown: the store keeps it without addresses.
pub(super) trait StoredResource: Document + Send + 'static {
    /// Fills in what depends on the address of the service.
    fn locate(&mut self, base: &Base);

    /// Fills in the fields that are looked up in the database for each response.
    fn complete(&mut self, _: &View<'_>, _has_acme: bool) -> StoreResult<()> {
        Ok(())
    }

    /// Fills in the fields that only a running service knows. Events do not contain them.
    fn observe(&mut self, _: &ServiceState) {}

    /// Rejects callers who may not read such resources.
    fn check_reader(_: &Caller) -> Result<()> {
        Ok(())
    }

    /// Rejects callers who may not delete such resources.
    fn check_writer(_: &Caller) -> Result<()> {
        Ok(())
    }

    /// Removes the resource with this identifier, and everything that belongs to it.
    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        remove_or_refuse::<Self>(change, id)
    }
}

/// The facts about a call that the removal of a resource needs. A job of the writer contains no [`ServiceState`], because
/// dropping the last one would end the store on the writer's own thread.
#[derive(Clone)]
pub struct RemovalContext {
    pub caller: Arc<Caller>,
    /// The address that IP restrictions must still allow, if any.
    pub restricted_address: Option<IpAddr>,
    pub vault_key: Arc<VaultKey>,
}

impl ServiceState {
    /// Changes the database; the change is live when this ends, and an error leaves it as it was.
    pub async fn write<W, T, E>(&self, work: W) -> Result<T, E>
    where
        W: FnOnce(&Transaction<'_>) -> Result<T, E> + Clone + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.write_repeatable(move |change: &Transaction<'_>| work.clone()(change)).await
    }

    /// As [`ServiceState::write`], with work that may be called again.
    async fn write_repeatable<T, E>(
        &self,
        work: impl FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let job = self.run_and_publish(TypedJob::from_repeatable(work)).await?;
        TypedJob::<T, E>::downcast_result(job)
    }

    /// Runs a job, and waits until what it has changed is live.
    async fn run_and_publish(&self, job: Box<dyn Job>) -> StoreResult<Box<dyn Job>> {
        let job = self.store.run_job(job).await?;
        if job.is_made() {
            self.publisher.catch_up().await?;
        }
        Ok(job)
    }
}

impl Context {
    /// Reads from one state of the database.
    pub fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&View<'_>) -> Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send {
        self.finish_read(Box::new(move |view| Ok(Box::new(work(view)?))))
    }

    async fn finish_read<T: 'static>(&self, work: ErasedRead) -> Result<T> {
        downcast_value(self.shared.store.read_boxed(work).await?)
    }

    /// The facts that the removal of a resource needs.
    pub fn removal(&self) -> RemovalContext {
        RemovalContext {
            caller: self.caller.clone(),
            restricted_address: self.restricted_address(),
            vault_key: self.shared.vault_key.clone(),
        }
    }

    /// The address that IP restrictions must go on to allow; none where nobody can be locked out.
    pub fn restricted_address(&self) -> Option<IpAddr> {
        self.address.filter(|_| self.shared.gateway.enforces_ip_restrictions())
    }

    /// What rules may ask of the addresses of visitors.
    pub fn known_addresses(&self) -> AddressKinds {
        self.shared.gateway.known_addresses()
    }

    /// What the operator has at providers of OAuth.
    pub fn oauth_applications(&self) -> Arc<OauthApplications> {
        self.shared.gateway.oauth_applications().clone()
    }

    /// The policies that are in use.
    pub fn policy_cache(&self) -> Arc<PolicyCache> {
        self.shared.publisher.policies.clone()
    }

    /// Changes the database, with an event of the audit trail and those for whoever subscribes; a refusal
    /// leaves it as it was.
    pub fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Clone + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send {
        self.finish_write(Box::new(move |change| Ok(Box::new(work.clone()(change)?))))
    }

    async fn finish_write<T: 'static>(&self, work: ErasedWrite) -> Result<T> {
        downcast_value(self.write_erased(work).await?)
    }

    async fn write_erased(&self, mut work: ErasedWrite) -> Result<ErasedValue> {
        let Some(call) = self.call.clone() else { return self.shared.write_repeatable(work).await };
        let (trail, events) = (self.shared.audit.clone(), self.shared.events.clone());
        let principal =
            Principal { id: self.caller.owner_id.clone(), key_id: self.caller.key_id.clone() };
        let recorded = move |change: &Transaction<'_>| {
            events.change_and_record(change, Some(&principal), |change| {
                let made = work(change)?;
                trail.record_success(change, &call)?;
                Ok(made)
            })
        };
        self.shared.write_repeatable(recorded).await
    }

    /// Changes the database, and shows the resource that came of it.
    pub fn write_resource<R: StoredResource>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R> + Clone + Send + 'static,
    ) -> impl Future<Output = Result<R>> + Send {
        self.finish_resource(Box::new(move |change| work.clone()(change)))
    }

    async fn finish_resource<R: StoredResource>(&self, mut work: ResourceWrite<R>) -> Result<R> {
        let has_acme = self.shared.has_acme;
        let changed = self.finish_write(Box::new(move |change| {
            let mut resource = work(change)?;
            resource.complete(change, has_acme)?;
            Ok(Box::new(resource))
        }));
        Ok(self.with_addresses(changed.await?))
    }

    /// The resource with this identifier, with its addresses.
    pub async fn find_resource<R: StoredResource>(&self, id: String) -> Result<R> {
        let has_acme = self.shared.has_acme;
        let read = self.read(move |view| {
            let mut resource: R = find_or_refuse(view, &id)?;
            resource.complete(view, has_acme)?;
            Ok(resource)
        });
        Ok(self.with_addresses(read.await?))
    }

    /// One page of a list; `O` is the operation that lists.
    pub async fn resource_page<O: Operation, R: StoredResource>(
        &self,
        before: Option<String>,
        limit: Option<i64>,
    ) -> Result<Page<R>> {
        check_before(before.as_deref(), R::PREFIX)?;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(100);
        // One more than is shown tells whether there is a next page.
        let has_acme = self.shared.has_acme;
        let read = self.read(move |view| {
            let mut items = view.document_page::<R>(before.as_deref(), limit + 1)?;
            let more = items.len() > limit;
            items.truncate(limit);
            for item in &mut items {
                item.complete(view, has_acme)?;
            }
            Ok((items, more))
        });
        let (items, more) = read.await?;
        let items = items.into_iter().map(|item| self.with_addresses(item)).collect::<Vec<R>>();
        Ok(self.page_of(&O::INFO, items, |item| item.id(), more.then_some(limit)))
    }

    /// One page of what is online, newest first; `online` is oldest first.
    pub fn page_of_online<T>(
        &self,
        info: &Info,
        before: &Option<String>,
        limit: Option<i64>,
        online: Vec<T>,
        id: impl Fn(&T) -> &str,
    ) -> Page<T> {
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(100);
        let newest = online.into_iter().rev();
        let rest = newest.filter(|item| before.as_deref().is_none_or(|before| id(item) < before));
        let mut items = rest.take(limit + 1).collect::<Vec<_>>();
        let more = items.len() > limit;
        items.truncate(limit);
        self.page_of(info, items, id, more.then_some(limit))
    }

    /// One page of rows of all nodes, newest first.
    pub async fn page_of_rows<R: OwnedRow + Send + 'static>(
        &self,
        info: &Info,
        before: Option<String>,
        limit: Option<i64>,
    ) -> Result<Page<R>> {
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(100);
        let read =
            self.read(move |view| Ok(cluster::row_page::<R>(view, before.as_deref(), limit + 1)?));
        let mut items = read.await?;
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(self.page_of(info, items, |item| item.id(), more.then_some(limit)))
    }

    /// A page that holds `items`; `more` is the size of the next page, if there is one.
    pub fn page_of<T>(
        &self,
        info: &Info,
        items: Vec<T>,
        id: impl Fn(&T) -> &str,
        more: Option<usize>,
    ) -> Page<T> {
        let uri = self.shared.base.path_url(info.path);
        let next_page_uri = more
            .zip(items.last())
            .map(|(limit, last)| format!("{uri}?before_id={}&limit={limit}", id(last)));
        Page { field: info.list_field().to_owned(), items, uri, next_page_uri, is_whole: false }
    }

    /// The resource with its addresses.
    pub fn with_addresses<R: StoredResource>(&self, mut resource: R) -> R {
        resource.locate(&self.shared.base);
        resource.observe(&self.shared);
        resource
    }
}

fn downcast_value<T: 'static>(value: ErasedValue) -> Result<T> {
    let unexpected = |_| Refusal::new(code::UNEXPECTED, "unexpected failure");
    value.downcast().map(|value| *value).map_err(unexpected)
}

/// The resource with this identifier, as it is stored.
pub(super) fn find_or_refuse<D: Document>(view: &View<'_>, id: &str) -> Result<D> {
    view.find_document(id)?.ok_or_else(Refusal::not_found)
}

/// Removes the resource with this identifier and everything it holds.
pub(super) fn remove_or_refuse<D: Document>(change: &Transaction<'_>, id: &str) -> Result<()> {
    if change.remove_document::<D>(id)? { Ok(()) } else { Err(Refusal::not_found()) }
}

/// Refuses a `before_id` of another kind.
pub(super) fn check_before(before: Option<&str>, prefix: &str) -> Result<()> {
    match before {
        Some(id) if !id::has_prefix(id, prefix) => Err(wrong_prefix("before_id", id, prefix)),
        _ => Ok(()),
    }
}

/// The refusal of an identifier whose prefix should be another.
pub(super) fn wrong_prefix(field: &str, id: &str, prefix: &str) -> Refusal {
    let message = format!("{field}: {id:?} does not start with {prefix}_");
    Refusal::new(code::WRONG_PREFIX, message)
}
