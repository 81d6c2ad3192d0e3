//! What a node wants the database to say of its agents, and what of that is not written yet.
//!
//! Nobody who serves traffic waits for a goodbye: what changes is noted here and written later, many
//! together, until it is written. What is noted of one row is its last state, so that nothing is written in
//! the wrong order, however often it has to be tried.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, broadcast, watch};

use ginnel_base::logging::ignore;

use super::rows::{EndpointClaim, RowOwner, SessionDocument, TunnelDocument};

/// How many rows one change writes at most.
const MAX_BATCH_ROWS: usize = 500;
/// How many labels of lost tunnels wait to be sent to other nodes.
const MAX_LOST: usize = 1024;

/// What there is to write of a row or a bind.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RowChange {
    Session(Box<SessionDocument>),
    Tunnel(Box<TunnelDocument>),
    Remove(String),
    Hold {
        bind_id: String,
        claim: EndpointClaim,
    },
    /// `waits` where the address is kept for its agent, when no node holds it any more.
    LetGo {
        bind_id: String,
        waits: bool,
    },
}

/// What a change is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Row(String),
    Bind(String),
}

/// The rows of a node, and which of them are to be written.
pub(super) struct Announcements {
    state: Mutex<AnnouncementState>,
    /// Everything below this number is written.
    written: watch::Sender<u64>,
    /// The epoch of what is written.
    epoch: watch::Sender<u64>,
    /// Tunnels that are gone, and whose rows may still be there.
    ended: watch::Sender<BTreeSet<String>>,
    /// The labels of tunnels whose agents are lost.
    lost: broadcast::Sender<BTreeMap<String, String>>,
    noted: Notify,
}

#[derive(Default)]
struct AnnouncementState {
    owner: RowOwner,
    sessions: HashMap<String, SessionDocument>,
    tunnels: HashMap<String, TunnelDocument>,
    binds: HashMap<String, EndpointClaim>,
    /// Those of them that are being written for the first time: others may have their addresses.
    unconfirmed: HashSet<String>,
    /// Binds that are let go, whose addresses are kept for their agents.
    waiting: HashSet<String>,
    /// What is to be written, in the order in which it was noted.
    queue: BTreeMap<u64, Subject>,
    places: HashMap<Subject, u64>,
    next: u64,
}

/// Changes that are written together.
pub(super) struct AnnouncementBatch {
    pub owner: RowOwner,
    pub changes: Vec<RowChange>,
    subjects: Vec<(u64, Subject)>,
}

impl Announcements {
    pub(super) fn new(owner: RowOwner) -> Self {
        let epoch = watch::Sender::new(owner.epoch);
        let state = Mutex::new(AnnouncementState { owner, ..AnnouncementState::default() });
        let (written, ended) = (watch::Sender::new(0), watch::Sender::default());
        let lost = broadcast::Sender::new(MAX_LOST);
        Self { state, written, epoch, ended, lost, noted: Notify::new() }
    }

    /// Whose rows they are now.
    pub(super) fn owner(&self) -> RowOwner {
        self.lock_state().owner.clone()
    }

    /// Notes a session.
    pub(super) fn add_session(&self, session: SessionDocument) {
        let mut state = self.lock_state();
        state.enqueue_subject(Subject::Row(session.id.clone()));
        state.sessions.insert(session.id.clone(), session);
        self.noted.notify_one();
    }

    /// Notes a tunnel.
    pub(super) fn add_tunnel(&self, tunnel: TunnelDocument) {
        let mut state = self.lock_state();
        state.enqueue_subject(Subject::Row(tunnel.id.clone()));
        state.tunnels.insert(tunnel.id.clone(), tunnel);
        self.noted.notify_one();
    }

    /// Notes that a session or a tunnel is gone.
    pub(super) fn remove_row(&self, id: &str) {
        let mut state = self.lock_state();
        let is_tunnel = state.tunnels.remove(id).is_some();
        if is_tunnel {
            self.ended.send_modify(|ended| ended.extend([id.to_owned()]));
        }
        if is_tunnel || state.sessions.remove(id).is_some() {
            state.enqueue_subject(Subject::Row(id.to_owned()));
            self.noted.notify_one();
        }
    }

