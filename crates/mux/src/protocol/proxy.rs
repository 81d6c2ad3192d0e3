//! Public connections, handed from the service to the agent.

use std::io;

use bytes::{BufMut, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::protocol::message::{self, ProxyHeader};
use crate::protocol::stream_kind::{FIRST_BYTES, PROXY};
use crate::{Group, MuxSession, SessionEnd, Stream};

/// A longer header is refused.
const MAX_HEADER_BYTES: i64 = 64 * 1024;

/// Opens a stream for a public connection, in a group if one is named, unless `most` streams of this
/// side are open. What is written next are the visitor's bytes.
///
/// # Errors
/// When the session is over.
pub async fn open_proxy(
    session: &MuxSession,
    most: usize,
    group: Option<Group>,
    header: &ProxyHeader,
) -> Result<Option<Stream>, SessionEnd> {
    // Plain text members always make JSON.
    let header = serde_json::to_vec(header).unwrap_or_default();
    // In one frame: agents read all of it before they take another stream.
    let mut first = BytesMut::with_capacity(12 + header.len());
    first.put_u32(PROXY);
    first.put_i64_le(header.len() as i64);
    first.put_slice(&header);
    session.open_below(most, group, first.freeze()).await
}

/// Reads what stands before the visitor's bytes, after the stream's kind.
///
/// # Errors
/// When the header is malformed or longer than 64 KiB, the stream ends before it is complete, or
/// after five seconds.
pub async fn read_header(stream: &mut Stream) -> io::Result<ProxyHeader> {
    timeout(FIRST_BYTES, read_header_now(stream)).await?
}

async fn read_header_now(stream: &mut Stream) -> io::Result<ProxyHeader> {
    let length = stream.read_i64_le().await?;
    if !(0..=MAX_HEADER_BYTES).contains(&length) {
        return Err(invalid_data(format!("a proxy header of {length} bytes")));
    }
    let mut header = vec![0; length as usize];
    stream.read_exact(&mut header).await?;
    message::decode_message(&header).map_err(invalid_data)
}

fn invalid_data(problem: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}
