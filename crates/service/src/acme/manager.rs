//! Obtains and renews certificates in the background, for as long as the service runs.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use ginnel_api::id::prefix;
use ginnel_api::remote::tls_certificates::TlsCertificate;
use ginnel_api::{Secret, Timestamp};
use ginnel_gateway::Gateway;
use ginnel_net::{Shutdown, ShutdownPhase};
use ginnel_store::{Store, StoreResult, Transaction};

use crate::Error;
use crate::acme::account::{ACCOUNT_GONE, AcmeAccount};
use crate::acme::failure::{self, OrderError};
use crate::acme::limits::{self, MAX_ORDERS_AT_ONCE, OrderBudget};
use crate::acme::order::{IssuedChain, NameOrder, Sharing, new_key};
use crate::acme::plan::{self, AcmePlan};
use crate::acme::progress::CertificateProgress;
use crate::acme::shared::SharedOrders;
use crate::acme::transport::AcmeTransport;
use crate::acme::{AcmeChallenge, AcmeOptions, names};
use crate::certificates::{self, ManagedFailure, ManagedName, PendingOrder, StoredChallenge};
use crate::cluster::{Cluster, lease};
use crate::events::EventRecorder;

/// How long changes are collected before they are looked at.
const SETTLE: Duration = Duration::from_millis(200);
/// The longest time between two looks at the names.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How long one order may take.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);

/// What certificates are obtained for.
pub(crate) struct ManagedService {
    pub store: Arc<Store>,
    pub gateway: Gateway,
    /// The host name by which the service itself is known.
    pub own_name: Option<String>,
    /// The cluster of which the service is a node.
    pub cluster: Option<Arc<Cluster>>,
    /// Learns which names have no certificate.
    pub progress: Arc<CertificateProgress>,
    /// Tells others of certificates.
    pub events: Arc<EventRecorder>,
}

/// Obtains and renews certificates until it is dropped.
pub(crate) struct AcmeManager {
    shutdown: Shutdown,
}

struct ManagerState {
    service: ManagedService,
    account: AcmeAccount,
    challenges: Vec<AcmeChallenge>,
    retry_after: Duration,
    wake: Notify,
    /// The names with an order under way.
    running: Mutex<HashSet<String>>,
    slots: Arc<Semaphore>,
    budget: Mutex<OrderBudget>,
    shared: SharedOrders,
}

impl AcmeManager {
    /// Finds what is wrong with files that the options name.
    ///
    /// # Errors
    /// When the certificates to trust cannot be read.
    pub fn check_options(options: &AcmeOptions) -> Result<(), Error> {
        AcmeTransport::new(options).map(drop).map_err(Error::Acme)
    }

    /// Checks the options and begins, on the current tokio runtime.
    ///
    /// # Errors
    /// When no challenge can be taken, or the certificates to trust cannot be read.
    pub fn start(options: &AcmeOptions, service: ManagedService) -> Result<Option<Self>, Error> {
        if options.directory.is_none() {
            return Ok(None);
        }
        let transport = AcmeTransport::new(options).map_err(Error::Acme)?;
        let state = Arc::new(ManagerState {
            account: AcmeAccount::new(options, transport, service.store.clone()),
            challenges: options.challenges_with(
                service.gateway.http_address().is_some(),
                service.gateway.https_address().is_some(),
            )?,
            retry_after: options.retry_after,
            wake: Notify::new(),
            running: Mutex::default(),
            slots: Arc::new(Semaphore::new(MAX_ORDERS_AT_ONCE)),
            budget: Mutex::default(),
            shared: SharedOrders::from_cluster(service.cluster.clone()),
            service,
        });
        let follower = Arc::downgrade(&state);
        state.service.store.watch_changes(move |changes| {
            if let Some(state) = follower.upgrade()
                && changes.filter_ids(plan::affects_plan).is_some()
            {
                state.wake.notify_one();
            }
        });
        let shutdown = Shutdown::default();
        ginnel_base::tasks::spawn(state.run_until_shutdown(shutdown.clone()));
        Ok(Some(Self { shutdown }))
    }
}

impl Drop for AcmeManager {
    fn drop(&mut self) {
        self.shutdown.begin_phase(ShutdownPhase::Graceful);
    }
}