    /// Notes that a tunnel is gone because its agent was lost.
    pub(super) fn remove_lost(&self, id: &str) {
        let tunnel = self.lock_state().tunnels.get(id).and_then(|tunnel| tunnel.labels.clone());
        if let Some(labels) = tunnel {
            ignore(self.lost.send(labels), "there is no other node");
        }
        self.remove_row(id);
    }

    /// Remembers that a bind is to be held, which the caller writes, and confirms.
    pub(super) fn hold_bind(&self, bind_id: &str, claim: EndpointClaim) {
        let mut state = self.lock_state();
        state.waiting.remove(bind_id);
        if state.binds.insert(bind_id.to_owned(), claim).is_none() {
            state.unconfirmed.insert(bind_id.to_owned());
        }
    }

    /// Notes that a bind is held, as the database says.
    pub(super) fn confirm_bind(&self, bind_id: &str) {
        self.lock_state().unconfirmed.remove(bind_id);
    }

    /// Forgets a bind that others have taken, or that was never held.
    pub(super) fn forget_bind(&self, bind_id: &str) {
        let mut state = self.lock_state();
        state.binds.remove(bind_id);
        state.unconfirmed.remove(bind_id);
    }

    /// Notes that a bind is held no more; its address `waits` for its agent, or is released.
    pub(super) fn release_bind(&self, bind_id: &str, waits: bool) {
        let mut state = self.lock_state();
        state.unconfirmed.remove(bind_id);
        if state.binds.remove(bind_id).is_some() {
            if waits {
                state.waiting.insert(bind_id.to_owned());
            }
            state.enqueue_subject(Subject::Bind(bind_id.to_owned()));
            self.noted.notify_one();
        }
    }

    /// What is held, as the database has said.
    pub(super) fn held_binds(&self) -> Vec<(String, EndpointClaim)> {
        let state = self.lock_state();
        let confirmed = state.binds.iter().filter(|(id, _)| !state.unconfirmed.contains(*id));
        confirmed.map(|(bind_id, claim)| (bind_id.clone(), claim.clone())).collect()
    }

    /// Whether a session or a tunnel is there.
    pub(super) fn has_row(&self, id: &str) -> bool {
        let state = self.lock_state();
        state.sessions.contains_key(id) || state.tunnels.contains_key(id)
    }

    /// Whether a bind is held.
    pub(super) fn has_bind(&self, bind_id: &str) -> bool {
        self.lock_state().binds.contains_key(bind_id)
    }

    /// The tunnels that are gone, and whose rows may still be there.
    pub(super) fn subscribe_ended(&self) -> watch::Receiver<BTreeSet<String>> {
        self.ended.subscribe()
    }

    /// The labels of tunnels whose agents are lost from now on.
    pub(super) fn subscribe_lost(&self) -> broadcast::Receiver<BTreeMap<String, String>> {
        self.lost.subscribe()
    }

    /// How many sessions and tunnels there are.
    pub(super) fn row_counts(&self) -> (u64, u64) {
        let state = self.lock_state();
        (state.sessions.len() as u64, state.tunnels.len() as u64)
    }

    /// Has everything written again, for a new epoch.
    pub(super) fn renew_epoch(&self, owner: RowOwner) {
        let mut guard = self.lock_state();
        let state = &mut *guard;
        self.epoch.send_replace(owner.epoch);
        state.owner = owner;
        // Binds first: whose name is another's now is not announced.
        let binds = state.binds.keys().cloned().map(Subject::Bind);
        let rows = state.sessions.keys().chain(state.tunnels.keys()).cloned().map(Subject::Row);
        let subjects = binds.chain(rows).collect::<Vec<_>>();
        subjects.into_iter().for_each(|subject| state.enqueue_subject(subject));
        self.noted.notify_one();
    }

    /// Waits until what is written has another epoch than this.
    pub(super) async fn wait_until_renewed(&self, epoch: u64) {
        if self.epoch.subscribe().wait_for(|now| *now != epoch).await.is_err() {
            // The sender is part of this.
            tracing::debug!("there is no other epoch");
        }
    }

