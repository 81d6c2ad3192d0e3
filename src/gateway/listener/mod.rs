//! Listening: who comes in, and how everyone is let go.

pub(crate) mod open;
pub(crate) mod shutdown;
pub(crate) mod socket;
pub(crate) mod trusted_proxies;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::gateway::GatewayState;
use crate::gateway::listener::shutdown::{Shutdown, ShutdownPhase, ShutdownSignal};
use crate::net::{self, Acceptor, Connection};

/// A listener at work; dropping it refuses connections at once, and takes no more requests.
pub(crate) struct GatewayListener {
    shutdown: Arc<Shutdown>,
}

impl GatewayListener {
    /// Serves the connections of a listener; each ends by itself at a shutdown.
    pub(crate) fn open<F>(
        gateway: &Arc<GatewayState>,
        listener: TcpListener,
        serve: impl Fn(Connection, ShutdownSignal) -> F + Send + Sync + 'static,
    ) -> std::io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (socket, acceptor) = net::Listener::new(listener)?;
        let shutdown = gateway.new_shutdown(socket);
        tokio::spawn(accept(gateway.clone(), acceptor, shutdown.listen(), serve));
        Ok(Self { shutdown })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.shutdown.address()
    }
}

impl Drop for GatewayListener {
    fn drop(&mut self) {
        self.shutdown.begin(ShutdownPhase::Graceful);
    }
}

async fn accept<F>(
    gateway: Arc<GatewayState>,
    acceptor: Acceptor,
    shutdown: ShutdownSignal,
    serve: impl Fn(Connection, ShutdownSignal) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    while let Some(connection) = acceptor.accept(&gateway.limit).await {
        let serving = serve(connection, shutdown.clone());
        let routes = gateway.serving.subscribe();
        tokio::spawn(async move {
            serving.await;
            drop(routes);
        });
    }
}
