//! The nodes that the agent's sessions lead to: no two to the same.

use std::sync::Arc;

use tokio::sync::watch;

use ginnel_base::logging::ignore;

use crate::service_proxies::ServicePlace;
use crate::slot::{PerSlot, SessionSlot};

/// Which session leads where, from its login until its end.
#[derive(Debug, Default)]
pub(crate) struct NodeClaims(watch::Sender<PerSlot<Option<NodeClaim>>>);

/// Where a session leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeClaim {
    /// None where the service has no nodes; nothing stands beside such a session.
    pub node: Option<Arc<str>>,
    pub place: ServicePlace,
}

/// A claim that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ClaimGuard {
    claims: Arc<NodeClaims>,
    slot: SessionSlot,
}

impl NodeClaims {
    /// Where the session in a slot leads.
    pub(crate) fn get(&self, slot: SessionSlot) -> Option<NodeClaim> {
        self.0.borrow().get(slot).clone()
    }

    /// Notes where a session leads; none if the other one leads there, or either of them nowhere known.
    pub(crate) fn claim_node(
        self: &Arc<Self>,
        slot: SessionSlot,
        claim: NodeClaim,
    ) -> Option<ClaimGuard> {
        let is_claimed = self.0.send_if_modified(|claims| {
            let is_free = match claims.get(slot.other()) {
                None => true,
                Some(other) => {
                    other.node.is_some() && claim.node.is_some() && other.node != claim.node
                }
            };
            if is_free {
                *claims.get_mut(slot) = Some(claim);
            }
            is_free
        });
        is_claimed.then(|| ClaimGuard { claims: self.clone(), slot })
    }

    /// Waits until the session in a slot leads elsewhere than before.
    pub(crate) async fn wait_for_change(&self, slot: SessionSlot, before: Option<&NodeClaim>) {
        let mut claims = self.0.subscribe();
        let changed = claims.wait_for(|claims| claims.get(slot).as_ref() != before).await;
        ignore(changed.map(drop), "the sender lives as long as this");
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        self.claims.0.send_modify(|claims| *claims.get_mut(self.slot) = None);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn leads_to(node: &str) -> NodeClaim {
        let node = Some(node).filter(|node| !node.is_empty()).map(Arc::from);
        NodeClaim { node, place: ServicePlace::Direct("127.0.0.1:1".parse().unwrap()) }
    }

    #[test]
    fn no_two_sessions_lead_to_one_node() {
        let claims = Arc::new(NodeClaims::default());
        let first = claims.claim_node(SessionSlot::First, leads_to("a")).unwrap();

        assert!(claims.claim_node(SessionSlot::Second, leads_to("a")).is_none());
        let second = claims.claim_node(SessionSlot::Second, leads_to("b")).unwrap();
        drop(first);
        assert!(claims.claim_node(SessionSlot::First, leads_to("b")).is_none());
        drop(second);
        assert!(claims.claim_node(SessionSlot::First, leads_to("b")).is_some());
    }

    #[test]
    fn nothing_stands_beside_a_session_with_a_service_that_has_no_nodes() {
        let claims = Arc::new(NodeClaims::default());

        let first = claims.claim_node(SessionSlot::First, leads_to("")).unwrap();
        assert!(claims.claim_node(SessionSlot::Second, leads_to("")).is_none());
        assert!(claims.claim_node(SessionSlot::Second, leads_to("b")).is_none());
        drop(first);
        let _second = claims.claim_node(SessionSlot::Second, leads_to("b")).unwrap();
        assert!(claims.claim_node(SessionSlot::First, leads_to("")).is_none());
    }

    #[tokio::test]
    async fn who_waits_learns_of_the_other_session_alone() {
        let claims = Arc::new(NodeClaims::default());
        let waiting = claims.clone();
        let waiting =
            tokio::spawn(async move { waiting.wait_for_change(SessionSlot::First, None).await });
        tokio::task::yield_now().await;

        let _second = claims.claim_node(SessionSlot::Second, leads_to("b")).unwrap();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let _first = claims.claim_node(SessionSlot::First, leads_to("a")).unwrap();
        waiting.await.unwrap();
    }
}
