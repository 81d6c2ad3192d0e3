//! A way to the server of the tests that closes at a certain commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::engines::server;

pub(super) const OPEN: u8 = 0;
/// Until the commit comes.
pub(super) const ARMED: u8 = 1;
/// All connections are closed that something is sent over, and no other is made.
pub(super) const CLOSED: u8 = 2;

/// A commit as it is sent, which is not a level of isolation.
pub(super) const COMMIT: &str = "COMMIT\0";

/// A way to the server that closes when a commit with a certain text is sent over it, which the server gets.
pub(super) struct Breaker {
    pub port: u16,
    pub state: Arc<AtomicU8>,
}

#[derive(Clone)]
struct Way {
    state: Arc<AtomicU8>,
    text: &'static str,
    /// Whether the response to the commit comes through.
    responds: bool,
}

impl Breaker {
    pub async fn start(text: &'static str, responds: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, state) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU8::new(OPEN)));
        let way = Way { state: state.clone(), text, responds };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if way.state.load(Ordering::SeqCst) != CLOSED {
                    tokio::spawn(way.clone().carry(client));
                }
            }
        });
        Self { port, state }
    }
}

impl Way {
    async fn carry(self, client: TcpStream) {
        let upstream = TcpStream::connect(("127.0.0.1", server().port())).await.unwrap();
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.into_split(), upstream.into_split());
        let responses = tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
        let mut buffer = vec![0; 1 << 16];
        // A transaction may come in pieces.
        let mut has_text = false;
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            let bytes = &buffer[..read];
            let sent = String::from_utf8_lossy(bytes);
            has_text |= sent.contains(self.text);
            if sent.contains(COMMIT) && std::mem::take(&mut has_text) && self.closes() {
                if !self.responds {
                    responses.abort();
                }
                to_server.write_all(bytes).await.unwrap();
                tokio::time::sleep(Duration::from_millis(300)).await;
                break;
            }
            let is_closed = self.state.load(Ordering::SeqCst) == CLOSED;
            if is_closed || to_server.write_all(bytes).await.is_err() {
                break;
            }
        }
        responses.abort();
    }

    /// Closes the way, where the commit is awaited.
    fn closes(&self) -> bool {
        let (from, to, order) = (ARMED, CLOSED, Ordering::SeqCst);
        self.state.compare_exchange(from, to, order, order).is_ok()
    }
}
