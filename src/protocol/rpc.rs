//! Calls: one stream each, with a message there and a message back.

use std::io;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout, timeout_at};

use crate::mux::{Code, Session, SessionEnd, Stream};
use crate::protocol::json_object::{NotAnObject, ObjectScanner};
use crate::protocol::message::{
    Answer, Auth, AuthAnswer, Bind, BindAnswer, BindLabeled, BindLabeledAnswer, MessageError,
    PatchTunnelState, Restart, SrvInfo, SrvInfoAnswer, Stop, StopTunnel, Unbind, Update, decode,
};
use crate::protocol::stream_kind;

/// A longer message is refused.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// A message that opens a stream and is answered by another.
pub trait Request: Serialize + DeserializeOwned {
    /// The first four bytes of its stream.
    const KIND: u32;
    /// What comes back.
    type Answer: Serialize + DeserializeOwned;
}

/// Why a call failed. An answer that holds an error is an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    #[error("no answer within {} s", .0.as_secs_f64())]
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
pub async fn call<T: Request>(
    session: &Session,
    request: &T,
    limit: Duration,
) -> Result<T::Answer, Error> {
    let deadline = Instant::now() + limit;
    let open = timeout_at(deadline, open(session, T::KIND, request)).await;
    let mut stream = open.unwrap_or(Err(Error::Late(limit)))?;
    match timeout_at(deadline, read_object(&mut stream)).await {
        Ok(answer) => Ok(decode(&answer?)?),
        Err(_) => {
            // Some agents never answer a command that they have no handler for.
            stream.reset(Code::CANCELLED);
            Err(Error::Late(limit))
        }
    }
}

/// Sends a message that has no answer.
///
/// # Errors
/// When the session is over.
pub async fn tell(session: &Session, message: &StopTunnel) -> Result<(), Error> {
    // Dropping the stream ends it.
    open(session, stream_kind::STOP_TUNNEL, message).await.map(drop)
}

async fn open(session: &Session, kind: u32, message: &impl Serialize) -> Result<Stream, Error> {
    let mut first = BytesMut::with_capacity(512).writer();
    first.get_mut().put_u32(kind);
    serde_json::to_writer(&mut first, message).map_err(MessageError::from)?;
    Ok(session.open(first.into_inner().freeze()).await?)
}

/// A call of the peer.
pub struct Call {
    kind: u32,
    stream: Stream,
    message: BytesMut,
}

impl Call {
    /// Reads the message of a call, after the stream's kind; at most for five seconds.
    ///
    /// # Errors
    /// When there is no complete object.
    pub async fn read(kind: u32, mut stream: Stream) -> Result<Self, Error> {
        let limit = stream_kind::FIRST_BYTES;
        let read = timeout(limit, read_object(&mut stream)).await;
        let message = read.unwrap_or(Err(Error::Late(limit)))?;
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
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Error> {
        Ok(decode(&self.message)?)
    }

    /// Answers the call.
    ///
    /// # Errors
    /// When the caller is gone.
    pub async fn answer(mut self, answer: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_vec(answer).map_err(MessageError::from)?;
        // Callers read up to the end of the stream before they look at the answer.
        Ok(self.stream.send_last(&text).await?)
    }

    /// Answers the call with an error; see [`crate::protocol::message::error_text`].
    ///
    /// # Errors
    /// When the caller is gone.
    pub async fn refuse(self, text: impl Into<String>) -> Result<(), Error> {
        self.answer(&Answer::refused(text)).await
    }
}

async fn read_object(stream: &mut Stream) -> Result<BytesMut, Error> {
    let mut message = BytesMut::new();
    let mut scanner = ObjectScanner::default();
    loop {
        let ended = stream.read_buf(&mut message).await? == 0;
        if let Some(end) = scanner.end(&message)? {
            message.truncate(end);
            return Ok(message);
        }
        if ended {
            return Err(Error::Cut);
        }
        if message.len() > MAX_MESSAGE_BYTES {
            return Err(Error::TooLong);
        }
    }
}

macro_rules! requests {
    ($($request:ty = $kind:ident -> $answer:ty;)+) => {
        $(impl Request for $request {
            const KIND: u32 = stream_kind::$kind;
            type Answer = $answer;
        })+
    };
}

requests! {
    Auth = AUTH -> AuthAnswer;
    Bind = BIND -> BindAnswer;
    BindLabeled = BIND_LABELED -> BindLabeledAnswer;
    Unbind = UNBIND -> Answer;
    SrvInfo = SRV_INFO -> SrvInfoAnswer;
    PatchTunnelState = PATCH_TUNNEL_STATE -> Answer;
    Restart = RESTART -> Answer;
    Stop = STOP -> Answer;
    Update = UPDATE -> Answer;
}
