//! A visitor's connection for as long as all of its requests go the short way.

use std::future::{Future, poll_fn};
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::gateway::http::connection::Reception;
use crate::gateway::http::error_response::{self, Fault};
use crate::gateway::http::fast_path::request::{self, Found, Plain};
use crate::gateway::http::fast_path::response::{self, Broken, Head, Terms};
use crate::gateway::http::fast_path::response_timeout::Patience;
use crate::gateway::http::fast_path::upstream_connection::RawLink;
use crate::gateway::http::visitor_stream::Line;
use crate::gateway::routing::target::Through;
use crate::gateway::upstream::forward::{Upstream, within};
use crate::http1::Body;
use crate::reuse::IdleState;

/// How long a head may be; a longer one goes the long way.
const LONGEST_HEAD: usize = 16 << 10;
/// How much is read of later requests while one is under way.
const AHEAD: usize = 64 << 10;
/// How large the buffers are that a connection keeps.
const SLIM: usize = 8 << 10;
/// When so much came at once, more is taken at once from then on.
const MUCH: usize = SLIM / 2;
/// How much is taken at once of an answer that comes fast.
const PIECE: usize = 64 << 10;
/// What is shorter is sent together with the head before it.
const SHORT: usize = 16 << 10;
/// How many provisional answers may come before the final one.
const PROVISIONAL: usize = 64;

/// A visitor's connection for as long as all of its requests go the short way.
pub(crate) struct Lane<'l> {
    reception: &'l Reception,
    line: &'l mut Line,
    /// True when the connection is to close after the request that is under way.
    closes: &'l AtomicBool,
    /// What was read of the visitor and not used yet.
    buffer: BytesMut,
    /// What was read of the agent and not used yet.
    answer: BytesMut,
    /// What is written next.
    out: Vec<u8>,
    patience: Patience,
}

/// How serving on the short way ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// The rest of the connection is for the long way.
    Rest,
    /// It is over, and everybody knows.
    Over,
    /// It was cut off, and that is how it shall look.
    Cut,
}

/// How an exchange ended.
enum Done {
    /// Well: another may follow.
    Well,
    /// Before anything of it was done that may not be done again.
    NotBegun,
    /// Badly: the connection is of no more use.
    Badly,
}

/// Why there is no head of an answer.
enum Missing {
    /// The agent closed without a byte.
    Silent,
    /// It closed early, or said something that is no HTTP.
    Broken,
    /// It took too long.
    Late,
    /// The visitor has left.
    Left,
}

/// What was heard while more of an answer is waited for.
enum Heard {
    /// So many bytes of the agent; none at its end.
    Answer(usize),
    /// The visitor has left.
    Left,
    /// Nothing, for too long.
    Late,
}

impl<'l> Lane<'l> {
    pub(crate) fn new(
        reception: &'l Reception,
        line: &'l mut Line,
        closes: &'l AtomicBool,
    ) -> Self {
        let patience = Patience::new(reception.think());
        let (buffer, answer) = (BytesMut::new(), BytesMut::new());
        Self { reception, line, closes, buffer, answer, out: Vec::new(), patience }
    }

    /// Serves requests for as long as they are plain.
    pub(crate) async fn run(mut self) -> Left {
        loop {
            let request = match self.next().await {
                Ok(Some(request)) => request,
                Ok(None) if self.buffer.is_empty() => return Left::Over,
                Ok(None) => return self.leave(),
                Err(_) => return Left::Cut,
            };
            let done = match self.way(&request) {
                Some((upstream, through)) => self.exchange(&request, &upstream, through).await,
                None => Done::NotBegun,
            };
            match done {
                Done::NotBegun => return self.leave(),
                Done::Well if self.closes(&request) => return Left::Over,
                Done::Well => self.buffer.advance(request.length),
                Done::Badly => return Left::Cut,
            }
            self.slim();
        }
    }

