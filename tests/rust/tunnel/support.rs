//! Pairs of sessions.

use std::time::Duration;

use bytes::Bytes;
use ginnel::tunnel::{Incoming, Session, Side, Stream};
use tokio::io::duplex;
use tokio::time::timeout;

/// Longer than anything here takes, and short enough to end a test that hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Both ends of a session in memory.
pub struct Pair {
    pub agent: Session,
    pub agent_incoming: Incoming,
    pub service: Session,
    pub service_incoming: Incoming,
}

pub fn pair() -> Pair {
    let (left, right) = duplex(64 * 1024);
    let (agent, agent_incoming) = Session::start(left, Side::Agent);
    let (service, service_incoming) = Session::start(right, Side::Service);
    Pair { agent, agent_incoming, service, service_incoming }
}

impl Pair {
    /// A stream that the service opened, from both sides.
    pub async fn stream(&mut self) -> (Stream, Stream) {
        let opened = self.service.open(Bytes::new()).await.unwrap();
        (opened, soon(self.agent_incoming.next()).await.unwrap())
    }
}

/// Waits, but not for ever.
pub async fn soon<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("something to happen in time")
}

/// Waits until `done` holds.
pub async fn until(mut done: impl FnMut() -> bool) {
    soon(async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}
