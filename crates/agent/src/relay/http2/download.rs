//! An answer, on its way out of a stream.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::ResponseFuture;
use http::Response;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use ginnel_http1::write_last_chunk;

use super::heads::{self, Framing};

use ginnel_base::logging::ignore;

/// When so much is gathered, it is written.
const CHUNK_BYTES: usize = 32 * 1024;

/// What comes next of an answer.
pub(super) enum ResponseStart {
    /// A provisional one; others follow.
    Provisional(Response<()>),
    /// The final one.
    Final(Response<RecvStream>),
}

/// Why an answer is not whole.
#[derive(Debug)]
pub(super) enum DownloadError {
    /// The head never came.
    Unanswered(h2::Error),
    /// The rest never came.
    CutOff(h2::Error),
    /// The visitor is gone.
    Gone,
}

/// Waits for the final head and passes on the provisional ones.
pub(super) async fn wait_for_head(
    mut response: ResponseFuture,
    write: &mut (impl AsyncWrite + Unpin),
) -> Result<Response<RecvStream>, DownloadError> {
    loop {
        match next(&mut response).await.map_err(DownloadError::Unanswered)? {
            ResponseStart::Final(answer) => return Ok(answer),
            // HTTP/2 has no such answer.
            ResponseStart::Provisional(answer) if answer.status() == 101 => {}
            ResponseStart::Provisional(answer) => {
                let head =
                    heads::translate_response(answer.status(), answer.headers(), Framing::None);
                write.write_all(&head).await.map_err(|_| DownloadError::Gone)?;
            }
        }
    }
}

/// Writes an answer as HTTP/1.1.
pub(super) async fn relay_response(
    answer: Response<RecvStream>,
    to_head: bool,
    write: &mut (impl AsyncWrite + Unpin),
) -> Result<(), DownloadError> {
    let (parts, mut body) = answer.into_parts();
    let framing =
        Framing::for_response(parts.status, &parts.headers, to_head, body.is_end_stream());
    let mut output = heads::translate_response(parts.status, &parts.headers, framing);
    while framing.has_body() {
        let data = match next_ready_data(&mut body).await {
            Some(data) => data,
            None => {
                flush_output(&mut output, write).await?;
                body.data().await
            }
        };
        let Some(data) = data else { break };
        let data = match data {
            Ok(data) => data,
            // What came is passed on, so that it breaks off where it did.
            Err(error) => {
                flush_output(&mut output, write).await?;
                return Err(DownloadError::CutOff(error));
            }
        };
        framing.write_data(&data, &mut output);
        if output.len() >= CHUNK_BYTES {
            flush_output(&mut output, write).await?;
        }
        let released = body.flow_control().release_capacity(data.len());
        ignore(released, "a stream that has ended needs no window");
    }
    if framing == Framing::Chunked {
        let trailers = body.trailers().await.map_err(DownloadError::CutOff)?;
        write_last_chunk(trailers.unwrap_or_default().iter(), &mut output);
    }
    flush_output(&mut output, write).await
}

/// The data that has come already; none while nothing has.
async fn next_ready_data(body: &mut RecvStream) -> Option<Option<Result<Bytes, h2::Error>>> {
    poll_fn(|cx| {
        Poll::Ready(match body.poll_data(cx) {
            Poll::Ready(data) => Some(data),
            Poll::Pending => None,
        })
    })
    .await
}

async fn next(response: &mut ResponseFuture) -> Result<ResponseStart, h2::Error> {
    poll_fn(|cx| match response.poll_informational(cx) {
        Poll::Ready(Some(answer)) => Poll::Ready(answer.map(ResponseStart::Provisional)),
        Poll::Ready(None) => Pin::new(&mut *response).poll(cx).map_ok(ResponseStart::Final),
        // Asking for the final one now would lose a provisional one that comes in between.
        Poll::Pending => Poll::Pending,
    })
    .await
}

async fn flush_output(
    output: &mut Vec<u8>,
    write: &mut (impl AsyncWrite + Unpin),
) -> Result<(), DownloadError> {
    let written = write.write_all(output).await;
    output.clear();
    written.map_err(|_| DownloadError::Gone)
}
