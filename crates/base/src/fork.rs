//! What must not be shared between a process and its forks.
//!
//! After a fork the child holds copies of the parent's sockets and runtimes. Using them mixes the
//! answers of both processes, and even dropping them disturbs the parent through the shared epoll.
//! So the child forgets them: it leaks the old value and makes a new one. A lock would not do, since
//! another thread may have held it at the fork.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between the first process and this one.
pub fn fork_generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// Counts forks from now on.
#[cfg(unix)]
fn watch_forks() {
    static WATCH: std::sync::Once = std::sync::Once::new();
    extern "C" fn count_fork() {
        GENERATION.fetch_add(1, Ordering::AcqRel);
    }
    WATCH.call_once(|| {
        // SAFETY: `count` only adds to an atomic, which is allowed between fork and exec.
        unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
    });
}

#[cfg(not(unix))]
fn watch_forks() {}

/// A value that each process makes for itself on first use.
pub struct PerProcess<T> {
    current: AtomicPtr<(u64, T)>,
    make: fn() -> T,
}

impl<T> PerProcess<T> {
    /// Nothing is made yet.
    pub const fn new(make: fn() -> T) -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// The value of this process.
    pub fn current(&self) -> &T {
        let pointer = self.current.load(Ordering::Acquire);
        // SAFETY: a pointer that was ever stored stays valid until `self` is dropped: replaced
        // values are leaked.
        match unsafe { pointer.as_ref() } {
            Some((made_in, value)) if *made_in == fork_generation() => value,
            _ => self.make_current(pointer),
        }
    }

    #[cold]
    fn make_current(&self, old: *mut (u64, T)) -> &T {
        watch_forks();
        let new = Box::into_raw(Box::new((fork_generation(), (self.make)())));
        match self.current.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: `new` was made from a box just now and is stored for good.
            Ok(_) => unsafe { &(*new).1 },
            Err(_) => {
                // Another thread was faster.
                // SAFETY: `new` was not shared.
                drop(unsafe { Box::from_raw(new) });
                self.current()
            }
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let pointer = *self.current.get_mut();
        // SAFETY: as in `current`; `&mut self` says that nobody borrows the value any more.
        let ours = unsafe { pointer.as_ref() }.is_some_and(|value| value.0 == fork_generation());
        if ours {
            // SAFETY: the pointer came from a box and is dropped once.
            drop(unsafe { Box::from_raw(pointer) });
        }
    }
}
