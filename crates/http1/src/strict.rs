//! A stream that lets nothing through that two readers could understand differently, for APIs that have
//! their requests read by hyper.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::request::{Expects, RequestFraming};

/// How much of what nobody will read is taken before the connection closes, in bytes.
const MAX_DRAINED_BYTES: usize = 256 << 10;

/// What a parser gets in the place of what is ambiguous: a NUL, which no head, size of a chunk or
/// trailer may hold, and a bare line feed, which no extension of a chunk may hold, where hyper takes
/// all but that. It may not look at the bytes before a head is complete, as it seems to be then.
const INVALID: &[u8] = b"\0\n\r\n\r\n";

/// A connection on which somebody sends requests.
///
/// What is ambiguous is not passed on: the parser behind gets something invalid in its place,
/// answers 400 and closes. One empty line before a request is taken out.
#[derive(Debug)]
pub struct StrictStream<S> {
    stream: S,
    framing: RequestFraming,
    /// What is left of [`INVALID`], once something ambiguous has come.
    refused: Option<&'static [u8]>,
    drained: usize,
    closed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> StrictStream<S> {
    /// A connection on which nothing was sent.
    pub fn new(stream: S) -> Self {
        let framing = RequestFraming::default();
        Self { stream, framing, refused: None, drained: 0, closed: false }
    }

    /// What has to be sent next.
    pub fn expected_part(&self) -> Expects {
        self.framing.expected_part()
    }

    /// True when something ambiguous has come, so that nothing more is read.
    pub fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Follows what was read behind the first bytes of a buffer.
    fn follow_read(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let news = buffer.filled_mut().get_mut(before..).unwrap_or_default();
        match self.framing.feed(news) {
            Ok(left) => buffer.set_filled(before + left),
            Err(error) => {
                buffer.set_filled(before + error.fine);
                self.refused = Some(INVALID);
                self.put_invalid(buffer);
            }
        }
    }

    /// Gives as much of what is invalid as there is room for; afterwards there is nothing more.
    fn put_invalid(&mut self, buffer: &mut ReadBuf<'_>) {
        if let Some(left) = &mut self.refused {
            let (now, later) = left.split_at(left.len().min(buffer.remaining()));
            buffer.put_slice(now);
            *left = later;
        }
    }

    /// Takes what is still sent: closing on unread bytes would destroy the answer.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 4096];
        while self.drained < MAX_DRAINED_BYTES {
            let mut buffer = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            self.drained += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for StrictStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if this.has_refused() {
            this.put_invalid(buffer);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
            if buffer.filled().len() == before {
                break;
            }
            this.follow_read(buffer, before);
            // Where an empty line was all there was, nothing has come so far.
            if buffer.filled().len() > before {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for StrictStream<S> {
    ginnel_base::forward_write!(stream: poll_write poll_write_vectored is_write_vectored poll_flush);

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.closed {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.closed = true;
        }
        let unread = this.has_refused() || this.expected_part() != Expects::Nothing;
        if unread { this.poll_drain(cx) } else { Poll::Ready(Ok(())) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::rc::Rc;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Empty};
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The status that hyper answers behind a strict stream, and how many whole requests it reads.
    async fn answered(text: &str) -> (Option<u16>, usize) {
        let (mut visitor, socket) = tokio::io::duplex(1 << 16);
        visitor.write_all(text.as_bytes()).await.unwrap();
        visitor.shutdown().await.unwrap();
        let requests = Rc::new(Cell::new(0));
        let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
            let requests = Rc::clone(&requests);
            async move {
                if request.into_body().collect().await.is_ok() {
                    requests.set(requests.get() + 1);
                }
                Ok::<_, Infallible>(hyper::Response::new(Empty::<Bytes>::new()))
            }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.half_close(true);
        // How the connection ends is in the answer.
        let _ = builder.serve_connection(TokioIo::new(StrictStream::new(socket)), service).await;
        let mut answer = String::new();
        visitor.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).map(|status| status.parse().unwrap());
        (status, requests.get())
    }

    #[tokio::test]
    async fn what_is_ambiguous_is_no_request_for_the_parser_behind() {
        for (section, head) in [
            ("2.2", "GET / HTTP/1.1\nHost: a\r\n\r\n"),
            ("2.2", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"),
            ("5.1", "GET / HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n"),
            ("5.2", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n"),
            ("6.1", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            ("6.3", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na"),
        ] {
            assert_eq!(answered(head).await, (Some(400), 0), "section {section}: {head:?}");
        }
        for body in
            ["0;,", "1;,\r\na\r\n0", "0;a=", "0;a=\"\r\n\"", "0\r\nX", "0\r\nX: a\rb", "0x", "-0"]
        {
            let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            let (_, requests) = answered(&format!("{head}{body}\r\n\r\n")).await;
            assert_eq!(requests, 0, "section 7.1: {body:?}");
        }
    }

    #[tokio::test]
    async fn what_is_plain_goes_on() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let post = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let text = format!("\r\n{get}{post}1;a=b\r\na\r\n0\r\nX: y\r\n\r\n\r\n{get}");
        assert_eq!(answered(&text).await, (Some(200), 3));
    }
}
