//! The socket of an agent, which acknowledges at once while the agent needs that.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use ginnel_base::logging::{ignore, or_debug};

/// Whether a socket acknowledges at once; shared with whoever learns that it need not.
pub type Prompt = Arc<AtomicBool>;

/// The socket of an agent.
///
/// Official agents hold back a small frame until the one before it was acknowledged, and the kernel
/// holds back acknowledgements: 40 ms for every exchange (tunnel protocol, section 9). Linux
/// forgets the setting now and then, so it is set again after every read.
pub struct AgentSocket {
    stream: TcpStream,
    prompt: Prompt,
}

impl AgentSocket {
    pub fn new(stream: TcpStream, prompt: Prompt) -> Self {
        // Frames are written whole; waiting for more to send only delays them.
        or_debug!(stream.set_nodelay(true), "cannot switch delays off");
        let socket = Self { stream, prompt };
        socket.enable_quickack();
        socket
    }

    fn enable_quickack(&self) {
        if self.prompt.load(Ordering::Relaxed) {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            ignore(
                socket2::SockRef::from(&self.stream).set_tcp_quickack(true),
                "without it things are slow, but right",
            );
        }
    }
}

impl AsyncRead for AgentSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.enable_quickack();
        }
        read
    }
}

impl AsyncWrite for AgentSocket {
    ginnel_base::forward_write!(stream);
}