    /// Waits until everything is written that was noted before.
    pub(super) async fn wait_until_written(&self) {
        let last = self.lock_state().next;
        let mut written = self.written.subscribe();
        if written.wait_for(|written| *written >= last).await.is_err() {
            // The sender is part of this.
            tracing::debug!("nothing more is announced");
        }
    }

    /// Waits for something to write, and takes it.
    pub(super) async fn next(&self) -> AnnouncementBatch {
        loop {
            let noted = self.noted.notified();
            let batch = self.lock_state().take_batch();
            if !batch.subjects.is_empty() {
                return batch;
            }
            noted.await;
        }
    }

    /// Notes that a batch is written.
    pub(super) fn mark_written(&self, batch: &AnnouncementBatch) {
        let mut state = self.lock_state();
        for change in &batch.changes {
            match change {
                // An agent came back for it while it was written.
                RowChange::LetGo { bind_id, .. } if state.binds.contains_key(bind_id) => {
                    state.enqueue_subject(Subject::Bind(bind_id.clone()));
                    self.noted.notify_one();
                }
                // What was noted again meanwhile is still to be written.
                RowChange::LetGo { bind_id, .. }
                    if !state.places.contains_key(&Subject::Bind(bind_id.clone())) =>
                {
                    state.waiting.remove(bind_id);
                }
                RowChange::Remove(id) => {
                    self.ended.send_if_modified(|ended| {
                        ended.remove(id);
                        // Other nodes read that in the database.
                        false
                    });
                }
                _ => {}
            }
        }
        let first = state.queue.keys().next().copied();
        tracing::trace!(rows = batch.changes.len(), "rows are written");
        self.written.send_replace(first.unwrap_or(state.next));
    }

    /// Has a batch written later that could not be written.
    pub(super) fn retry_batch(&self, batch: AnnouncementBatch) {
        let mut state = self.lock_state();
        for (place, subject) in batch.subjects {
            // What was noted again meanwhile is written then.
            if !state.places.contains_key(&subject) {
                state.places.insert(subject.clone(), place);
                state.queue.insert(place, subject);
            }
        }
        self.noted.notify_one();
    }

    fn lock_state(&self) -> MutexGuard<'_, AnnouncementState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnnouncementState {
    fn enqueue_subject(&mut self, subject: Subject) {
        if let Some(place) = self.places.remove(&subject) {
            self.queue.remove(&place);
        }
        self.places.insert(subject.clone(), self.next);
        self.queue.insert(self.next, subject);
        self.next += 1;
    }

    fn take_batch(&mut self) -> AnnouncementBatch {
        let mut subjects = Vec::new();
        while subjects.len() < MAX_BATCH_ROWS
            && let Some((place, subject)) = self.queue.pop_first()
        {
            self.places.remove(&subject);
            subjects.push((place, subject));
        }
        let changes = subjects.iter().map(|(_, subject)| self.change_of(subject)).collect();
        AnnouncementBatch { owner: self.owner.clone(), changes, subjects }
    }

