//! What is done over plain connections and over streams alike.

use std::io::{Error, Result};

use bytes::Bytes;
use ginnel_mux::MuxSession;
use ginnel_mux::Side;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::peer::{ANSWER, REQUEST, SESSION, SINK, SMALL};
use crate::tls::Dialler;

/// Opens a session over a new connection.
pub async fn session(dialler: &Dialler) -> Result<MuxSession> {
    let mut connection = dialler.dial().await?;
    connection.write_all(&[SESSION]).await?;
    let (session, _) = MuxSession::start(connection, Side::Agent);
    Ok(session)
}

/// One small request and its answer over a stream of its own.
pub async fn small(session: &MuxSession) -> Result<()> {
    let mut first = [9; 1 + REQUEST];
    first[0] = SMALL;
    let mut stream = session.open_stream(Bytes::copy_from_slice(&first)).await?;
    stream.read_exact(&mut [0; ANSWER]).await?;
    Ok(())
}

/// The same over a connection of its own.
pub async fn small_plain(dialler: &Dialler) -> Result<()> {
    let mut first = [9; 1 + REQUEST];
    first[0] = SMALL;
    let mut connection = dialler.dial().await?;
    connection.write_all(&first).await?;
    connection.flush().await?;
    connection.read_exact(&mut [0; ANSWER]).await?;
    Ok(())
}

/// Sends so many bytes, and waits until all were received.
pub async fn bulk(
    mut io: impl AsyncRead + AsyncWrite + Unpin,
    length: u64,
    piece: usize,
) -> Result<()> {
    let piece = vec![7; piece];
    let mut sent = 0;
    while sent < length {
        io.write_all(&piece).await?;
        sent += piece.len() as u64;
    }
    io.shutdown().await?;
    if io.read_u64().await? == sent { Ok(()) } else { Err(Error::other("bytes were lost")) }
}

pub async fn bulk_stream(session: &MuxSession, length: u64, piece: usize) -> Result<()> {
    bulk(session.open_stream(Bytes::from_static(&[SINK])).await?, length, piece).await
}

pub async fn bulk_plain(dialler: &Dialler, length: u64, piece: usize) -> Result<()> {
    let mut connection = dialler.dial().await?;
    connection.write_all(&[SINK]).await?;
    bulk(connection, length, piece).await
}
