//! A socket as the drivers use it: each read and write says whether it may wait.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::time::Duration;

use ginnel_base::logging::ignore;
#[cfg(not(unix))]
use ginnel_base::logging::or_debug;
use ginnel_http1::reuse::IdleState;

/// How long a read or a write waits at most before its driver looks at the time, and asks whether
/// the caller still waits.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What moves the bytes of a connection.
pub(super) trait SocketIo {
    /// Sends what can be sent now; with `wait`, what can be sent within a tick.
    fn send(&mut self, bytes: &[u8], wait: bool) -> io::Result<usize>;
    /// Receives what is there; with `wait`, what arrives within a tick.
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize>;
    /// Whether something is there to be received, which stays there.
    fn idle_state(&mut self) -> IdleState;
}

/// A TCP socket whose calls wait for a tick.
#[derive(Debug)]
pub(super) struct ClientSocket {
    socket: socket2::Socket,
    /// Which reactor is told when something arrives.
    #[cfg(unix)]
    pub registration: Option<super::registration::ReactorRegistration>,
}

impl ClientSocket {
    /// A connected socket.
    pub fn new(socket: socket2::Socket) -> io::Result<Self> {
        socket.set_tcp_nodelay(true)?;
        socket.set_read_timeout(Some(POLL_INTERVAL))?;
        socket.set_write_timeout(Some(POLL_INTERVAL))?;
        Ok(Self {
            socket,
            #[cfg(unix)]
            registration: None,
        })
    }

    /// Has no reactor told any more.
    #[cfg(unix)]
    pub fn leave_reactor(&mut self) {
        if let Some(registration) = self.registration.take() {
            registration.deregister_socket(&self.socket);
        }
    }

    /// Returns true if the socket is connected to this machine.
    pub fn is_loopback(&self) -> bool {
        let peer = self.socket.peer_addr().ok().and_then(|peer| peer.as_socket());
        peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// Waits until something arrives, but not for longer than this.
    pub fn wait_readable(&self, limit: Duration) {
        #[cfg(unix)]
        {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
            let polled = Timespec::try_from(limit).map(|limit| poll(&mut waiting, Some(&limit)));
            ignore(polled, "what is wrong with the socket shows when it is read");
        }
        #[cfg(not(unix))]
        {
            let waited = self
                .socket
                .set_read_timeout(Some(limit.max(Duration::from_millis(1))))
                .and_then(|()| self.socket.peek(as_uninit(&mut [0])));
            let reset = self.socket.set_read_timeout(Some(POLL_INTERVAL));
            ignore((waited, reset), "what is wrong with the socket shows when it is read");
        }
    }

    /// The socket, for another way to wait.
    pub fn into_inner(self) -> socket2::Socket {
        self.socket
    }
}

#[cfg(unix)]
impl std::os::fd::AsRawFd for ClientSocket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}

/// Bytes that were written before may be overwritten.
fn as_uninit(buffer: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: both have the same layout, and what receives into it writes only whole bytes.
    unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) }
}

#[cfg(unix)]
mod flags {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub const SEND: i32 = libc::MSG_NOSIGNAL;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub const SEND: i32 = 0;
    pub const NO_WAIT: i32 = libc::MSG_DONTWAIT;
    pub const PEEK: i32 = libc::MSG_PEEK;
}

#[cfg(unix)]
impl SocketIo for ClientSocket {
    fn send(&mut self, bytes: &[u8], wait: bool) -> io::Result<usize> {
        let no_wait = if wait { 0 } else { flags::NO_WAIT };
        self.socket.send_with_flags(bytes, flags::SEND | no_wait)
    }

    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        let no_wait = if wait { 0 } else { flags::NO_WAIT };
        self.socket.recv_with_flags(as_uninit(buffer), no_wait)
    }

    fn idle_state(&mut self) -> IdleState {
        let flags = flags::PEEK | flags::NO_WAIT;
        classify_peek(self.socket.recv_with_flags(as_uninit(&mut [0]), flags))
    }
}

#[cfg(not(unix))]
impl SocketIo for ClientSocket {
    fn send(&mut self, bytes: &[u8], wait: bool) -> io::Result<usize> {
        let _mode = NoWait::unless(wait, &self.socket)?;
        self.socket.send(bytes)
    }

    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        let _mode = NoWait::unless(wait, &self.socket)?;
        self.socket.recv(as_uninit(buffer))
    }

    fn idle_state(&mut self) -> IdleState {
        let peeked = NoWait::unless(false, &self.socket)
            .and_then(|_mode| self.socket.peek(as_uninit(&mut [0])));
        classify_peek(peeked)
    }
}

/// A socket that does not wait, for as long as this lives.
#[cfg(not(unix))]
struct NoWait<'a>(Option<&'a socket2::Socket>);

#[cfg(not(unix))]
impl<'a> NoWait<'a> {
    fn nonblocking_unless(wait: bool, socket: &'a socket2::Socket) -> io::Result<Self> {
        if wait {
            return Ok(Self(None));
        }
        socket.set_nonblocking(true)?;
        Ok(Self(Some(socket)))
    }
}

#[cfg(not(unix))]
impl Drop for NoWait<'_> {
    fn drop(&mut self) {
        // A socket that stays like this fails at its next use, which is then told.
        let blocking = self.0.map_or(Ok(()), |socket| socket.set_nonblocking(false));
        or_debug!(blocking, "a socket stays as it is");
    }
}

/// What a look at an idle connection says.
pub(super) fn classify_peek(peeked: io::Result<usize>) -> IdleState {
    match peeked {
        Ok(0) => IdleState::Closed,
        Ok(_) => IdleState::Surplus,
        Err(error) if is_not_ready(&error) => IdleState::Quiet,
        Err(_) => IdleState::Closed,
    }
}

/// Whether a read or a write has nothing to tell but that it is not ready, or was interrupted.
pub(super) fn is_not_ready(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Sends all of it while ticks pass and `check` lets it.
pub(super) fn send_all(
    socket: &mut ClientSocket,
    mut bytes: &[u8],
    check: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.send(bytes, true) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(error) if is_not_ready(&error) => check()?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads and writes that last until `check` ends them.
pub(super) struct CancellableStream<'a> {
    pub socket: &'a mut ClientSocket,
    pub check: &'a mut dyn FnMut() -> io::Result<()>,
}

impl io::Read for CancellableStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.receive(buffer, true) {
                Err(error) if is_not_ready(&error) => (self.check)()?,
                outcome => return outcome,
            }
        }
    }
}

impl Write for CancellableStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        send_all(self.socket, bytes, self.check)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
