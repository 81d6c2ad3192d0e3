//! Public traffic: listeners, TLS, routing, modules, and connections to upstreams.
//!
//! # One request
//!
//! The `server` accepts the connection, ends TLS (`tls`), reads the request and finds the virtual host of its
//! name in `routing`, and there the route of its path. The `modules` of the route act on the request, and
//! `upstream` sends it to a target of the backend. Visitors log in by `login`. All of them exchange what
//! `message` declares: heads, bodies, errors, and the event that reports how the request ended.
//!
//! The phases of a request are `accept`, `read_head`, `select_host`, `route_request`, `run_modules`, `send_upstream`,
//! `relay_response` and `finish` (`RequestPhase`). Functions, logs and metrics have the same names.
//!
//! # Invariants
//!
//! - The gateway knows neither the database nor the management API. The service compiles edges and hands them in.
//! - `message` uses no other folder of the request. Only `server` uses `server` and the state of the gateway.

mod addresses;
mod gateway_error;
pub mod login;
pub mod message;
pub mod metrics;
pub mod modules;
pub mod published;
mod request_phase;
mod restrictions;
pub mod routing;
pub mod secrets;
mod server;
mod settings;
mod timeouts;
pub mod tls;
mod trusted_proxies;
pub mod upstream;

pub use addresses::{AddressFileError, AddressFiles};
pub use gateway_error::GatewayError;
pub use message::BoxFuture;
pub use message::events::{Event, EventDelivery, EventSubscriber};
pub use message::visitor::{RouteRef, Visitor, VisitorTls};
pub use request_phase::RequestPhase;
pub use restrictions::{Ingress, IngressRestriction, IngressRestrictions};
pub use routing::backend::random_below;
pub use routing::endpoint::{BindError, EndpointTraffic, PublicEndpoint};
pub use routing::endpoint::{EndpointPlace, already_online};
pub use routing::endpoint_spec::{EndpointSpec, Proto};
pub use routing::internal::is_internal;
pub use routing::remote_hosts::{HostRank, RemoteHosts};
pub use server::gateway::Gateway;
pub use settings::GatewaySettings;
pub use timeouts::Timeouts;
pub use tls::policy::TlsTerminationSpec;
pub use trusted_proxies::{TrustedProxies, TrustedProxyError};
pub use upstream::budget::ConnectionBudget;
pub use upstream::io::{AsyncReadWrite, Io, ResetOnClose};
pub use upstream::target::{ConnectionReuse, DialError, Target, TunnelGroups, UpstreamProtocol};
