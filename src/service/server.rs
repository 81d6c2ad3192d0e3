//! Accepting connections, and letting go of them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::http1::StrictStream;
use crate::net::{self, Acceptor, Connection, ConnectionLimit, FIRST_BYTE_TIMEOUT};

/// How long a connection may take to send the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);

/// A listener at work.
pub(super) struct Server {
    socket: net::Listener,
    /// True as soon as no more requests are read.
    stop: watch::Sender<bool>,
    accepting: Option<tokio::task::JoinHandle<JoinSet<()>>>,
}

impl Server {
    /// Serves the connections of a listener, as many as the limit lets in.
    pub(super) fn start(
        (socket, acceptor): (net::Listener, Acceptor),
        router: Router,
        limit: Arc<ConnectionLimit>,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let accepting = tokio::spawn(accept(acceptor, router, limit, stopped));
        Self { socket, stop, accepting: Some(accepting) }
    }

    /// Takes no more connections, and answers what is in flight for as long as `grace`.
    pub(super) async fn stop(&mut self, grace: Duration) {
        self.close();
        let Some(accepting) = self.accepting.take() else { return };
        let Ok(mut connections) = accepting.await else { return };
        let finished = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, finished).await.is_err() {
            connections.shutdown().await;
        }
    }

    fn close(&self) {
        self.socket.close();
        self.stop.send_replace(true);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

async fn accept(
    acceptor: Acceptor,
    router: Router,
    limit: Arc<ConnectionLimit>,
    stopped: watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    while let Some(connection) = acceptor.accept(&limit).await {
        // Finished tasks are collected on the way, so the set does not grow.
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(connection, router.clone(), stopped.clone()));
    }
    connections
}

async fn serve(connection: Connection, router: Router, mut stopped: watch::Receiver<bool>) {
    let Connection { stream, permit: _permit, .. } = connection;
    let speaks = tokio::select! {
        speaks = net::first_byte(&stream, FIRST_BYTE_TIMEOUT) => speaks,
        _ = stopped.wait_for(|stop| *stop) => false,
    };
    if !speaks {
        return;
    }
    let mut builder = http1::Builder::new();
    // A client may close its sending side and still read the answer.
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).half_close(true);
    let service = TowerToHyperService::new(router);
    let connection = builder.serve_connection(TokioIo::new(StrictStream::new(stream)), service);
    tokio::pin!(connection);
    let stopping = tokio::select! {
        // What goes wrong with a connection concerns its client, who knows.
        _ = connection.as_mut() => false,
        _ = stopped.wait_for(|stop| *stop) => true,
    };
    if stopping {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}