    /// Leaves what was read to others.
    fn leave(self) -> Left {
        self.line.put_back(self.buffer);
        Left::Rest
    }

    /// Where a request goes, where that is all there is to do.
    fn way(&self, request: &Plain) -> Option<(Upstream, Through)> {
        if request.is_forwarded && self.reception.trusts_peer() {
            return None;
        }
        let text = |place: &Range<usize>| str::from_utf8(self.buffer.get(place.clone())?).ok();
        self.reception.short(text(&request.host)?, text(&request.path)?)
    }

    /// The next request; none when it is not plain, or there is no more.
    async fn next(&mut self) -> io::Result<Option<Plain>> {
        loop {
            match request::look(&self.buffer) {
                Found::Plain(request) => return Ok(Some(request)),
                Found::Part if self.buffer.len() < LONGEST_HEAD => {}
                _ => return Ok(None),
            }
            self.buffer.reserve(MUCH);
            if self.line.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    async fn exchange(&mut self, request: &Plain, upstream: &Upstream, through: Through) -> Done {
        // From here on a graceful stop waits for the answer.
        let _answering = self.reception.answering();
        let visitor = self.reception.visitor();
        let named = upstream.named(visitor, &through);
        let mut link = match upstream.pool.raw.take(named.as_ref()) {
            Some(link) => link,
            None => match within(upstream.dial(visitor, &through)).await {
                Ok(Ok(io)) => RawLink::new(io, named),
                _ => return Done::NotBegun,
            },
        };
        let head = match self.ask(request, &mut link).await {
            Ok(head) => head,
            // The agent closed a connection that it had kept, just as it was used.
            Err(Missing::Silent) if link.is_used() && request.is_safe => return Done::NotBegun,
            Err(Missing::Silent) if !link.is_used() => {
                return self.fail(request, error_response::UNREACHABLE).await;
            }
            Err(Missing::Silent | Missing::Broken) => {
                return self.fail(request, error_response::BROKEN).await;
            }
            Err(Missing::Late) => return self.fail(request, error_response::LATE).await,
            Err(Missing::Left) => return Done::Badly,
        };
        if head.body.check(&self.answer).is_err() {
            return self.fail(request, error_response::BROKEN).await;
        }
        if self.pass_on(head.body, &mut link).await.is_err() {
            return Done::Badly;
        }
        if upstream.pool.permits(IdleState::after(&self.answer)) && head.keep_alive {
            link.rest();
            upstream.pool.raw.put(link);
        }
        Done::Well
    }

    fn closes(&self, request: &Plain) -> bool {
        request.closes || self.closes.load(Relaxed)
    }

    fn terms(&self, request: &Plain) -> Terms<'l> {
        Terms {
            to_head: request.is_head,
            closes: self.closes(request),
            code_prefix: self.reception.code_prefix(),
        }
    }

    /// Answers for the agent.
    async fn fail(&mut self, request: &Plain, fault: Fault) -> Done {
        self.out.clear();
        response::of(fault, self.terms(request), &mut self.out);
        match self.say(0, b"").await {
            Ok(()) => Done::Well,
            Err(_) => Done::Badly,
        }
    }

    /// Sends a request, and reads the head of the final answer, which lies in `out` then.
    async fn ask(&mut self, request: &Plain, link: &mut RawLink) -> Result<Head, Missing> {
        self.out.clear();
        self.answer.clear();
        request::rewrite(&self.buffer, request, self.reception.origin(), &mut self.out);
        link.io.write_all(&self.out).await.map_err(|_| Missing::Silent)?;
        link.io.flush().await.map_err(|_| Missing::Silent)?;
        self.out.clear();
        self.patience.begin();
        let mut provisional = 0;
        loop {
            match response::read(&self.answer, self.terms(request), &mut self.out) {
                Ok(None) => self.hear_of(link, provisional).await?,
                Ok(Some(head)) if head.status >= 200 => {
                    self.answer.advance(head.length);
                    return Ok(head);
                }
                // Nobody has asked for another protocol.
                Ok(Some(Head { status: 101, .. })) | Err(Broken) => return Err(Missing::Broken),
                Ok(Some(head)) => {
                    self.answer.advance(head.length);
                    provisional += 1;
                    if provisional > PROVISIONAL {
                        return Err(Missing::Broken);
                    }
                }
            }
        }
    }

    /// Waits for more of a head.
    async fn hear_of(&mut self, link: &mut RawLink, provisional: usize) -> Result<(), Missing> {
        match self.hear(link, true).await {
            Ok(Heard::Answer(1..)) => Ok(()),
            Ok(Heard::Left) => Err(Missing::Left),
            Ok(Heard::Late) => Err(Missing::Late),
            _ if self.answer.is_empty() && provisional == 0 => Err(Missing::Silent),
            _ => Err(Missing::Broken),
        }
    }

    /// Waits for more of the answer; meanwhile it is seen that the visitor leaves.
    async fn hear(&mut self, link: &mut RawLink, limited: bool) -> io::Result<Heard> {
        let Self { line, buffer, answer, patience, .. } = self;
        answer.reserve(MUCH);
        poll_fn(|cx| {
            if let Poll::Ready(heard) = pin!(link.io.read_buf(answer)).poll(cx) {
                return Poll::Ready(heard.map(Heard::Answer));
            }
            while buffer.len() < AHEAD && !line.has_refused() {
                buffer.reserve(MUCH);
                match pin!(line.read_buf(buffer)).poll(cx) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) if line.has_refused() => {}
                    Poll::Ready(_) => return Poll::Ready(Ok(Heard::Left)),
                    Poll::Pending => break,
                }
            }
            if limited && patience.poll(cx).is_ready() {
                return Poll::Ready(Ok(Heard::Late));
            }
            Poll::Pending
        })
        .await
    }

    /// Passes the answer on: its head, which lies in `out`, and its body.
    async fn pass_on(&mut self, mut body: Body, link: &mut RawLink) -> io::Result<()> {
        let chunks = body == Body::UntilClose;
        loop {
            let taken = body.take(&self.answer, |_| {}).map_err(|_| io::ErrorKind::InvalidData)?;
            let framed = chunks && taken > 0;
            if framed {
                self.out.extend_from_slice(format!("{taken:x}\r\n").as_bytes());
            }
            self.say(taken, if framed { b"\r\n" } else { b"" }).await?;
            if body.is_done() {
                return Ok(());
            }
            if taken >= MUCH {
                self.answer.reserve(PIECE);
            }
            match self.hear(link, false).await? {
                Heard::Answer(1..) => {}
                Heard::Answer(0) if chunks => return self.say(0, b"0\r\n\r\n").await,
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Sends what lies in `out`, so much of the answer, and an ending.
    async fn say(&mut self, taken: usize, ending: &[u8]) -> io::Result<()> {
        let piece = self.answer.get(..taken).unwrap_or_default();
        if self.out.is_empty() && ending.is_empty() {
            self.line.write_all(piece).await?;
        } else if taken <= SHORT {
            self.out.extend_from_slice(piece);
            self.out.extend_from_slice(ending);
            self.line.write_all(&self.out).await?;
        } else {
            self.line.write_all(&self.out).await?;
            self.line.write_all(piece).await?;
            self.line.write_all(ending).await?;
        }
        self.out.clear();
        self.answer.advance(taken);
        self.line.flush().await
    }

    /// Gives large buffers back, so that a connection that waits holds little.
    fn slim(&mut self) {
        for buffer in [&mut self.buffer, &mut self.answer] {
            if buffer.is_empty() && buffer.capacity() > SLIM {
                *buffer = BytesMut::new();
            }
        }
        self.out.shrink_to(SLIM);
    }
}
