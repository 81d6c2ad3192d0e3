//! Ends what agents have as soon as nothing allows it any more.
//!
//! Nobody who changes an account has to think of sessions: every commit that stores or removes a
//! credential, a bot user or a user, by whatever operation, has the agents that depend on it looked at
//! again before the change is answered. What is bound while that happens is looked at once more after
//! it was noted, so that neither of the two can miss the other.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use ginnel_api::id::{has_prefix, prefix};
use ginnel_base::logging::or_debug;
use ginnel_mux::Code;
use ginnel_mux::protocol::message::StopTunnel;
use ginnel_mux::protocol::rpc;
use ginnel_store::{Changes, StorageFault, Store, StoreError, StoreResult};

use crate::accounts::{self, AuthenticatedAgent};
use crate::agents::access::AccessList;
use crate::agents::online_agent::OnlineAgent;
use crate::agents::registry::Registry;
use crate::agents::reservation::Reservation;
use crate::agents::state::{AgentRefusal, AgentsState};
use crate::agents::tunnel::OnlineTunnel;

/// How long an agent may take to be told of its tunnels before its session is closed.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(200);
/// How long after a failure agents are looked at again, and for how long they are served meanwhile by a
/// service that sees changes.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
const MAX_DOUBT: Duration = Duration::from_secs(1);
/// How old news may be where changes are seen.
const MAX_NEWS_AGE: Duration = Duration::from_secs(2);

/// Looks at agents again from now on, whenever an account changes. Needs a tokio runtime.
pub fn follow_accounts(state: &AgentsState) {
    let reviewer = Reviewer::from_state(state);
    state.store.watch_changes(move |changes| {
        if let Some(accounts) = changes.filter_ids(is_account) {
            reviewer.review_changes(accounts);
        }
    });
}

/// Ends the tunnels of this node whose endpoints belong to agents of other nodes, and the sessions of agents
/// that have gone to one, from now on.
pub fn follow_lost_binds(state: &AgentsState) {
    let Some(cluster) = &state.cluster else { return };
    let left = Arc::downgrade(&state.registry);
    cluster.on_tunnel(move |row| {
        if let Some(registry) = left.upgrade() {
            registry.end_stale_sessions(row);
        }
    });
    let (registry, notifier) = (Arc::downgrade(&state.registry), Notifier::from_state(state));
    cluster.on_lost(move |bind_id| {
        let Some(registry) = registry.upgrade() else { return };
        if let Some(tunnel) = registry.drop_bind(bind_id) {
            let problem = format!("{} is already online at another node", tunnel.public_name());
            notifier.stop_tunnel(tunnel, &AgentRefusal(problem, 334));
        }
    });
}

/// Looks at an agent again whose session or tunnel has just been noted: what allowed it may be gone.
///
/// # Errors
/// When nobody knows: what has just been noted is not to stay then.
pub async fn review_agent(state: &AgentsState, agent: &AuthenticatedAgent) -> StoreResult<()> {
    let looked_up = agent.clone();
    let access = state.store.read(move |view| accounts::access_list(view, &looked_up)).await?;
    apply_access(&state.registry, &Notifier::from_state(state), agent, access);
    Ok(())
}

fn is_account(id: &str) -> bool {
    [prefix::CREDENTIAL, prefix::BOT_USER, prefix::USER].iter().any(|kind| has_prefix(id, kind))
}

/// Looks at agents whose accounts have changed.
pub(super) struct Reviewer {
    registry: Weak<Registry>,
    store: Weak<Store>,
    notifier: Notifier,
}

impl Reviewer {
    pub(super) fn from_state(state: &AgentsState) -> Arc<Self> {
        let (registry, store) = (Arc::downgrade(&state.registry), Arc::downgrade(&state.store));
        Arc::new(Self { registry, store, notifier: Notifier::from_state(state) })
    }

    pub(super) fn review_changes(self: &Arc<Self>, accounts: Changes) {
        let Some((registry, store)) = self.upgrade_both() else { return };
        let runtime = self.notifier.runtime.clone();
        let _entered = runtime.enter();
        // Where nobody knows what has changed, the node that revoked a credential releases its addresses.
        if let Changes::Of(accounts) = &accounts {
            release_revoked(&store, &self.notifier, accounts);
        }
        if let Err(error) = review_all(&registry, &store, &self.notifier, &accounts) {
            tracing::warn!(%error, "cannot look up what holds for agents now; trying again");
            runtime.spawn(self.clone().retry_review(accounts));
        }
    }

    /// Looks until it is known what holds for the agents of these accounts.
    async fn retry_review(self: Arc<Self>, accounts: Changes) {
        let (began, accounts) = (Instant::now(), Arc::new(accounts));
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            let (this, accounts) = (self.clone(), accounts.clone());
            let is_late = began.elapsed() >= MAX_DOUBT;
            let tried =
                ginnel_base::tasks::spawn_blocking(move || this.try_review(&accounts, is_late));
            if or_debug!(tried.await, "looking at agents broke").unwrap_or(true) {
                return;
            }
        }
    }

    /// True when it need not be tried again.
    fn try_review(&self, accounts: &Changes, is_late: bool) -> bool {
        let Some((registry, store)) = self.upgrade_both() else { return true };
        let Err(error) = review_all(&registry, &store, &self.notifier, accounts) else {
            return true;
        };
        tracing::debug!(%error, "cannot look up what holds for agents");
        if error.fault() == Some(StorageFault::Closed) {
            return true;
        }
        // Whoever sees no changes carries on with what was known last.
        let sees_changes = store.change_news().is_none_or(|news| news.age < MAX_NEWS_AGE);
        let is_over = is_late && sees_changes;
        if is_over {
            let agents = affected_agents(&registry, accounts);
            agents.iter().for_each(|it| disconnect_sessions(&registry, &self.notifier, it, &error));
        }
        is_over
    }

    fn upgrade_both(&self) -> Option<(Arc<Registry>, Arc<Store>)> {
        self.registry.upgrade().zip(self.store.upgrade())
    }
}

