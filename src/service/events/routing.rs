//! Which events go where.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::delivery::DeliveryTarget;
use super::lease;
use super::secret::DestinationSecret;
use super::types;
use crate::api::remote::event_destinations::EventDestination;
use crate::service::cluster::RowOwner;
use crate::service::store::{OutboxRow, StoreError, View};

/// The role of a destination for the subscriptions that name it.
pub(in crate::service) const DESTINATION: &str = "event_destination";
/// The role of a type of events for the subscriptions that have it.
pub(in crate::service) const EVENT_TYPE: &str = "event_type";

/// The destinations that there are, and where traffic is told.
pub(super) struct EventRouting {
    /// All destinations, and how they are reached.
    pub targets: BTreeMap<String, DeliveryTarget>,
    /// The destinations that want a type of events of traffic.
    pub traffic: HashMap<&'static str, Vec<String>>,
}

impl EventRouting {
    /// What the database says.
    pub fn read(view: &View<'_>) -> Result<Self, StoreError> {
        let mut targets = BTreeMap::new();
        for destination in view.all::<EventDestination>()? {
            let secret = DestinationSecret::find(view, &destination.id)?;
            if let Some(target) = DeliveryTarget::of(&destination, secret) {
                targets.insert(destination.id, target);
            }
        }
        let mut traffic = HashMap::new();
        for event_type in types::OF_TRAFFIC {
            let receivers = receivers(view, event_type)?.into_keys().collect::<Vec<_>>();
            if !receivers.is_empty() {
                traffic.insert(event_type, receivers);
            }
        }
        Ok(Self { targets, traffic })
    }
}

/// The destinations of a type of events, each with the subscriptions because of which it is one.
pub(super) fn receivers(
    view: &View<'_>,
    event_type: &str,
) -> Result<BTreeMap<String, Vec<String>>, StoreError> {
    let mut receivers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for subscription in view.referrers(event_type, EVENT_TYPE)? {
        for destination in view.references(&subscription, DESTINATION)? {
            receivers.entry(destination).or_default().push(subscription.clone());
        }
    }
    Ok(receivers)
}

/// What waits for a destination, with what decides on it at this moment.
pub(super) struct WaitingEvents {
    pub target: DeliveryTarget,
    pub deliveries: Vec<OutboxRow>,
    /// The types that subscriptions have which name the destination.
    types: HashMap<String, HashSet<String>>,
}

impl WaitingEvents {
    /// The oldest events; none where the destination is gone, or another node delivers.
    pub fn read(
        view: &View<'_>,
        destination_id: &str,
        own: Option<&RowOwner>,
        limit: usize,
    ) -> Result<Option<Self>, StoreError> {
        if !lease::is_held(view, own)? {
            return Ok(None);
        }
        let destination = view.find::<EventDestination>(destination_id)?;
        let secret = DestinationSecret::find(view, destination_id)?;
        let target = destination.and_then(|it| DeliveryTarget::of(&it, secret));
        let Some(target) = target else { return Ok(None) };
        let deliveries = view.deliveries(destination_id, limit)?;
        let mut types = HashMap::new();
        if !deliveries.is_empty() {
            for subscription in view.referrers(destination_id, DESTINATION)? {
                let of_one = view.references(&subscription, EVENT_TYPE)?.into_iter().collect();
                types.insert(subscription, of_one);
            }
        }
        Ok(Some(Self { target, deliveries, types }))
    }

    /// Whether one of the subscriptions still wants an event that was written because of them.
    pub fn is_wanted(&self, delivery: &OutboxRow, event_type: &str) -> bool {
        let mut subscriptions = delivery.subscriptions.iter();
        subscriptions.any(|id| self.types.get(id).is_some_and(|types| types.contains(event_type)))
    }
}
