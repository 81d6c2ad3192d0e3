//! Whether a connection to an upstream may carry another request; every pool asks here. How an idle connection is
//! looked at is the matter of its owner, but for what the service and the agent share.
//!
//! HTTP/1.1 assigns answers to requests by their order alone (RFC 9112, section 9.3). What an upstream
//! sends after the end of an answer, a body after HEAD for instance, would be taken for the answer to
//! the next request, which may be that of somebody else. So a connection is closed, never reused, when
//! more was read than the answer, or when it becomes readable while it is idle.
//!
//! Surplus that arrives after the next request was sent cannot be told from the answer to that. So an
//! upstream that was seen to send surplus gets a new connection for each request, for
//! `REUSE_BAN_SECONDS`. What remains is an upstream that was never seen to do it, or not lately, and
//! whose surplus arrives late enough to meet the next request on its way.
//!
//! Many local services serve one connection at a time, and wait for its next request while others connect. So idle
//! connections to an upstream are given up when a new connection to it gets no response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// For how many seconds no connection to an upstream is reused after it sent surplus.
const REUSE_BAN_SECONDS: u64 = 60;

/// What an idle connection looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleState {
    /// Nothing arrived, as it should be.
    Quiet,
    /// The upstream has closed it, or it failed.
    Closed,
    /// Bytes arrived that nobody asked for.
    Surplus,
}

/// Forbids to reuse connections to one upstream for a while; clones share it.
#[derive(Debug, Clone)]
pub struct ReuseBan(Arc<BanState>);

#[derive(Debug)]
struct BanState {
    created: Instant,
    /// In milliseconds since `created`; zero when there was never a ban.
    end_ms: AtomicU64,
    /// The number of new connections that have had no response for too long.
    starving: AtomicUsize,
    /// Notified when idle connections are given up.
    given_up: Notify,
}

impl Default for ReuseBan {
    fn default() -> Self {
        Self(Arc::new(BanState {
            created: Instant::now(),
            end_ms: AtomicU64::new(0),
            starving: AtomicUsize::new(0),
            given_up: Notify::new(),
        }))
    }
}

impl ReuseBan {
    /// Whether a connection may carry another request; one with surplus starts the ban.
    pub fn permits_reuse(&self, state: IdleState) -> bool {
        if state == IdleState::Surplus {
            self.start_at(Instant::now());
        }
        state == IdleState::Quiet && !self.is_active() && !self.is_starving()
    }

    /// Returns true if a new connection has had no response for too long, so that none may become idle.
    pub fn is_starving(&self) -> bool {
        self.0.starving.load(Relaxed) > 0
    }

    /// Whether connections must not be reused now.
    pub fn is_active(&self) -> bool {
        // Most upstreams never send surplus: the clock is not asked for them.
        self.0.end_ms.load(Relaxed) != 0 && self.is_active_at(Instant::now())
    }

    fn start_at(&self, now: Instant) {
        let end = now + Duration::from_secs(REUSE_BAN_SECONDS);
        self.0.end_ms.store(self.elapsed_millis(end), Relaxed);
    }

    fn is_active_at(&self, now: Instant) -> bool {
        self.elapsed_millis(now) < self.0.end_ms.load(Relaxed)
    }

    fn elapsed_millis(&self, at: Instant) -> u64 {
        at.duration_since(self.0.created).as_millis().try_into().unwrap_or(u64::MAX)
    }
}

pub use bytes_only::{PolledSocket, ReuseBans, ask_kernel, idle_state};

/// For connections of the service and the agent; those of clients look at their sockets themselves
/// (`client/socket.rs`).
mod bytes_only {
    use std::collections::HashMap;
    use std::future::poll_fn;
    use std::io::{self, Read};
    use std::net::SocketAddr;
    use std::pin::{Pin, pin};
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::{Arc, LazyLock, Mutex, PoisonError};
    use std::task::{Context, Poll, Wake, Waker};
    use std::time::Duration;

    use socket2::SockRef;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::net::TcpStream;
    use tokio::task::coop::unconstrained;
    use tokio::time::timeout;

    use super::{IdleState, ReuseBan};

    /// Time without a response on a new connection after which idle connections to its upstream are given up.
    const STARVATION_DELAY: Duration = Duration::from_millis(100);

    /// A new connection that has had no response for too long, as long as this lives.
    #[derive(Debug)]
    struct Starvation(ReuseBan);

    impl Drop for Starvation {
        fn drop(&mut self) {
            self.0.0.starving.fetch_sub(1, Relaxed);
        }
    }

    impl ReuseBan {
        /// Waits for the first response on a new connection. If it does not come within 100 ms, idle connections to the
        /// upstream are given up, and none becomes idle until the response begins. `give_up` closes those of a pool.
        pub async fn await_response<T>(
            &self,
            waiting: impl Future<Output = T>,
            give_up: impl FnOnce(),
        ) -> T {
            let mut waiting = pin!(waiting);
            if let Ok(done) = timeout(STARVATION_DELAY, waiting.as_mut()).await {
                return done;
            }
            let _starving = self.begin_starvation();
            give_up();
            waiting.await
        }

        fn begin_starvation(&self) -> Starvation {
            self.0.starving.fetch_add(1, Relaxed);
            self.0.given_up.notify_waiters();
            Starvation(self.clone())
        }

        /// Waits until idle connections are given up.
        pub async fn wait_until_given_up(&self) {
            // It is notified from now on, so that none that begins to starve is missed.
            let given_up = self.0.given_up.notified();
            if !self.is_starving() {
                given_up.await;
            }
        }
    }

