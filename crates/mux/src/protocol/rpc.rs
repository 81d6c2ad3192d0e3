//! Calls: one stream each, with a message there and a message back.

use std::io;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout, timeout_at};

use crate::protocol::json_object::{NotAnObject, ObjectScanner};
use crate::protocol::message::{
    Auth, AuthAnswer, Bind, BindAnswer, BindLabeled, BindLabeledAnswer, CommandResponse,
    MessageError, PatchTunnelState, Restart, SrvInfo, SrvInfoAnswer, Stop, StopTunnel, Unbind,
    Update, decode_message,
};
use crate::protocol::stream_kind;
use crate::{Code, MuxSession, SessionEnd, Stream};

/// A longer message is refused.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// A message that opens a stream and is answered by another.
pub trait RpcRequest: Serialize + DeserializeOwned {
    /// The first four bytes of its stream.
    const KIND: u32;
    /// What comes back.
    type Answer: Serialize + DeserializeOwned;
}

/// Why a call failed. An answer that holds an error is an answer.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// The session is over.
    #[error(transparent)]
    SessionEnd(#[from] SessionEnd),
    /// The stream broke.
    #[error("the call broke: {0}")]
    Broken(#[from] io::Error),
    /// The stream ended before the message was complete.
    #[error("the stream ended before the message was complete")]
    Cut,
    /// There is no complete message after this time.
    #[error("no response within {} s", .0.as_secs_f64())]
    Late(Duration),
    /// What came is no JSON object.
    #[error(transparent)]
    NotAnObject(#[from] NotAnObject),
    /// What came is not the message that was expected.
    #[error(transparent)]
    MessageError(#[from] MessageError),
    /// The message has more than 1 MiB.
    #[error("a message of more than 1 MiB")]
    TooLong,
}

/// Calls the peer and waits at most `limit` for its answer.
///
/// # Errors
/// When no answer came, or none that can be read.
pub async fn call<T: RpcRequest>(
    session: &MuxSession,
    request: &T,
    limit: Duration,
) -> Result<T::Answer, RpcError> {
    let deadline = Instant::now() + limit;
    let open = timeout_at(deadline, open_stream(session, T::KIND, request)).await;
    let mut stream = open.unwrap_or(Err(RpcError::Late(limit)))?;
    match timeout_at(deadline, read_object(&mut stream)).await {
        Ok(answer) => Ok(decode_message(&answer?)?),
        Err(_) => {
            // Some agents never answer a command that they have no handler for.
            stream.reset(Code::CANCELLED);
            Err(RpcError::Late(limit))
        }
    }
}

/// Sends a message that has no answer.
///
/// # Errors
/// When the session is over.
pub async fn send_notification(session: &MuxSession, message: &StopTunnel) -> Result<(), RpcError> {
    // Dropping the stream ends it.
    open_stream(session, stream_kind::STOP_TUNNEL, message).await.map(drop)
}

async fn open_stream(
    session: &MuxSession,
    kind: u32,
    message: &impl Serialize,
) -> Result<Stream, RpcError> {
    let mut first = BytesMut::with_capacity(512).writer();
    first.get_mut().put_u32(kind);
    serde_json::to_writer(&mut first, message).map_err(MessageError::from)?;
    Ok(session.open_stream(first.into_inner().freeze()).await?)
}

/// A call of the peer.
pub struct IncomingCall {
    kind: u32,
    stream: Stream,
    message: BytesMut,
}

impl IncomingCall {
    /// Reads the message of a call, after the stream's kind; at most for five seconds.
    ///
    /// # Errors
    /// When there is no complete object.
    pub async fn read_message(kind: u32, mut stream: Stream) -> Result<Self, RpcError> {
        let limit = stream_kind::FIRST_BYTES;
        let read = timeout(limit, read_object(&mut stream)).await;
        let message = read.unwrap_or(Err(RpcError::Late(limit)))?;
        Ok(Self { kind, stream, message })
    }

    /// What the stream is for; see [`stream_kind`].
    pub fn kind(&self) -> u32 {
        self.kind
    }

    /// The message.
    ///
    /// # Errors
    /// When it is another one.
    pub fn decode_message<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        Ok(decode_message(&self.message)?)
    }

    /// Answers the call.
    ///
    /// # Errors
    /// When the caller is gone.
    pub async fn send_response(mut self, answer: &impl Serialize) -> Result<(), RpcError> {
        let text = serde_json::to_vec(answer).map_err(MessageError::from)?;
        // Callers read up to the end of the stream before they look at the answer.
        Ok(self.stream.send_last(&text).await?)
    }

    /// Answers the call with an error; see [`crate::protocol::message::error_text`].
    ///
    /// # Errors
    /// When the caller is gone.
    pub async fn send_error(self, text: impl Into<String>) -> Result<(), RpcError> {
        self.send_response(&CommandResponse::with_error(text)).await
    }
}

async fn read_object(stream: &mut Stream) -> Result<BytesMut, RpcError> {
    let mut message = BytesMut::new();
    let mut scanner = ObjectScanner::default();
    loop {
        let ended = stream.read_buf(&mut message).await? == 0;
        if let Some(end) = scanner.find_end(&message)? {
            message.truncate(end);
            return Ok(message);
        }
        if ended {
            return Err(RpcError::Cut);
        }
        if message.len() > MAX_MESSAGE_BYTES {
            return Err(RpcError::TooLong);
        }
    }
}

macro_rules! requests {
    ($($request:ty = $kind:ident -> $answer:ty;)+) => {
        $(impl RpcRequest for $request {
            const KIND: u32 = stream_kind::$kind;
            type Answer = $answer;
        })+
    };
}

requests! {
    Auth = AUTH -> AuthAnswer;
    Bind = BIND -> BindAnswer;
    BindLabeled = BIND_LABELED -> BindLabeledAnswer;
    Unbind = UNBIND -> CommandResponse;
    SrvInfo = SRV_INFO -> SrvInfoAnswer;
    PatchTunnelState = PATCH_TUNNEL_STATE -> CommandResponse;
    Restart = RESTART -> CommandResponse;
    Stop = STOP -> CommandResponse;
    Update = UPDATE -> CommandResponse;
}
