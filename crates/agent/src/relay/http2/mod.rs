//! Local services that speak HTTP/2.
//!
//! The relay speaks HTTP/1.1 to every local service, so that captures and replays are the bytes that
//! passed it. Towards a service that speaks HTTP/2, it has the end of a pipe in hand, and behind that
//! stands a translator (`translator`) for each visitor: it makes a stream of every request
//! (`upload`) and HTTP/1.1 of what comes back (`download`); `heads` knows what their heads become.
//! All translators share one connection (`connection`). WebSockets pass by extended CONNECT (`socket`).

mod connection;
mod download;
mod heads;
mod socket;
mod translator;
mod upload;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, DuplexStream, ReadBuf, ReadHalf};

use super::io::PIPE_BYTES;
use super::quick_ack::ResponseWait;
use super::{LocalReset, LocalStream};
pub use connection::LocalHttp2Connection;
use ginnel_http1::reuse::ReuseBan;
use translator::Translator;

/// Opens a pipe to a translator; the shared connection is there then.
///
/// # Errors
/// When the local service cannot be reached, or does not speak HTTP/2.
pub(super) async fn connect_translator(
    connection: &Arc<LocalHttp2Connection>,
) -> io::Result<LocalStream> {
    let lease = connection.acquire().await?;
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let problem = FailureReason::default();
    tokio::spawn(Translator::new(connection.clone(), lease, theirs, problem.clone()).run());
    let (read, write) = tokio::io::split(ours);
    let read = PipeReader { read, problem };
    let (read, write) = (Box::pin(read), Box::pin(write));
    // HTTP/2 tells answers apart by their streams; nobody else is on the pipe.
    Ok(LocalStream {
        read,
        write,
        response_wait: ResponseWait::default(),
        ban: ReuseBan::default(),
        reset: LocalReset::default(),
    })
}

/// Why a translator ended without a response, once it did.
#[derive(Debug, Clone, Default)]
struct FailureReason(Arc<Mutex<Option<String>>>);

impl FailureReason {
    fn set_reason(&self, reason: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The reading half of a pipe, which ends with the translator's problem where there is one.
struct PipeReader {
    read: ReadHalf<DuplexStream>,
    problem: FailureReason,
}

impl AsyncRead for PipeReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.read).poll_read(cx, buffer))?;
        if buffer.filled().len() == before
            && let Some(reason) = self.problem.take()
        {
            return Poll::Ready(Err(io::Error::other(reason)));
        }
        Poll::Ready(Ok(()))
    }
}
