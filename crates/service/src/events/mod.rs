//! Events: what happened here, told to programs elsewhere.
//!
//! A change of a resource is written with its event in one commit: `recorder` finds out what the change
//! has made of which documents, `object` shows them as `get` does and without secrets, and the event is
//! stored with a row for each destination that `subscriptions` lead to. `dispatcher` has one task for each
//! destination deliver these rows in their order, on the node of a cluster that has the lease; `traffic`
//! delivers what the gateway tells, of which nothing is stored. How something gets there is in `delivery`, which knows `webhook`, `file` and
//! `otlp`. Without a destination there is no task at all.

mod arrivals;
mod backoff;
mod delivery;
mod delivery_key;
mod dispatcher;
mod file;
mod metrics;
mod object;
mod options;
mod otlp;
mod outbox;
mod payload;
mod recorder;
mod routing;
mod secret;
mod subscriptions;
mod sweep;
mod traffic;
mod types;
mod webhook;

pub(super) use delivery::checked_url;
pub(super) use dispatcher::{DispatchServices, EventDispatcher};
pub(super) use file::check_name;
pub(super) use metrics::{EventMetrics, FailedAttempt};
pub(super) use object::EventObject;
pub use options::EventOptions;
pub(super) use payload::Principal;
pub(super) use recorder::EventRecorder;
pub(super) use secret::{DestinationSecret, check_secret, new_secret};
pub(super) use subscriptions::{DESTINATION, EVENT_TYPE, bump_subscription_version};
