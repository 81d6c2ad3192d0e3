//! What is served at a public address.

use std::sync::Arc;

use super::fault::{self, Fault};
use super::forward::{Exchange, Outcome, Upstream, forward};
use super::target::{Undialable, Visitor};
use super::upgrade;

/// What is served at a public address.
pub(super) struct Site {
    route: Arc<Route>,
}

/// Where requests go, and what happens to them on the way.
pub(super) struct Route {
    /// The `Host` that the target shall see.
    pub host_header: Option<http::HeaderValue>,
    /// Where requests go.
    pub backend: Backend,
}

/// Where requests and connections go.
pub(super) enum Backend {
    /// Nobody serves the address now.
    Offline,
    /// One target.
    Upstream(Upstream),
}

impl Site {
    /// A site that treats all requests alike.
    pub(super) fn of(route: Route) -> Self {
        Self { route: Arc::new(route) }
    }

    /// The route of a path.
    pub(super) fn route(&self, _path: &str) -> Option<&Arc<Route>> {
        Some(&self.route)
    }
}

impl Backend {
    /// Sends a request to whoever takes it.
    pub(super) async fn forward(
        &self,
        visitor: &Visitor,
        exchange: Exchange,
        runtime: &upgrade::Tasks,
    ) -> Result<http::Response<super::body::Body>, Fault> {
        match self {
            Self::Offline => Err(fault::NO_ENDPOINT),
            Self::Upstream(upstream) => match forward(upstream, visitor, exchange, runtime).await {
                Outcome::Answered(response) => Ok(response),
                Outcome::Undialed(reason) => Err((&reason).into()),
                Outcome::Failed(fault) => Err(fault),
            },
        }
    }

    /// Opens a connection for bytes.
    pub(super) async fn dial(&self, visitor: &Visitor) -> Result<super::Io, Undialable> {
        match self {
            Self::Offline => Err(Undialable::Offline),
            Self::Upstream(upstream) => upstream.target.dial(visitor).await,
        }
    }
}
