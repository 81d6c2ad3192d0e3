//! WebSockets that become connections of bytes: what messages hold is what the target hears.

pub mod converter;
mod frames;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use sha1::{Digest, Sha1};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use ginnel_base::logging::{ignore, or_debug};
use ginnel_http1::has_token;
use ginnel_net::{ResetOnClose, is_reset};

use crate::Io;
use crate::message::error_response::{self, ErrorResponse};
use crate::message::response_body::ResponseBody;
use crate::message::upgrade::{UpgradeContext, VisitorUpgrade};
use frames::{FramePiece, FrameReader, WebSocketError, encode_frame};

/// What the protocol adds to the key of a visitor (RFC 6455, section 1.3).
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// How much is read at a time, in bytes.
const READ_BYTES: usize = 16 << 10;
/// How long a visitor may take to say goodbye as well.
const GOODBYE: Duration = Duration::from_secs(5);

const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PONG: u8 = 10;
/// The reasons of a close: done, and the other side broke the protocol.
const DONE: [u8; 2] = 1000_u16.to_be_bytes();
const BROKEN: [u8; 2] = 1002_u16.to_be_bytes();
/// The reason of a close at a graceful stop: the service goes away.
const GOING_AWAY: [u8; 2] = 1001_u16.to_be_bytes();

/// Agrees to what a visitor asks for; refuses what is no WebSocket.
pub fn handshake_response(headers: &HeaderMap) -> Result<Response<ResponseBody>, ErrorResponse> {
    let is_websocket = has_token(headers, UPGRADE, "websocket");
    let is_known = headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|it| it == "13");
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_websocket && is_known);
    let key = key.ok_or(error_response::NO_WEBSOCKET)?;
    let digest = Sha1::new().chain_update(key.as_bytes()).chain_update(MAGIC).finalize();
    let accept =
        HeaderValue::try_from(STANDARD.encode(digest)).map_err(|_| error_response::NO_WEBSOCKET)?;
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

impl UpgradeContext {
    /// Lets a visitor and a target talk, the one in messages and the other in bytes.
    pub fn convert_websocket(&self, visitor: VisitorUpgrade, target: Io) {
        self.spawn_until_shutdown(convert_websocket(visitor, target, self.graceful_stop()));
    }
}

/// Lets a visitor and a target talk until one of them ends, or until `shutdown` is ready.
async fn convert_websocket(
    visitor: VisitorUpgrade,
    target: Io,
    shutdown: impl Future<Output = ()>,
) {
    let Some(visitor) = visitor.into_stream().await else { return };
    let (hears, says) = tokio::io::split(visitor);
    let (mut answers, mut target) = tokio::io::split(target);
    let says = Mutex::new(MessageWriter { write: says, has_closed: false });
    let is_broken = copy_both_ways((hears, &says), (&mut answers, &mut target), shutdown).await;
    if is_broken {
        answers.unsplit(target).reset_on_close();
    }
}

/// As [`convert_websocket`]; returns true if the connection of the visitor broke.
async fn copy_both_ways(
    (hears, says): (impl AsyncRead + Unpin, &Mutex<MessageWriter<impl AsyncWrite + Unpin>>),
    (answers, target): (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
    shutdown: impl Future<Output = ()>,
) -> bool {
    let inbound = copy_inbound(hears, says, target);
    let outbound = copy_outbound(answers, says);
    tokio::pin!(inbound);
    tokio::select! {
        // The visitor has said goodbye, or has gone: nobody listens any more.
        ended = &mut inbound => return ended.is_err_and(|error| is_reset(&error)),
        _ = outbound => {
            let left = tokio::time::timeout(GOODBYE, inbound).await;
            or_debug!(left, "a visitor does not say goodbye");
        }
        () = shutdown => {
            let said = write_message(says, CLOSE, &GOING_AWAY).await;
            ignore(said, "a visitor who is gone needs no goodbye");
            let left = tokio::time::timeout(GOODBYE, inbound).await;
            or_debug!(left, "a visitor does not say goodbye");
        }
    }
    false
}

/// Carries what messages hold to the target, until the visitor is done.
async fn copy_inbound(
    mut hears: impl AsyncRead + Unpin,
    says: &Mutex<MessageWriter<impl AsyncWrite + Unpin>>,
    target: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let mut reader = FrameReader::default();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = hears.read(&mut buffer).await?;
        if length == 0 {
            return target.shutdown().await;
        }
        let pieces = match reader.read_frames(&buffer[..length]) {
            Ok(pieces) => pieces,
            Err(WebSocketError) => return write_message(says, CLOSE, &BROKEN).await,
        };
        for piece in pieces {
            match piece {
                FramePiece::Data(bytes) => target.write_all(&bytes).await?,
                FramePiece::Ping(bytes) => write_message(says, PONG, &bytes).await?,
                FramePiece::Close(reason) => {
                    target.shutdown().await?;
                    return write_message(says, CLOSE, &reason).await;
                }
            }
        }
        target.flush().await?;
    }
}

/// Carries what the target says as messages, until it is done.
async fn copy_outbound(
    answers: &mut (impl AsyncRead + Unpin),
    says: &Mutex<MessageWriter<impl AsyncWrite + Unpin>>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match answers.read(&mut buffer).await? {
            0 => return write_message(says, CLOSE, &DONE).await,
            length => write_message(says, BINARY, &buffer[..length]).await?,
        }
    }
}

/// The direction to the visitor.
struct MessageWriter<W> {
    write: W,
    /// A close frame was sent: nothing may follow it (RFC 6455 §5.5.1).
    has_closed: bool,
}

async fn write_message(
    says: &Mutex<MessageWriter<impl AsyncWrite + Unpin>>,
    opcode: u8,
    payload: &[u8],
) -> std::io::Result<()> {
    let mut says = says.lock().await;
    if says.has_closed {
        return Ok(());
    }
    says.has_closed = opcode == CLOSE;
    says.write.write_all(&encode_frame(opcode, payload)).await?;
    says.write.flush().await
}
