//! Pairs of sessions, and a peer that speaks frames by hand.

use std::time::Duration;

use ginnel_mux::Code;
use ginnel_mux::Incoming;
use ginnel_mux::LoginLimits;
use ginnel_mux::MuxSession;
use ginnel_mux::SessionLimits;
use ginnel_mux::Side;
use ginnel_mux::Stream;
use ginnel_mux::frame;
use ginnel_mux::frame::Data;
use ginnel_mux::frame::Decoder;
use ginnel_mux::frame::FrameEvent;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

/// Longer than anything here takes, and short enough to end a test that hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Both ends of a session in memory.
pub struct Pair {
    pub agent: MuxSession,
    pub agent_incoming: Incoming,
    pub service: MuxSession,
    pub service_incoming: Incoming,
}

pub fn pair() -> Pair {
    let (left, right) = duplex(64 * 1024);
    let (agent, agent_incoming) = MuxSession::start(left, Side::Agent);
    let (service, service_incoming) = MuxSession::start(right, Side::Service);
    Pair { agent, agent_incoming, service, service_incoming }
}

impl Pair {
    /// A stream that the service opened, from both sides.
    pub async fn stream(&mut self) -> (Stream, Stream) {
        let opened = self.service.open_stream(Bytes::new()).await.unwrap();
        (opened, soon(self.agent_incoming.next()).await.unwrap())
    }
}

/// Waits, but not for ever.
pub async fn soon<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("something to happen in time")
}

/// Waits until `done` holds.
pub async fn until(mut done: impl FnMut() -> bool) {
    soon(async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// An agent that speaks frames by hand with a service.
pub struct Raw {
    pub io: DuplexStream,
    decoder: Decoder,
    input: BytesMut,
}

/// What a [`Raw`] peer hears, with the body of DATA in one piece.
#[derive(Debug, PartialEq, Eq)]
pub enum EventDelivery {
    Data { stream: u32, syn: bool, fin: bool, body: Vec<u8> },
    Reset(u32, Code),
    Window(u32, u32),
    GoAway(Code),
    Closed,
}

impl Raw {
    pub fn start() -> (Self, MuxSession, Incoming) {
        Self::start_with(SessionLimits::for_side(Side::Service))
    }

    pub fn start_with(limits: SessionLimits) -> (Self, MuxSession, Incoming) {
        let (left, right) = duplex(64 * 1024);
        let (session, incoming) = MuxSession::start_with(right, Side::Service, limits);
        let raw = Self { io: left, decoder: Decoder::default(), input: BytesMut::new() };
        (raw, session, incoming)
    }

    /// An agent that has not authenticated.
    pub fn unauthenticated() -> (Self, MuxSession, Incoming) {
        let (left, right) = duplex(64 * 1024);
        let login = LoginLimits::default();
        let (session, incoming) = MuxSession::start_unauthenticated(right, Side::Service, login);
        let raw = Self { io: left, decoder: Decoder::default(), input: BytesMut::new() };
        (raw, session, incoming)
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        soon(self.io.write_all(bytes)).await.unwrap();
    }

    pub async fn data(&mut self, stream: u32, flags: &str, body: &[u8]) {
        let mut frame = Vec::new();
        frame::put_data(&mut frame, stream, flags.contains("syn"), flags.contains("fin"), body);
        self.send(&frame).await;
    }

    /// True when nothing arrives for a moment.
    pub async fn hears_nothing(&mut self) -> bool {
        let moment = Duration::from_millis(30);
        self.input.is_empty() && timeout(moment, self.io.read_buf(&mut self.input)).await.is_err()
    }

    pub async fn hear(&mut self) -> EventDelivery {
        match self.event().await {
            None => EventDelivery::Closed,
            Some(FrameEvent::Data(data)) => self.body(data).await,
            Some(FrameEvent::Reset { stream, code }) => EventDelivery::Reset(stream, code),
            Some(FrameEvent::Window { stream, increment }) => {
                EventDelivery::Window(stream, increment)
            }
            Some(FrameEvent::GoAway { code, .. }) => EventDelivery::GoAway(code),
            Some(FrameEvent::Piece { .. }) => unreachable!("pieces belong to data"),
        }
    }

    async fn body(&mut self, data: Data) -> EventDelivery {
        let mut body = Vec::new();
        while body.len() < data.length {
            match self.event().await {
                Some(FrameEvent::Piece { bytes, .. }) => body.extend_from_slice(&bytes),
                other => panic!("{other:?} inside a body"),
            }
        }
        EventDelivery::Data { stream: data.stream, syn: data.syn, fin: data.fin, body }
    }

    async fn event(&mut self) -> Option<FrameEvent> {
        loop {
            if let Some(event) = self.decoder.next(&mut self.input).unwrap() {
                return Some(event);
            }
            if soon(self.io.read_buf(&mut self.input)).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }
}

pub fn fin(stream: u32) -> EventDelivery {
    EventDelivery::Data { stream, syn: false, fin: true, body: Vec::new() }
}
