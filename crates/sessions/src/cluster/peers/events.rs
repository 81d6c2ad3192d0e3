//! What happens to the traffic of other nodes, for whoever listens here: best effort, bounded, and each
//! event with the name of its node.
//!
//! Nodes are asked only while somebody listens: where nobody does, requests are not followed.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use ginnel_base::logging::or_debug;
use ginnel_gateway::{Event, EventDelivery};
use ginnel_mux::Stream;

use super::PeerServices;
use super::link::Linker;
use super::message::{self, Subscription, kind};
use super::sessions::PeerSession;

/// How often it is looked whether somebody listens.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// A longer event is not taken.
const MAX_EVENT_BYTES: u32 = 1 << 20;

impl PeerServices {
    /// Tells another node what happens here, until it does not want to know any more.
    pub(super) async fn send_events(&self, mut stream: Stream) -> io::Result<()> {
        message::read_message::<Subscription>(&mut stream).await?;
        let mut events = self.gateway.subscribe_local_events();
        let (mut receiving, mut sending) = tokio::io::split(stream);
        let mut ignored = [0; 1];
        loop {
            let delivery = tokio::select! {
                delivery = events.next() => delivery,
                // Nothing more is said there: the end is waited for.
                _ = receiving.read(&mut ignored) => return Ok(()),
            };
            match delivery {
                Some(EventDelivery::Event(event)) => {
                    let text = serde_json::to_vec(event.as_ref())?;
                    sending.write_u32(text.len() as u32).await?;
                    sending.write_all(&text).await?;
                    sending.flush().await?;
                }
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }
}

/// Asks all nodes what happens there, while somebody wants to know.
pub(super) async fn merge_events(linker: Weak<Linker>) {
    loop {
        sleep(LOOK_INTERVAL).await;
        let Some(strong) = linker.upgrade() else { return };
        if !strong.services.gateway.wants_remote_events() {
            continue;
        }
        for session in strong.sessions.all() {
            if !session.is_followed.swap(true, Relaxed) {
                ginnel_base::tasks::spawn(follow_events(strong.clone(), session));
            }
        }
    }
}

/// Passes the events of a node on, until nobody wants them any more or it is gone.
async fn follow_events(linker: Arc<Linker>, session: Arc<PeerSession>) {
    let followed = receive_events(&linker, &session).await;
    or_debug!(followed, node = %session.node_id, "the events of another node do not come any more");
    session.is_followed.store(false, Relaxed);
}

async fn receive_events(linker: &Linker, session: &PeerSession) -> io::Result<()> {
    let first = message::encode_first_frame(kind::EVENTS, &Subscription {});
    let mut stream = session.mux.open_stream(first).await.map_err(io::Error::other)?;
    let gateway = &linker.services.gateway;
    let node = linker.directory.find_node(&session.node_id);
    let name = node.map_or_else(|| session.node_id.to_string(), |it| it.record.name.clone());
    let mut read = BytesMut::new();
    while gateway.wants_remote_events() {
        let Ok(more) = timeout(LOOK_INTERVAL, stream.read_buf(&mut read)).await else { continue };
        if more? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some(text) = next_text(&mut read)? {
            let event: Event = serde_json::from_slice(&text)?;
            gateway.broadcast_event(Event { node: Some(name.clone()), ..event });
        }
    }
    stream.shutdown().await
}

/// Takes the next event, with its length before it; none while a part is missing.
fn next_text(read: &mut BytesMut) -> io::Result<Option<BytesMut>> {
    let Some(length) = read.first_chunk().copied().map(u32::from_be_bytes) else { return Ok(None) };
    if length > MAX_EVENT_BYTES {
        return Err(io::Error::other(format!("an event of {length} bytes")));
    }
    let end = 4 + length as usize;
    if read.len() < end {
        return Ok(None);
    }
    let mut event = read.split_to(end);
    event.advance(4);
    Ok(Some(event))
}