impl ManagerState {
    /// The time in seconds since the Unix epoch, by the clock of the store: nodes that share a database renew by one
    /// clock. A pause after a leap does not stop renewals, which delete nothing.
    fn unix_now(&self) -> u64 {
        let now = self.service.store.wall_time();
        now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }

    async fn run_until_shutdown(self: Arc<Self>, shutdown: Shutdown) {
        let mut signal = shutdown.signal();
        let mut changes = self.shared.subscribe();
        loop {
            let pause = match self.start_due(&shutdown).await {
                Ok(pause) => pause,
                Err(err) => {
                    tracing::warn!(%err, "cannot look for certificates to obtain");
                    MAX_PAUSE
                }
            };
            let waiting = async {
                tokio::select! {
                    () = sleep(pause) => return,
                    () = self.wake.notified() => {}
                    () = self.service.gateway.wait_for_names() => {}
                    () = changes.next() => {}
                }
                sleep(SETTLE).await;
            };
            if signal.run_until(ShutdownPhase::Graceful, waiting).await.is_none() {
                return;
            }
        }
    }

    /// Begins what is due; gives the time until there is something to do again.
    async fn start_due(self: &Arc<Self>, shutdown: &Shutdown) -> StoreResult<Duration> {
        let now = self.unix_now();
        let (all, plan) = self.plan_orders(now).await?;
        self.service.progress.record_names(&all);
        self.remove_expired(plan.expired).await?;
        for managed in plan.due {
            let is_elsewhere = self.shared.leases.is_elsewhere(managed.node.as_ref());
            if is_elsewhere || self.lock_running().contains(&managed.name) {
                continue;
            }
            // Whoever ends an order looks again.
            let Ok(slot) = self.slots.clone().try_acquire_owned() else { break };
            if managed.first_issued_at.is_none()
                && let Err(until) = limits::check_domain(&all, &managed.name, now)
            {
                self.postpone_order(managed, until).await?;
                continue;
            }
            let Some(managed) = self.claim_order(managed, now).await? else { continue };
            if let Err(until) = self.take_budget(now) {
                tracing::warn!("certificates have to wait: there were many orders of late");
                self.update_managed(&managed.name, |managed, _| managed.node = None).await?;
                return Ok(Duration::from_secs(until - now).max(SETTLE));
            }
            self.lock_running().insert(managed.name.clone());
            self.spawn_order(managed, slot, shutdown);
        }
        let next =
            plan.next.map_or(MAX_PAUSE, |next| Duration::from_secs(next.saturating_sub(now)));
        Ok(next.clamp(SETTLE, MAX_PAUSE))
    }

    async fn plan_orders(&self, now: u64) -> StoreResult<(Vec<ManagedName>, AcmePlan)> {
        let ManagedService { store, gateway, own_name, .. } = &self.service;
        let (gateway, own_name) = (gateway.clone(), own_name.clone());
        let other_nodes = self.shared.https_names();
        let read = store.read(move |view| {
            let names = names::needed_names(view, &gateway, other_nodes, own_name.as_deref())?;
            let all = view.all_documents::<ManagedName>()?;
            let plan = AcmePlan::for_names(names, &all, |id| view.exists(id), now)?;
            Ok((all, plan))
        });
        read.await
    }

