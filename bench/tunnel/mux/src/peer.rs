//! The process at the other end.

use std::io::Result;
use std::sync::Arc;

use ginnel_mux::MuxSession;
use ginnel_mux::SessionLimits;
use ginnel_mux::Side;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::tls::Acceptor;

/// The connection is a session, whose streams begin with one of the other bytes.
pub const SESSION: u8 = b's';
/// Swallow everything, then say how much it was.
pub const SINK: u8 = b'k';
/// Answer a request of [`REQUEST`] bytes by [`ANSWER`] bytes.
pub const SMALL: u8 = b'r';

pub const REQUEST: usize = 128;
pub const ANSWER: usize = 256;
/// Beyond what any test opens.
const LIMITS: SessionLimits = SessionLimits { open: 1_000_000, waiting: 20_000 };

pub async fn serve() -> Result<()> {
    let acceptor = Arc::new(Acceptor::new()?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (socket, _) = listener.accept().await?;
        let acceptor = Arc::clone(&acceptor);
        tokio::spawn(async move {
            let Ok(mut connection) = acceptor.accept(socket).await else { return };
            match connection.read_u8().await {
                Ok(SESSION) => session(connection).await,
                Ok(kind) => drop(stream(kind, connection).await),
                Err(_) => {}
            }
        });
    }
}

async fn session(connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
    let (_session, mut incoming) = MuxSession::start_with(connection, Side::Service, LIMITS);
    while let Some(mut opened) = incoming.next().await {
        tokio::spawn(async move {
            let kind = opened.read_u8().await?;
            stream(kind, opened).await
        });
    }
}

async fn stream(kind: u8, mut io: impl AsyncRead + AsyncWrite + Unpin) -> Result<()> {
    if kind == SINK {
        let mut buffer = vec![0; 64 * 1024];
        let mut swallowed = 0;
        loop {
            let length = io.read(&mut buffer).await?;
            if length == 0 {
                break;
            }
            swallowed += length as u64;
        }
        io.write_u64(swallowed).await?;
    } else {
        io.read_exact(&mut [0; REQUEST]).await?;
        io.write_all(&[7; ANSWER]).await?;
    }
    io.shutdown().await
}
