//! Which events go where.

use std::collections::{BTreeMap, HashMap, HashSet};

use ginnel_api::remote::event_destinations::EventDestination;
use ginnel_store::{EventRow, StoreResult, View};

use super::delivery::DeliveryTarget;
use super::secret::DestinationSecret;
use super::subscriptions::{DESTINATION, EVENT_TYPE, find_receivers};
use super::types;
use crate::cluster::{RowOwner, lease};

/// The destinations that there are, and where traffic is told.
pub(super) struct EventRouting {
    /// All destinations, and how they are reached.
    pub targets: BTreeMap<String, DeliveryTarget>,
    /// The destinations that want a type of events of traffic.
    pub traffic: HashMap<&'static str, Vec<String>>,
}

impl EventRouting {
    /// What the database says.
    pub fn from_view(view: &View<'_>) -> StoreResult<Self> {
        let mut targets = BTreeMap::new();
        for destination in view.all_documents::<EventDestination>()? {
            let secret = DestinationSecret::find(view, &destination.id)?;
            if let Some(target) = DeliveryTarget::from_destination(&destination, secret) {
                targets.insert(destination.id, target);
            }
        }
        let mut traffic = HashMap::new();
        for event_type in types::OF_TRAFFIC {
            let receivers = find_receivers(view, event_type)?.into_iter().collect::<Vec<_>>();
            if !receivers.is_empty() {
                traffic.insert(event_type, receivers);
            }
        }
        Ok(Self { targets, traffic })
    }
}

/// What waits for a destination, with what decides on it at this moment.
pub(super) struct WaitingEvents {
    pub target: DeliveryTarget,
    pub events: Vec<EventRow>,
    /// The types of the subscriptions that name the destination.
    types: HashSet<String>,
}

impl WaitingEvents {
    /// The oldest events; none where the destination is gone, or another node delivers.
    pub fn read_oldest(
        view: &View<'_>,
        destination_id: &str,
        own: Option<&RowOwner>,
        limit: usize,
    ) -> StoreResult<Option<Self>> {
        if !lease::is_held(view, lease::EVENT_DELIVERY, own)? {
            return Ok(None);
        }
        let destination = view.find_document::<EventDestination>(destination_id)?;
        let secret = DestinationSecret::find(view, destination_id)?;
        let target = destination.and_then(|it| DeliveryTarget::from_destination(&it, secret));
        let Some(target) = target else { return Ok(None) };
        let events = view.waiting_events(destination_id, limit)?;
        let mut types = HashSet::new();
        if !events.is_empty() {
            for subscription in view.referrers(destination_id, DESTINATION)? {
                types.extend(view.references(&subscription, EVENT_TYPE)?);
            }
        }
        Ok(Some(Self { target, events, types }))
    }

    /// Whether a subscription wants events of this type there.
    pub fn is_wanted(&self, event_type: &str) -> bool {
        self.types.contains(event_type)
    }
}