    /// What is to be written of something as it is now.
    fn change_of(&self, subject: &Subject) -> RowChange {
        let owner = || self.owner.clone();
        match subject {
            Subject::Row(id) => {
                if let Some(session) = self.sessions.get(id) {
                    let session = SessionDocument { owner: owner(), ..session.clone() };
                    RowChange::Session(Box::new(session))
                } else if let Some(tunnel) = self.tunnels.get(id) {
                    let tunnel = TunnelDocument { owner: owner(), ..tunnel.clone() };
                    RowChange::Tunnel(Box::new(tunnel))
                } else {
                    RowChange::Remove(id.clone())
                }
            }
            Subject::Bind(id) => match self.binds.get(id) {
                Some(claim) => RowChange::Hold { bind_id: id.clone(), claim: claim.clone() },
                None => {
                    let waits = self.waiting.contains(id);
                    RowChange::LetGo { bind_id: id.clone(), waits }
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::cluster::rows::EndpointKey;

    fn is_ready(future: Pin<&mut impl Future<Output = ()>>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn owner(epoch: u64) -> RowOwner {
        RowOwner { node_id: "node_1".to_owned(), epoch }
    }

    fn tunnel(id: &str) -> TunnelDocument {
        TunnelDocument { id: id.to_owned(), owner: owner(1), ..TunnelDocument::default() }
    }

    #[tokio::test]
    async fn what_could_not_be_written_is_written_as_it_is_later() {
        let rows = Announcements::new(owner(1));
        rows.add_tunnel(tunnel("tn_1"));
        rows.add_tunnel(tunnel("tn_2"));
        let batch = rows.next().await;
        assert_eq!(batch.changes.len(), 2);

        rows.remove_row("tn_1");
        rows.retry_batch(batch);

        let batch = rows.next().await;
        let changes =
            [RowChange::Tunnel(Box::new(tunnel("tn_2"))), RowChange::Remove("tn_1".to_owned())];
        assert_eq!(batch.changes, changes);
    }

    #[tokio::test]
    async fn who_waits_is_told_when_all_is_written_that_was_noted_before() {
        let rows = Announcements::new(owner(1));
        rows.wait_until_written().await;
        rows.add_tunnel(tunnel("tn_1"));
        let mut settled = Box::pin(rows.wait_until_written());
        let first = rows.next().await;
        rows.add_tunnel(tunnel("tn_2"));

        rows.retry_batch(first);
        assert!(!is_ready(settled.as_mut()));
        let both = rows.next().await;
        rows.mark_written(&both);

        assert!(is_ready(settled.as_mut()));
    }

    #[tokio::test]
    async fn a_new_epoch_has_all_written_again_binds_first() {
        let rows = Announcements::new(owner(1));
        rows.add_tunnel(tunnel("tn_1"));
        rows.mark_written(&rows.next().await);
        rows.hold_bind("bind", EndpointKey::port(1).into());

        rows.renew_epoch(owner(2));

        let batch = rows.next().await;
        let again = TunnelDocument { owner: owner(2), ..tunnel("tn_1") };
        let bind_id = "bind".to_owned();
        let changes = [
            RowChange::Hold { bind_id, claim: EndpointKey::port(1).into() },
            RowChange::Tunnel(Box::new(again)),
        ];
        assert_eq!((batch.owner.epoch, batch.changes.as_slice()), (2, changes.as_slice()));
    }

    #[test]
    fn a_bind_that_is_still_to_be_written_is_not_said_to_be_held() {
        let rows = Announcements::new(owner(1));
        let held = || rows.held_binds().into_iter().map(|(id, _)| id).collect::<Vec<_>>();

        rows.hold_bind("bind", EndpointKey::port(1).into());
        assert!(held().is_empty() && rows.has_bind("bind"));
        rows.confirm_bind("bind");
        rows.hold_bind("bind", EndpointKey::port(1).into());
        assert_eq!(held(), ["bind"], "its agent has come back");
        rows.forget_bind("bind");
        rows.hold_bind("bind", EndpointKey::port(1).into());
        assert!(held().is_empty());
    }

    #[tokio::test]
    async fn a_bind_that_is_held_again_is_not_let_go() {
        let rows = Announcements::new(owner(1));
        rows.hold_bind("bind", EndpointKey::port(1).into());
        rows.release_bind("bind", true);
        let failed = rows.next().await;
        let let_go = RowChange::LetGo { bind_id: "bind".to_owned(), waits: true };
        assert_eq!(failed.changes, [let_go]);

        rows.hold_bind("bind", EndpointKey::port(2).into());
        rows.retry_batch(failed);

        let (bind_id, claim) = ("bind".to_owned(), EndpointKey::port(2).into());
        assert_eq!(rows.next().await.changes, [RowChange::Hold { bind_id, claim }]);
        rows.release_bind("bind", false);
        let let_go = RowChange::LetGo { bind_id: "bind".to_owned(), waits: false };
        assert_eq!(rows.next().await.changes, [let_go], "what was before counts no more");
    }
}
