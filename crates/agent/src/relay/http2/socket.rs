//! WebSockets, over a stream that extended CONNECT has opened (RFC 8441).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue};
use sha1::{Digest, Sha1};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{heads, upload};

use ginnel_base::logging::ignore;

/// What a server adds to a visitor's key (RFC 6455, section 1.3).
const WEBSOCKET_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// How much is read at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// Tells the visitor that the WebSocket is open, and copies both ways until both have ended.
pub(super) async fn bridge_websocket(
    key: &HeaderValue,
    headers: &HeaderMap,
    local: (SendStream<Bytes>, RecvStream),
    visitor: (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
    buffer: &mut BytesMut,
) {
    let (read, write) = visitor;
    let accept = Sha1::new().chain_update(key.as_bytes()).chain_update(WEBSOCKET_GUID).finalize();
    let head = heads::switching_protocols_head(headers, &BASE64_STANDARD.encode(accept));
    if write.write_all(&head).await.is_err() {
        return;
    }
    // Either side may end it whenever it likes.
    if tokio::try_join!(copy_to_local(local.0, read, buffer), copy_to_visitor(local.1, write))
        .is_err()
    {
        tracing::debug!("a WebSocket over HTTP/2 broke");
    }
}

/// One side has failed; the other is dropped then.
struct SocketBridgeError;

async fn copy_to_local(
    mut stream: SendStream<Bytes>,
    read: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> Result<(), SocketBridgeError> {
    loop {
        if buffer.is_empty() {
            buffer.reserve(CHUNK_BYTES);
            if read.read_buf(buffer).await.map_err(|_| SocketBridgeError)? == 0 {
                return stream.send_data(Bytes::new(), true).map_err(|_| SocketBridgeError);
            }
        }
        let piece = buffer.split().freeze();
        upload::send_piece(&mut stream, piece, false).await.map_err(|_| SocketBridgeError)?;
    }
}

async fn copy_to_visitor(
    mut stream: RecvStream,
    write: &mut (impl AsyncWrite + Unpin),
) -> Result<(), SocketBridgeError> {
    while let Some(data) = stream.data().await {
        let data = data.map_err(|_| SocketBridgeError)?;
        write.write_all(&data).await.map_err(|_| SocketBridgeError)?;
        // It fails for a stream that has ended, which needs no window.
        let released = stream.flow_control().release_capacity(data.len());
        ignore(released, "a stream that has ended needs no window");
    }
    write.shutdown().await.map_err(|_| SocketBridgeError)
}
