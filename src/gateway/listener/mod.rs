//! Listening: who comes in, and how everyone is let go.

pub(crate) mod open;
pub(crate) mod shutdown;
pub(crate) mod socket;
pub(crate) mod trusted_proxies;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::gateway::Inner;
use crate::gateway::listener::shutdown::{Bell, Call, Listener};
use crate::net::{self, Acceptor, Connection};

/// A listener at work; dropping it refuses connections at once, and takes no more requests.
pub(crate) struct Door {
    bell: Arc<Bell>,
}

impl Door {
    /// Serves the connections of a listener; each ends by itself when the bell rings.
    pub(crate) fn open<F>(
        edges: &Arc<Inner>,
        listener: TcpListener,
        serve: impl Fn(Connection, Listener) -> F + Send + Sync + 'static,
    ) -> std::io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (socket, acceptor) = net::Listener::new(listener)?;
        let bell = edges.new_bell(socket);
        tokio::spawn(accept(edges.clone(), acceptor, bell.listen(), serve));
        Ok(Self { bell })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.bell.address()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.bell.ring(Call::Close);
    }
}

async fn accept<F>(
    edges: Arc<Inner>,
    acceptor: Acceptor,
    bell: Listener,
    serve: impl Fn(Connection, Listener) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    while let Some(connection) = acceptor.accept(&edges.limit).await {
        let serving = serve(connection, bell.clone());
        let served = edges.serving.subscribe();
        tokio::spawn(async move {
            serving.await;
            drop(served);
        });
    }
}
