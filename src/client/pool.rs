//! Idle connections, the last used one first.

use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;

use super::link::{Fault, Link, is_loopback_only};
use super::{Cause, Settings, proxied};
use crate::reuse::ReuseBan;

/// How many idle connections a pool keeps: as many as a program may well have calls in flight. With
/// fewer, each wave of calls would connect anew.
const MAX_IDLE: usize = 512;

/// The connections of one runtime.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Link>>,
    /// Carries what goes through a proxy; made when first needed.
    proxied: OnceLock<reqwest::Client>,
}

impl Pool {
    /// Sends a request on an idle connection or a new one, and takes the whole answer.
    ///
    /// A connection that the server closed while it was idle costs nothing: a request that may be
    /// repeated, or was handed back unsent, goes to the next connection.
    pub(super) async fn exchange(
        &self,
        settings: &Settings,
        request: Request<Full<Bytes>>,
        repeatable: bool,
    ) -> Result<Response<Bytes>, Cause> {
        if let Some(proxy) = settings.proxy.as_ref().filter(|_| !is_loopback_only()) {
            return proxied::exchange(&self.proxied, proxy, settings, request).await;
        }
        loop {
            let mut link = match self.take(&settings.reuse_ban, repeatable) {
                Some(link) => link,
                None => Link::connect(settings).await?,
            };
            match link.exchange(request.clone()).await {
                Ok(response) => {
                    self.put(link, &settings.reuse_ban);
                    return Ok(response);
                }
                Err(Fault { cause: Cause::Broken(_), unsent })
                    if link.used && (repeatable || unsent) => {}
                Err(fault) => return Err(fault.cause),
            }
        }
    }

    /// Closes the idle connections.
    pub(super) fn clear(&self) {
        let idle = std::mem::take(&mut *self.lock());
        drop(idle);
    }

    fn take(&self, ban: &ReuseBan, repeatable: bool) -> Option<Link> {
        loop {
            let mut link = self.lock().pop()?;
            if (repeatable || !link.is_old()) && ban.permits(link.look()) {
                return Some(link);
            }
        }
    }

    fn put(&self, mut link: Link, ban: &ReuseBan) {
        if !ban.permits(link.state()) || !link.is_reusable() {
            return;
        }
        link.rest();
        let mut idle = self.lock();
        if idle.len() < MAX_IDLE {
            idle.push(link);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
