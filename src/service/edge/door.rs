//! Listening: who comes in, how many at once, and how everyone is let go.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::Inner;
use super::bell::{Bell, Call, Listener};

/// How long to wait when the process has no file descriptor left for another connection.
const BREATH: Duration = Duration::from_millis(20);

/// A listener at work; dropping it takes no more connections and no more requests.
pub(super) struct Door {
    address: SocketAddr,
    bell: Arc<Bell>,
}

impl Door {
    /// Serves the connections of a listener; each ends by itself when the bell rings.
    pub(super) fn open<F>(
        edges: &Arc<Inner>,
        listener: TcpListener,
        serve: impl Fn(TcpStream, SocketAddr, Listener) -> F + Send + Sync + 'static,
    ) -> std::io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr()?;
        let bell = edges.new_bell();
        tokio::spawn(accept(edges.clone(), listener, bell.listen(), serve));
        Ok(Self { address, bell })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.bell.ring(Call::Close);
    }
}

async fn accept<F>(
    edges: Arc<Inner>,
    listener: TcpListener,
    mut bell: Listener,
    serve: impl Fn(TcpStream, SocketAddr, Listener) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = edges.places.clone().acquire_owned().await.ok();
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            () = bell.wait_for(Call::Close) => return,
            next = next => next,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        // Answers are written whole; waiting for more to send only delays them.
        let _ = stream.set_nodelay(true);
        let serving = serve(stream, peer, bell.clone());
        tokio::spawn(async move {
            serving.await;
            drop(place);
        });
    }
}
