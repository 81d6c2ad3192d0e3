//! Copying bytes both ways, each direction to its own end.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::BoxWriter;

/// How much is copied at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Copies in both directions until both have ended; says how many bytes went each way.
///
/// The end of one direction is passed on, and the other goes on.
///
/// # Errors
/// When one side fails; the other is dropped then.
pub async fn copy(
    visitor: (&mut (impl AsyncRead + Unpin), &mut BoxWriter),
    local: (&mut (impl AsyncRead + Unpin), &mut BoxWriter),
) -> io::Result<(u64, u64)> {
    tokio::try_join!(one_way(visitor.0, local.1), one_way(local.0, visitor.1))
}

async fn one_way(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<u64> {
    let mut from = tokio::io::BufReader::with_capacity(CHUNK_BYTES, from);
    let copied = tokio::io::copy_buf(&mut from, to).await?;
    to.shutdown().await?;
    Ok(copied)
}
