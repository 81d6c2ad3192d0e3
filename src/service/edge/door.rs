//! Listening: who comes in, how many at once, and how everyone is let go.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Inner;

/// How long to wait when the process has no file descriptor left for another connection.
const BREATH: Duration = Duration::from_millis(20);

/// A listener at work; dropping it takes no more connections and no more requests.
pub(super) struct Door {
    address: SocketAddr,
    close: watch::Sender<bool>,
}

impl Door {
    /// Serves the connections of a listener.
    pub(super) fn open<F>(
        edges: &Arc<Inner>,
        listener: TcpListener,
        serve: impl Fn(TcpStream, SocketAddr, Closing) -> F + Send + Sync + 'static,
    ) -> std::io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr()?;
        let (close, closed) = watch::channel(false);
        let closing = Closing { door: closed, all: edges.stop.subscribe() };
        tokio::spawn(accept(edges.clone(), listener, closing, serve));
        Ok(Self { address, close })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close.send_replace(true);
    }
}

/// Tells connections that no more requests are taken.
#[derive(Clone)]
pub(super) struct Closing {
    door: watch::Receiver<bool>,
    all: watch::Receiver<bool>,
}

impl Closing {
    /// Waits until the listener closes.
    pub(super) async fn wait(&mut self) {
        // A sender that is gone has closed as well.
        tokio::select! {
            _ = self.door.wait_for(|closed| *closed) => {}
            _ = self.all.wait_for(|closed| *closed) => {}
        }
    }
}

async fn accept<F>(
    edges: Arc<Inner>,
    listener: TcpListener,
    mut closing: Closing,
    serve: impl Fn(TcpStream, SocketAddr, Closing) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let cut = edges.cut.subscribe();
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = edges.places.clone().acquire_owned().await.ok();
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            () = closing.wait() => return,
            next = next => next,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        // Answers are written whole; waiting for more to send only delays them.
        let _ = stream.set_nodelay(true);
        let serving = serve(stream, peer, closing.clone());
        let mut cut = cut.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = serving => {}
                _ = cut.wait_for(|cut| *cut) => {}
            }
            drop(place);
        });
    }
}
