//! Listening: who comes in, and how everyone is let go.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::Inner;
use super::bell::{Bell, Call, Listener};
use crate::net::{self, Connection};

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
        serve: impl Fn(Connection, Listener) -> F + Send + Sync + 'static,
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
    serve: impl Fn(Connection, Listener) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let connection = tokio::select! {
            () = bell.wait_for(Call::Close) => return,
            connection = net::accept(&listener, &edges.limit) => connection,
        };
        let serving = serve(connection, bell.clone());
        let served = edges.serving.subscribe();
        tokio::spawn(async move {
            serving.await;
            drop(served);
        });
    }
}