    /// How much surplus is read: one byte says enough.
    const MAX_SURPLUS_BYTES: usize = 1024;

    impl IdleState {
        /// Returns the state of a connection at the end of a response, given the bytes that were read and
        /// not used. `persists` is true if both sides keep it open and the upstream has read the request.
        pub fn after_response(persists: bool, unread: &[u8]) -> Self {
            match (unread.is_empty(), persists) {
                (false, _) => Self::Surplus,
                (true, true) => Self::Quiet,
                (true, false) => Self::Closed,
            }
        }
    }

    /// Polls once for what is there already.
    ///
    /// Nobody is woken, a [`PolledSocket`] asks the kernel, and the task's budget is not asked: when that is used
    /// up, tokio says that nothing is there.
    fn poll_now<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        pin!(unconstrained(poll_fn(poll))).poll(&mut Context::from_waker(&NOBODY))
    }

    /// Wakes nobody, and is known by that: others that do so may look different each time.
    static NOBODY: LazyLock<Waker> = LazyLock::new(|| Waker::from(Arc::new(Nobody)));

    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    /// A socket that tells `poll_now` what is there.
    ///
    /// tokio alone tells what it knows of, and looks only when a thread of the runtime has nothing else to
    /// do.
    pub struct PolledSocket(pub TcpStream);

    /// What a read comes to that tokio says this of.
    pub fn ask_kernel(
        socket: SockRef<'_>,
        cx: &Context<'_>,
        buffer: &mut ReadBuf<'_>,
        read: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if read.is_ready() || !cx.waker().will_wake(&NOBODY) {
            return read;
        }
        let room = buffer.initialize_unfilled_to(buffer.remaining().min(MAX_SURPLUS_BYTES));
        match (&*socket).read(room) {
            Ok(count) => {
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    impl AsyncRead for PolledSocket {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let read = Pin::new(&mut self.0).poll_read(cx, buffer);
            ask_kernel(SockRef::from(&self.0), cx, buffer, read)
        }
    }

    impl AsyncWrite for PolledSocket {
        ginnel_base::forward_write!(0);
    }

    /// Looks at a connection that nothing is expected from; what it sent is lost.
    pub fn idle_state(mut read: Pin<&mut (impl AsyncRead + ?Sized)>) -> IdleState {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        match poll_now(|cx| read.as_mut().poll_read(cx, &mut buffer)) {
            Poll::Pending => IdleState::Quiet,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => IdleState::Surplus,
            Poll::Ready(_) => IdleState::Closed,
        }
    }

    /// The bans of all addresses that are connected to; clones share them.
    #[derive(Debug, Clone, Default)]
    pub struct ReuseBans(Arc<Mutex<HashMap<SocketAddr, ReuseBan>>>);

    impl ReuseBans {
        /// The ban of an address, active or not.
        pub fn ban_for(&self, address: SocketAddr) -> ReuseBan {
            let mut bans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(ban) = bans.get(&address) {
                return ban.clone();
            }
            bans.retain(|_, ban| Arc::strong_count(&ban.0) > 1 || ban.is_active());
            bans.entry(address).or_default().clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;

    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn surplus_bans_reuse_for_a_minute() {
        let ban = ReuseBan::default();
        assert!(ban.permits_reuse(IdleState::Quiet));
        assert!(!ban.permits_reuse(IdleState::Closed));
        assert!(ban.permits_reuse(IdleState::Quiet), "a close is no surplus");

        assert!(!ban.permits_reuse(IdleState::Surplus));
        assert!(!ban.clone().permits_reuse(IdleState::Quiet));
        let now = Instant::now();
        ban.start_at(now);
        assert!(ban.is_active_at(now + Duration::from_millis(59_900)));
        assert!(!ban.is_active_at(now + Duration::from_millis(60_100)));
    }

    #[tokio::test]
    async fn a_task_without_budget_sees_what_is_there() {
        let (mut read, mut write) = tokio::io::duplex(8);
        tokio::io::AsyncWriteExt::write_all(&mut write, b"x").await.unwrap_or_default();
        while tokio::task::coop::has_budget_remaining() {
            tokio::task::coop::consume_budget().await;
        }

        let state = idle_state(std::pin::Pin::new(&mut read));

        assert_eq!(state, IdleState::Surplus);
    }

    #[tokio::test]
    async fn the_kernel_is_asked_for_what_tokio_has_not_seen() -> io::Result<()> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let mut socket = PolledSocket(TcpStream::connect(listener.local_addr()?).await?);
        let (mut other, _) = listener.accept()?;
        other.set_nodelay(true)?;

        assert_eq!(idle_state(Pin::new(&mut socket)), IdleState::Quiet);
        std::io::Write::write_all(&mut other, b"xy")?;
        // Nothing is awaited here, so that tokio cannot have looked.
        let begun = Instant::now();
        while idle_state(Pin::new(&mut socket)) == IdleState::Quiet {
            assert!(begun.elapsed() < Duration::from_secs(10), "it never arrives");
        }
        assert_eq!(idle_state(Pin::new(&mut socket)), IdleState::Surplus);
        drop(other);
        let begun = Instant::now();
        while idle_state(Pin::new(&mut socket)) == IdleState::Quiet {
            assert!(begun.elapsed() < Duration::from_secs(10), "it never closes");
        }
        assert_eq!(idle_state(Pin::new(&mut socket)), IdleState::Closed);
        Ok(())
    }
}