    /// Makes the order for a name this node's; none when another has it, or has done it.
    async fn claim_order(
        &self,
        managed: ManagedName,
        now: u64,
    ) -> StoreResult<Option<ManagedName>> {
        let Some(own) = self.shared.leases.own_holder() else { return Ok(Some(managed)) };
        let claim = move |change: &Transaction<'_>| {
            let mut managed = ManagedName::find(change, &managed.name)?.unwrap_or(managed);
            let is_due = plan::due_at(&managed, |id| change.exists(id))? <= now;
            if !is_due || lease::is_taken(change, managed.node.as_ref(), Some(&own))? {
                return Ok(None);
            }
            managed.node = Some(own);
            managed.put(change)?;
            Ok(Some(managed))
        };
        self.service.store.write(claim).await
    }

    fn lock_running(&self) -> MutexGuard<'_, HashSet<String>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_budget(&self, now: u64) -> Result<(), u64> {
        self.budget
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .try_take(now, self.shared.node_count())
    }

    fn spawn_order(
        self: &Arc<Self>,
        managed: ManagedName,
        slot: OwnedSemaphorePermit,
        shutdown: &Shutdown,
    ) {
        let (state, mut signal) = (self.clone(), shutdown.signal());
        ginnel_base::tasks::spawn(async move {
            let name = managed.name.clone();
            let attempt = signal.run_until(ShutdownPhase::Graceful, state.attempt_order(managed));
            if let Some(Err(err)) = attempt.await {
                tracing::warn!(name, %err, "what became of a certificate cannot be stored");
            }
            state.lock_running().remove(&name);
            drop(slot);
            state.wake.notify_one();
        });
    }

    /// Tries to obtain a certificate, and stores what became of it.
    async fn attempt_order(&self, managed: ManagedName) -> StoreResult<()> {
        let name = managed.name.clone();
        tracing::debug!(name, "a certificate is ordered");
        let obtained = timeout(ORDER_TIMEOUT, self.obtain_certificate(managed)).await;
        match obtained.unwrap_or(Err(OrderError::Late)) {
            Ok(issued) => self.store_certificate(&name, issued).await,
            Err(error) => {
                if error.code() == ACCOUNT_GONE {
                    self.account.forget().await?;
                }
                self.record_failure(&name, error).await
            }
        }
    }

    async fn obtain_certificate(&self, managed: ManagedName) -> Result<IssuedChain, OrderError> {
        let account = self.account.get().await?;
        // Where one way is blocked, the other may be open.
        let challenge = self.challenges[managed.failures as usize % self.challenges.len()];
        let authority = self.service.gateway.authority();
        let name = managed.name.as_str();
        let share = &|challenge| -> Sharing<'_> { Box::pin(self.share_challenge(name, challenge)) };
        let order = NameOrder { account: &account, authority, name, challenge, share };
        if let Some(pending) = managed.pending.clone()
            && let Some(issued) = order.resume_pending(pending).await?
        {
            return Ok(issued);
        }
        let mut ready = order.place_order().await?;
        let key = new_key()?;
        let pending =
            PendingOrder { url: ready.url().to_owned(), key: Secret(key.serialize_pem()) };
        let begun = move |managed: &mut ManagedName, _: &Transaction<'_>| {
            managed.pending = Some(pending);
            managed.challenge = None;
        };
        self.update_managed(name, begun).await?;
        order.finalize(&mut ready, &key).await
    }

    /// Has the other nodes show a challenge too, where there are some.
    async fn share_challenge(&self, name: &str, challenge: StoredChallenge) -> StoreResult<()> {
        if self.shared.leases.own_holder().is_none() {
            return Ok(());
        }
        self.update_managed(name, move |managed, _| managed.challenge = Some(challenge)).await?;
        self.shared.wait_for_nodes().await;
        Ok(())
    }

    async fn store_certificate(&self, name: &str, issued: IssuedChain) -> StoreResult<()> {
        let now = self.unix_now();
        let (begins, ends) =
            (&issued.leaf.certificate.not_before, &issued.leaf.certificate.not_after);
        let (begins, ends) = (begins.unix_seconds().unwrap_or(0), ends.unix_seconds().unwrap_or(0));
        let renews_at = plan::renewal_time(begins, ends);
        let renews = Timestamp::at_unix(renews_at).0;
        let kept = move |managed: &mut ManagedName, change: &Transaction<'_>| {
            let known = managed.certificate_id.take();
            let known =
                known.map(|id| change.find_document::<TlsCertificate>(&id)).transpose()?.flatten();
            let IssuedChain { pem, key, leaf } = issued;
            let mut shown = certificates::describe_certificate(pem, leaf);
            (shown.id, shown.created_at) = match &known {
                Some(known) => (known.id.clone(), known.created_at.clone()),
                None => (change.new_id(prefix::TLS_CERTIFICATE)?, Some(change.now())),
            };
            let known = known.unwrap_or_default();
            shown.description = Some(known.description.unwrap_or_default());
            shown.metadata = Some(known.metadata.unwrap_or_default());
            shown.issued_at = Some(Timestamp::at_unix(now));
            certificates::store_certificate(change, &shown, key)?;
            let first_issued_at = managed.first_issued_at.or(Some(now));
            *managed = ManagedName {
                id: std::mem::take(&mut managed.id),
                name: std::mem::take(&mut managed.name),
                certificate_id: Some(shown.id),
                first_issued_at,
                renews_at: Some(renews_at),
                expires_at: Some(ends),
                ..ManagedName::default()
            };
            Ok(())
        };
        self.try_update_managed(name, kept).await?;
        tracing::info!(name, renews, "a certificate was obtained");
        Ok(())
    }

    async fn record_failure(&self, name: &str, error: OrderError) -> StoreResult<()> {
        let (base, now, kept) = (self.retry_after, self.unix_now(), error.to_managed_failure());
        let (code, message) = (kept.code.clone(), kept.message.clone());
        let noted = move |managed: &mut ManagedName, _: &Transaction<'_>| {
            managed.failures = managed.failures.saturating_add(1);
            managed.started_at.get_or_insert(now);
            let pause = failure::retry_after(base, managed.failures, &kept.code);
            managed.retries_at = Some(now + pause.as_secs().max(1));
            managed.failure = Some(kept);
            (managed.node, managed.challenge) = (None, None);
        };
        let managed = self.update_managed(name, noted).await?;
        let retries = managed.retries_at.map(|at| Timestamp::at_unix(at).0).unwrap_or_default();
        tracing::warn!(name, code, err = message, retries, "a certificate could not be obtained");
        Ok(())
    }

    /// Notes that a name has to wait for the limit of its domain.
    async fn postpone_order(&self, managed: ManagedName, until: u64) -> StoreResult<()> {
        let message =
            "the domain has had many new names this week; a wildcard certificate serves all";
        tracing::warn!(name = managed.name, err = message, "a certificate has to wait");
        let failure = ManagedFailure { code: "rateLimited".into(), message: message.into() };
        let now = self.unix_now();
        let postponed = move |managed: &mut ManagedName, _: &Transaction<'_>| {
            managed.started_at.get_or_insert(now);
            managed.retries_at = Some(until);
            managed.failure = Some(failure);
        };
        self.update_managed(&managed.name, postponed).await.map(drop)
    }

    async fn remove_expired(&self, expired: Vec<ManagedName>) -> StoreResult<()> {
        let running = self.lock_running().clone();
        let mut expired = expired;
        expired.retain(|managed| !running.contains(&managed.name));
        // After a leap of the clock, nothing is removed because it is over.
        if expired.is_empty() || self.service.store.age_time().await?.is_none() {
            return Ok(());
        }
        let (own, events) = (self.shared.leases.own_holder(), self.service.events.clone());
        let remove = move |change: &Transaction<'_>| -> StoreResult<()> {
            for managed in &expired {
                let known = change.find_document::<ManagedName>(&managed.id)?.unwrap_or_default();
                if lease::is_taken(change, known.node.as_ref(), own.as_ref())? {
                    continue;
                }
                change.remove_document::<ManagedName>(&managed.id)?;
                if let Some(certificate) = &managed.certificate_id {
                    certificates::remove_certificate(change, certificate)?;
                }
            }
            Ok(())
        };
        let remove = move |change: &Transaction<'_>| events.change_and_record(change, None, remove);
        self.service.store.write(remove).await
    }

    async fn update_managed(
        &self,
        name: &str,
        change: impl FnOnce(&mut ManagedName, &Transaction<'_>) + Clone + Send + 'static,
    ) -> StoreResult<ManagedName> {
        let change = move |managed: &mut ManagedName, transaction: &Transaction<'_>| {
            change(managed, transaction);
            Ok(())
        };
        self.try_update_managed(name, change).await
    }

    /// Changes what is known of a name.
    async fn try_update_managed(
        &self,
        name: &str,
        change: impl FnOnce(&mut ManagedName, &Transaction<'_>) -> StoreResult<()>
        + Clone
        + Send
        + 'static,
    ) -> StoreResult<ManagedName> {
        let (name, events) = (name.to_owned(), self.service.events.clone());
        let write = move |transaction: &Transaction<'_>| {
            let known = ManagedName::find(transaction, &name)?;
            let mut managed = known.unwrap_or_else(|| ManagedName { name, ..Default::default() });
            change(&mut managed, transaction)?;
            managed.put(transaction)?;
            Ok(managed)
        };
        let write =
            move |transaction: &Transaction<'_>| events.change_and_record(transaction, None, write);
        self.service.store.write(write).await
    }
}
