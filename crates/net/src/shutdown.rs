//! A graceful stop: whoever begins it says so once, everyone who serves something learns of it, and
//! what is in flight is waited for, and cut off when it takes too long.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::timeout;

use ginnel_base::logging::{ignore, or_debug};

/// How long tasks may take to end that are cut off: as long as it takes to run each once.
const CUT_OFF_TIMEOUT: Duration = Duration::from_secs(1);

/// How far something is on its way to the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownPhase {
    /// It runs.
    #[default]
    Running,
    /// It runs, and whoever has a connection is told to make the next one elsewhere.
    Draining,
    /// Nothing new begins; what is in flight is finished.
    Graceful,
    /// Everything ends now.
    Forced,
}

/// Begins a stop, and waits for those who hold a [`ShutdownSignal`]. Clones are the same shutdown.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(Arc<ShutdownNode>);

#[derive(Debug, Default)]
struct ShutdownNode {
    phase: watch::Sender<ShutdownPhase>,
    /// Each signal holds a receiver, those of children too.
    tasks: watch::Sender<()>,
    below: Mutex<Below>,
}

/// What stops with a shutdown.
#[derive(Debug, Default)]
struct Below {
    children: Vec<Weak<ShutdownNode>>,
    sockets: Vec<Weak<TcpListener>>,
}

/// Learns how far a shutdown is, and keeps it from being finished for as long as this lives.
pub struct ShutdownSignal {
    /// What has begun to stop goes on to the end, also when nobody else knows of it any more.
    node: Arc<ShutdownNode>,
    phase: watch::Receiver<ShutdownPhase>,
    _task: watch::Receiver<()>,
    seen: ShutdownPhase,
    /// Wakes this task at the next phase.
    next: Option<(Waker, BoxedChange)>,
}

type BoxedChange = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl Shutdown {
    /// A shutdown that goes at least as far as this one, and may begin before it. This one is finished
    /// when both are.
    pub fn child(&self) -> Self {
        let mut below = self.0.lock_children();
        let phase = watch::Sender::new(self.phase());
        let tasks = self.0.tasks.clone();
        let child = Arc::new(ShutdownNode { phase, tasks, below: Mutex::default() });
        below.children.retain(|child| child.strong_count() > 0);
        below.children.push(Arc::downgrade(&child));
        Self(child)
    }

    /// Goes on to a phase, unless it was reached before. Sockets are closed when this returns.
    pub fn begin_phase(&self, phase: ShutdownPhase) {
        self.0.begin_phase(phase);
    }

    pub fn phase(&self) -> ShutdownPhase {
        *self.0.phase.borrow()
    }

    /// For a task that ends with this shutdown.
    pub fn signal(&self) -> ShutdownSignal {
        ShutdownSignal {
            node: self.0.clone(),
            phase: self.0.phase.subscribe(),
            _task: self.0.tasks.subscribe(),
            seen: ShutdownPhase::Running,
            next: None,
        }
    }

    /// Waits until nobody holds a signal.
    pub async fn wait_until_finished(&self) {
        self.0.tasks.closed().await;
    }

    /// Stops: finishes what is in flight for as long as `grace`, and cuts off the rest.
    pub async fn stop(&self, grace: Duration) {
        self.begin_phase(ShutdownPhase::Graceful);
        let finished = timeout(grace, self.wait_until_finished()).await;
        let finished = or_debug!(finished, "tasks are cut off at the end of the grace period");
        self.begin_phase(ShutdownPhase::Forced);
        if finished.is_none() {
            let finished = timeout(CUT_OFF_TIMEOUT, self.wait_until_finished()).await;
            or_debug!(finished, "a task that was cut off does not end");
        }
    }

    /// Closes a listening socket as soon as this begins.
    pub(super) fn close_with(&self, socket: &Arc<TcpListener>) {
        let mut below = self.0.lock_children();
        match self.phase() {
            ShutdownPhase::Running | ShutdownPhase::Draining => {
                below.sockets.push(Arc::downgrade(socket));
            }
            ShutdownPhase::Graceful | ShutdownPhase::Forced => close_listener(socket),
        }
    }
}

impl ShutdownNode {
    fn begin_phase(&self, phase: ShutdownPhase) {
        let mut below = self.lock_children();
        self.phase.send_if_modified(|now| {
            let is_later = phase > *now;
            *now = phase.max(*now);
            is_later
        });
        if phase >= ShutdownPhase::Graceful {
            below
                .sockets
                .drain(..)
                .filter_map(|socket| socket.upgrade())
                .for_each(|it| close_listener(&it));
        }
        below.children.iter().filter_map(Weak::upgrade).for_each(|child| child.begin_phase(phase));
    }

    fn lock_children(&self) -> MutexGuard<'_, Below> {
        self.below.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the kernel refuse connections to a socket, whoever holds it.
fn close_listener(socket: &TcpListener) {
    let closed = SockRef::from(socket).shutdown(std::net::Shutdown::Both);
    ignore(closed, "where a system cannot do this, the socket is closed by its task");
}

impl ShutdownSignal {
    /// How far the shutdown is now.
    pub fn phase(&self) -> ShutdownPhase {
        *self.phase.borrow()
    }