/// The agents that are online, or have an address, by one of these accounts.
fn affected_agents(registry: &Registry, accounts: &Changes) -> Vec<AuthenticatedAgent> {
    let mut agents = registry.known_agents();
    agents.retain(|it| accounts.includes(&it.credential_id) || accounts.includes(&it.owner_id));
    agents
}

/// Ends what agents of these accounts may not have any more.
fn review_all(
    registry: &Registry,
    store: &Store,
    notifier: &Notifier,
    accounts: &Changes,
) -> StoreResult<()> {
    let agents = affected_agents(registry, accounts);
    if agents.is_empty() {
        return Ok(());
    }
    // One read for all: with a server, each costs a round trip or more.
    let access =
        store.read_blocking::<_, StoreError>(|view| accounts::access_lists(view, &agents))?;
    for (agent, access) in agents.iter().zip(access) {
        apply_access(registry, notifier, agent, access);
    }
    Ok(())
}

/// Ends what an agent may not have any more.
fn apply_access(
    registry: &Registry,
    notifier: &Notifier,
    agent: &AuthenticatedAgent,
    access: Option<Vec<String>>,
) {
    match access {
        None => {
            for (online, tunnels) in registry.expel_agent(agent) {
                notifier.dismiss_session(online, tunnels);
            }
        }
        Some(entries) => {
            for tunnel in registry.narrow_access(agent, &AccessList(entries)) {
                let problem = format!(
                    "the access list of the authtoken does not allow {} any more",
                    tunnel.public_name()
                );
                notifier.stop_tunnel(tunnel, &AgentRefusal(problem, 600));
            }
        }
    }
}

/// Ends the sessions of an agent, which may come back.
fn disconnect_sessions(
    registry: &Registry,
    notifier: &Notifier,
    agent: &AuthenticatedAgent,
    error: &StoreError,
) {
    tracing::warn!(%error, "an agent is sent away: its access cannot be looked up");
    for online in registry.sessions().into_iter().filter(|it| it.agent == *agent) {
        notifier.disconnect_session(online);
    }
}

/// Gives up the addresses that are kept for the agents of credentials that were revoked.
fn release_revoked(store: &Arc<Store>, notifier: &Notifier, accounts: &[String]) {
    let kept = store.read_blocking::<_, StoreError>(|view| {
        Reservation::find_revoked(view, accounts.iter().map(String::as_str))
    });
    // They are also given up when they have waited for too long.
    let kept = kept.unwrap_or_default();
    if !kept.is_empty() {
        let store = store.clone();
        notifier.runtime.spawn(async move {
            or_debug!(Reservation::remove_all(&store, kept).await, "reservations stay");
        });
    }
}

/// Tells agents what became of their sessions and tunnels.
struct Notifier {
    runtime: Handle,
    code_prefix: String,
}

impl Notifier {
    fn from_state(state: &AgentsState) -> Self {
        let code_prefix = state.gateway.code_prefix().to_owned();
        Self { runtime: Handle::current(), code_prefix }
    }

    /// Ends a session, for good.
    fn dismiss_session(&self, online: Arc<OnlineAgent>, tunnels: Vec<Arc<OnlineTunnel>>) {
        let refused = AgentRefusal::revoked();
        let notices: Vec<_> =
            tunnels.iter().map(|tunnel| self.stop_notice(tunnel, &refused)).collect();
        self.runtime.spawn(async move {
            let telling = async {
                for notice in &notices {
                    rpc::send_notification(&online.session, notice).await?;
                }
                Ok::<_, rpc::RpcError>(())
            };
            // The end of the session says it to those who did not listen.
            let notified = tokio::time::timeout(NOTICE_TIMEOUT, telling).await;
            or_debug!(notified, session = %online.id, "an agent takes no notice");
            online.session.go_away(Code::SESSION_CLOSED, &refused.0).await;
        });
    }

    /// Ends a tunnel; its session goes on.
    fn stop_tunnel(&self, tunnel: Arc<OnlineTunnel>, reason: &AgentRefusal) {
        let notice = self.stop_notice(&tunnel, reason);
        self.runtime.spawn(async move {
            let telling = rpc::send_notification(&tunnel.session.session, &notice);
            // The tunnel is over whether or not its agent listens.
            let notified = tokio::time::timeout(NOTICE_TIMEOUT, telling).await;
            or_debug!(notified, tunnel = %tunnel.id, "an agent takes no notice");
        });
    }

    /// Ends a session whose agent may come back.
    fn disconnect_session(&self, online: Arc<OnlineAgent>) {
        self.runtime.spawn(async move {
            let text = "the service cannot check the credential of this session";
            online.session.go_away(Code::INTERNAL, text).await;
        });
    }

    fn stop_notice(
        &self,
        tunnel: &OnlineTunnel,
        AgentRefusal(message, number): &AgentRefusal,
    ) -> StopTunnel {
        StopTunnel {
            id: tunnel.bind_id.clone(),
            message: message.clone(),
            error_code: Some(format!("{}{number}", self.code_prefix)),
        }
    }
}
