//! Events of public traffic for pages that are open.
//!
//! A slow page misses events and learns how many; nobody waits for it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::interval;

use ginnel_base::logging::ignore;
use ginnel_gateway::Ingress;
use ginnel_gateway::{Event, EventDelivery, EventSubscriber};
use ginnel_net::{ChannelBody, ShutdownPhase, ShutdownSignal};

use super::event_filter::TrafficFilter;
use super::sessions::{ConsoleSessions, SessionDigest};
use crate::context::ServiceState;
use crate::pipeline;

/// How long events are gathered before they are sent.
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);
/// How many events one update has at most.
const MAX_UPDATE_EVENTS: usize = 200;
/// How many updates wait for a page that does not read.
const MAX_QUEUED_UPDATES: usize = 4;
/// How often a page without events hears something, and its right to them is looked at again.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// What has happened since the last update.
#[derive(Debug, Default, Serialize)]
struct EventUpdate {
    events: Vec<Event>,
    /// How many events there were that are not shown.
    missed: u64,
}

/// Who listens, and with which right.
pub(super) struct EventWatch {
    pub shared: Arc<ServiceState>,
    pub sessions: Arc<ConsoleSessions>,
    pub session: SessionDigest,
    pub authorization: HeaderValue,
    /// Where the page is.
    pub address: Option<IpAddr>,
    pub shutdown: ShutdownSignal,
    pub filter: TrafficFilter,
}

impl EventWatch {
    /// Whether the session is not over, its key is still one of an admin, and the page is where it may be.
    async fn is_allowed(&self) -> bool {
        let admitted = pipeline::check_ingress(&self.shared, Ingress::Dashboard, self.address);
        if admitted.is_err() || !self.sessions.has_session(&self.session, Instant::now()) {
            return false;
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, self.authorization.clone());
        let caller = self.shared.callers.find(&self.shared.store, &headers).await;
        caller.is_ok_and(|caller| caller.admin)
    }

    /// Sends updates until the page, the session or the service ends.
    async fn send_updates(self, mut events: EventSubscriber, page: mpsc::Sender<Bytes>) {
        let mut shutdown = self.shutdown.clone();
        let mut update = EventUpdate::default();
        let (mut flush, mut check) = (interval(UPDATE_INTERVAL), interval(CHECK_INTERVAL));
        loop {
            tokio::select! {
                delivery = events.next() => match delivery {
                    Some(delivery) => update.add_delivery(delivery, &self.filter),
                    None => return,
                },
                _ = flush.tick() => update.send_to(&page),
                _ = check.tick() => {
                    if !self.is_allowed().await {
                        return;
                    }
                    let sent = page.try_send(Bytes::from_static(b": \n\n"));
                    ignore(sent, "a page that is behind has something to read");
                }
                () = page.closed() => return,
                () = shutdown.wait_for(ShutdownPhase::Graceful) => return,
            }
        }
    }
}

impl EventUpdate {
    fn add_delivery(&mut self, delivery: EventDelivery, filter: &TrafficFilter) {
        match delivery {
            EventDelivery::Missed(missed) => self.missed += missed,
            EventDelivery::Event(event) if !filter.matches_event(&event) => {}
            EventDelivery::Event(event) if self.events.len() < MAX_UPDATE_EVENTS => {
                self.events.push(event.masked());
            }
            EventDelivery::Event(_) => self.missed += 1,
        }
    }

    /// Sends what there is; a page that is behind gets it later, or misses it.
    fn send_to(&mut self, page: &mpsc::Sender<Bytes>) {
        if self.events.is_empty() && self.missed == 0 {
            return;
        }
        let Ok(place) = page.try_reserve() else { return };
        // Events always make JSON.
        let data = serde_json::to_string(&self).unwrap_or_default();
        place.send(format!("data: {data}\n\n").into());
        *self = Self::default();
    }
}

/// The body of a response that sends what happens from now on; `permit` is for one of so many streams.
pub(super) fn start(watch: EventWatch, permit: OwnedSemaphorePermit) -> ChannelBody {
    let (page, updates) = mpsc::channel(MAX_QUEUED_UPDATES);
    let events = watch.shared.gateway.subscribe_events();
    ginnel_base::tasks::spawn(async move {
        watch.send_updates(events, page).await;
        drop(permit);
    });
    ChannelBody(updates)
}