    /// How far the shutdown is; the task is woken when that changes. To ask again costs one look at a
    /// number.
    pub fn poll_phase(&mut self, cx: &mut Context<'_>) -> ShutdownPhase {
        // The node has the other end for as long as this has the node.
        let has_changed = self.phase.has_changed().unwrap_or_default();
        if !has_changed && self.will_wake(cx) {
            return self.seen;
        }
        // Dropped last: what a waker keeps may end another shutdown.
        let _before = self.next.take();
        // What wakes those who have seen the last phase is over: nothing wakes this too early, and
        // leaves it without a waker for the next phase.
        let _begun = self.node.lock_children();
        loop {
            self.seen = *self.phase.borrow_and_update();
            let mut change = wait_for_change(self.phase.clone());
            if change.as_mut().poll(cx).is_pending() {
                self.next = Some((cx.waker().clone(), change));
                return self.seen;
            }
        }
    }

    fn will_wake(&self, cx: &Context<'_>) -> bool {
        self.next.as_ref().is_some_and(|(waker, _)| waker.will_wake(cx.waker()))
    }

    /// Waits for a phase, or a later one.
    pub async fn wait_for(&mut self, phase: ShutdownPhase) {
        poll_fn(|cx| if self.poll_phase(cx) >= phase { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }

    /// Runs a future until it has ended; none when the shutdown came to a phase before.
    pub async fn run_until<T>(
        &mut self,
        phase: ShutdownPhase,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.wait_for(phase) => None,
        }
    }
}

/// Waits for the next phase.
fn wait_for_change(mut phase: watch::Receiver<ShutdownPhase>) -> BoxedChange {
    // It is polled once for its waker, which it has to take whatever else the task has done.
    Box::pin(unconstrained(async move {
        ignore(phase.changed().await, "the node outlives its signals");
    }))
}

impl Clone for ShutdownSignal {
    fn clone(&self) -> Self {
        Shutdown(self.node.clone()).signal()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn everyone_learns_of_every_phase() {
        let shutdown = Shutdown::default();
        let mut early = shutdown.child().signal();
        let waiting = tokio::spawn(async move {
            early.wait_for(ShutdownPhase::Graceful).await;
            early.wait_for(ShutdownPhase::Forced).await;
        });
        tokio::task::yield_now().await;

        shutdown.begin_phase(ShutdownPhase::Graceful);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        shutdown.begin_phase(ShutdownPhase::Forced);
        shutdown.begin_phase(ShutdownPhase::Graceful);

        waiting.await.unwrap();
        assert_eq!(shutdown.phase(), ShutdownPhase::Forced);
        shutdown.signal().wait_for(ShutdownPhase::Forced).await;
        shutdown.child().signal().wait_for(ShutdownPhase::Forced).await;
    }

    #[tokio::test]
    async fn a_child_stops_alone_and_is_waited_for() {
        let shutdown = Shutdown::default();
        let child = shutdown.child();
        let mut signal = child.signal();

        child.begin_phase(ShutdownPhase::Graceful);
        signal.wait_for(ShutdownPhase::Graceful).await;

        assert_eq!(shutdown.phase(), ShutdownPhase::Running);
        assert!(timeout(Duration::ZERO, shutdown.wait_until_finished()).await.is_err());
        drop(signal);
        shutdown.wait_until_finished().await;
    }

    #[tokio::test]
    async fn what_takes_too_long_is_cut_off_and_waited_for() {
        let shutdown = Shutdown::default();
        let mut signal = shutdown.signal();
        let task =
            tokio::spawn(
                async move { signal.run_until(ShutdownPhase::Forced, pending::<()>()).await },
            );

        shutdown.stop(Duration::from_millis(1)).await;

        assert_eq!(task.await.unwrap(), None);
    }

    /// A signal that is asked by another task wakes that task, and not the one that asked first.
    #[tokio::test]
    async fn a_signal_wakes_whoever_asked_last() {
        let shutdown = Shutdown::default();
        let mut signal = shutdown.signal();
        let mut nobody = Context::from_waker(Waker::noop());
        assert_eq!(signal.poll_phase(&mut nobody), ShutdownPhase::Running);
        let waiting = tokio::spawn(async move { signal.wait_for(ShutdownPhase::Graceful).await });
        tokio::task::yield_now().await;

        shutdown.begin_phase(ShutdownPhase::Graceful);

        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn who_is_left_of_a_child_learns_of_the_end() {
        let shutdown = Shutdown::default();
        let child = shutdown.child();
        let mut signal = child.signal();
        child.begin_phase(ShutdownPhase::Graceful);
        drop(child);
        let waiting = tokio::spawn(async move { signal.wait_for(ShutdownPhase::Forced).await });
        tokio::task::yield_now().await;

        shutdown.begin_phase(ShutdownPhase::Forced);

        waiting.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_runs_while_a_phase_begins_learns_of_the_next() {
        for _ in 0..1000 {
            let shutdown = Shutdown::default();
            let mut signal = shutdown.signal();
            let waiting = tokio::spawn(poll_fn(move |cx| match signal.poll_phase(cx) {
                ShutdownPhase::Running => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                ShutdownPhase::Draining | ShutdownPhase::Graceful => Poll::Pending,
                ShutdownPhase::Forced => Poll::Ready(()),
            }));
            tokio::task::yield_now().await;

            shutdown.begin_phase(ShutdownPhase::Graceful);
            tokio::time::sleep(Duration::from_millis(1)).await;
            shutdown.begin_phase(ShutdownPhase::Forced);

            timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_busy_task_is_woken_all_the_same() {
        let shutdown = Shutdown::default();
        let mut signal = shutdown.signal();
        let waiting = tokio::spawn(async move {
            // Uses up what a task may do at a time.
            while tokio::task::coop::has_budget_remaining() {
                tokio::task::coop::consume_budget().await;
            }
            signal.wait_for(ShutdownPhase::Graceful).await;
        });
        tokio::task::yield_now().await;

        shutdown.begin_phase(ShutdownPhase::Graceful);

        waiting.await.unwrap();
    }
}
