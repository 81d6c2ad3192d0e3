//! One visitor's pipe: requests of HTTP/1.1 come in, and each goes out on a stream of its own.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use h2::{Reason, SendStream};
use tokio::io::{AsyncReadExt, DuplexStream, ReadHalf, WriteHalf};

use ginnel_http1::Body;

use super::connection::{Http2Handle, Http2Lease, LocalHttp2Connection, describe_error};
use super::download::{self, DownloadError};
use super::heads::{self, Http2Request, UntranslatableRequest};
use super::upload::Upload;
use super::{FailureReason, socket};
use crate::relay::relayed_head::{self, RelayRequest};

/// How often a request is sent that the local service has not looked at.
const MAX_ATTEMPTS: usize = 3;

/// What becomes of the requests of one pipe.
pub(super) struct Translator {
    connection: Arc<LocalHttp2Connection>,
    shared: Http2Handle,
    /// Whether nobody has used the connection before.
    is_new: bool,
    read: ReadHalf<DuplexStream>,
    write: WriteHalf<DuplexStream>,
    buffer: BytesMut,
    problem: FailureReason,
}

/// How an attempt ended.
enum AttemptOutcome {
    /// With an answer; true when another request may follow.
    Answered(bool),
    /// The visitor is gone, or got a part of the answer.
    Over,
    /// Without an answer, for this reason; true when the request may be sent again.
    Unanswered(String, bool),
}

impl Translator {
    pub fn new(
        connection: Arc<LocalHttp2Connection>,
        lease: Http2Lease,
        pipe: DuplexStream,
        problem: FailureReason,
    ) -> Self {
        let (read, write) = tokio::io::split(pipe);
        let Http2Lease { shared, is_new } = lease;
        Self { connection, shared, is_new, read, write, buffer: BytesMut::new(), problem }
    }

    /// Answers one request after the other.
    pub async fn run(mut self) {
        while let Some((head, converted)) = self.next_head().await {
            let converted = match converted {
                Ok(converted) => converted,
                Err(problem) => return self.problem.set_reason(problem.to_string()),
            };
            if !self.serve_request(converted, &head).await {
                return;
            }
            self.is_new = false;
        }
    }

    /// The next head; none when the visitor is done, or the connection is.
    async fn next_head(
        &mut self,
    ) -> Option<(RelayRequest, Result<Http2Request, UntranslatableRequest>)> {
        let (scheme, authority) = (self.connection.scheme(), self.connection.authority());
        loop {
            let taken = relayed_head::take_request_as(&mut self.buffer, |head| {
                heads::translate_request(head, scheme, authority)
            });
            // The relay has found no fault with the same head.
            if let Some((request, converted, _)) = taken.ok()? {
                return Some((request, converted));
            }
            tokio::select! {
                biased;
                read = self.read.read_buf(&mut self.buffer) => match read {
                    Ok(1..) => {}
                    _ => return None,
                },
                // The relay opens another pipe then, or finds that it cannot.
                () = self.shared.wait_until_ended(), if self.buffer.is_empty() => return None,
            }
        }
    }

    /// Whether another request may follow.
    async fn serve_request(&mut self, converted: Http2Request, head: &RelayRequest) -> bool {
        let body = if converted.socket.is_some() { Body::NONE } else { head.body.clone() };
        let mut upload = Upload::new(body);
        for tries in 1.. {
            match self.attempt_request(&converted, head, &mut upload).await {
                AttemptOutcome::Answered(again) => return again,
                AttemptOutcome::Over => return false,
                AttemptOutcome::Unanswered(_, true) if tries < MAX_ATTEMPTS => {
                    match self.connection.acquire().await {
                        Ok(Http2Lease { shared, is_new }) => {
                            (self.shared, self.is_new) = (shared, is_new)
                        }
                        Err(error) => {
                            self.problem.set_reason(error.to_string());
                            return false;
                        }
                    }
                }
                AttemptOutcome::Unanswered(reason, _) => {
                    self.problem.set_reason(reason);
                    return false;
                }
            }
        }
        false
    }

    async fn attempt_request(
        &mut self,
        converted: &Http2Request,
        head: &RelayRequest,
        upload: &mut Upload,
    ) -> AttemptOutcome {
        if converted.socket.is_some() && !self.shared.takes_sockets() {
            let problem = "it speaks HTTP/2 without extended CONNECT (RFC 8441), which WebSockets \
                need there";
            return AttemptOutcome::Unanswered(problem.to_owned(), false);
        }
        let ends = upload.is_empty() && converted.socket.is_none();
        let (response, mut stream) =
            match self.shared.send_request(converted.request.clone(), ends).await {
                Ok(sent) => sent,
                Err(error) => return self.unanswered_outcome(&error, true, upload),
            };
        let answering = async {
            let answer = download::wait_for_head(response, &mut self.write).await?;
            if converted.socket.is_some() && answer.status().is_success() {
                return Ok(Some(answer));
            }
            download::relay_response(answer, head.is_head, &mut self.write).await.map(|()| None)
        };
        let answered = tokio::select! {
            biased;
            () = upload.run(&mut stream, &mut self.read, &mut self.buffer) => {
                stream.send_reset(Reason::CANCEL);
                return AttemptOutcome::Over;
            }
            answered = answering => answered,
        };
        match (answered, &converted.socket) {
            (Ok(Some(answer)), Some(key)) => {
                self.bridge_websocket(key, answer, stream).await;
                AttemptOutcome::Over
            }
            (Ok(_), _) => AttemptOutcome::Answered(upload.has_ended()),
            (Err(DownloadError::Unanswered(error)), _) => {
                self.unanswered_outcome(&error, head.is_idempotent && !self.is_new, upload)
            }
            (Err(DownloadError::CutOff(error)), _) => {
                self.problem.set_reason(describe_error(&error));
                AttemptOutcome::Over
            }
            (Err(DownloadError::Gone), _) => AttemptOutcome::Over,
        }
    }

    async fn bridge_websocket(
        &mut self,
        key: &http::HeaderValue,
        answer: http::Response<h2::RecvStream>,
        stream: SendStream<Bytes>,
    ) {
        let (parts, body) = answer.into_parts();
        let visitor = (&mut self.read, &mut self.write);
        socket::bridge_websocket(key, &parts.headers, (stream, body), visitor, &mut self.buffer)
            .await;
    }

    /// What follows from an error; `harmless` when the request could be sent to a new connection.
    fn unanswered_outcome(
        &self,
        error: &h2::Error,
        harmless: bool,
        upload: &Upload,
    ) -> AttemptOutcome {
        let again = is_refusal(error) || harmless && is_loss(error);
        AttemptOutcome::Unanswered(describe_error(error), again && upload.is_replayable())
    }
}

/// Whether the local service has not looked at the request (RFC 9113, section 8.7).
fn is_refusal(error: &h2::Error) -> bool {
    let by_stream = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    let by_goodbye = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
    error.is_remote() && (by_stream || by_goodbye)
}

/// Whether the connection was lost, with all that was under way on it.
fn is_loss(error: &h2::Error) -> bool {
    error.is_io() || error.is_go_away()
}
