//! The terminal that frames are written on, from a thread of its own.
//!
//! A terminal that is slow, or held by Ctrl-S, takes no more bytes: then the thread waits, and not the agent
//! with its visitors. What is written is the last frame; those that came meanwhile are left out.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ginnel_base::logging::or_debug;

use super::frame::{ENTER, HOME, LEAVE, REST_OF_SCREEN};

/// How long to wait for a terminal that takes nothing before it is left as it is.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);

/// What is to be on the terminal.
enum ScreenContent {
    Frame(String),
    /// What was there before the view.
    Usual,
}

#[derive(Default)]
struct ScreenState {
    next: Option<ScreenContent>,
    is_writing: bool,
    is_closed: bool,
}

#[derive(Default)]
struct SharedScreen {
    state: Mutex<ScreenState>,
    changed: Condvar,
}

impl SharedScreen {
    fn lock_state(&self) -> MutexGuard<'_, ScreenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self) {
        let mut is_entered = false;
        let mut state = self.lock_state();
        loop {
            let Some(content) = state.next.take() else {
                if state.is_closed {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.is_writing = true;
            drop(state);
            let text = match &content {
                ScreenContent::Frame(frame) => {
                    let enter = if is_entered { "" } else { ENTER };
                    format!("{enter}{HOME}{frame}{REST_OF_SCREEN}")
                }
                ScreenContent::Usual if is_entered => LEAVE.to_owned(),
                ScreenContent::Usual => String::new(),
            };
            is_entered = matches!(content, ScreenContent::Frame(_));
            let mut output = std::io::stdout().lock();
            let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
            or_debug!(written, "the terminal is gone");
            drop(output);
            state = self.lock_state();
            state.is_writing = false;
            self.changed.notify_all();
        }
    }
}

/// The terminal; dropping it ends the thread.
pub(super) struct Screen(Arc<SharedScreen>);

impl Screen {
    /// A screen on the standard output.
    pub fn open() -> Self {
        let shared = Arc::new(SharedScreen::default());
        let writing = shared.clone();
        let thread = std::thread::Builder::new().name("ginnel-screen".to_owned());
        if let Err(error) = thread.spawn(move || writing.write_all()) {
            tracing::warn!(%error, "there is no thread to draw the view");
        }
        Self(shared)
    }

    /// Shows a frame as soon as the terminal takes it.
    pub fn show_frame(&self, frame: String) {
        self.0.lock_state().next = Some(ScreenContent::Frame(frame));
        self.0.changed.notify_all();
    }

    /// Gives the terminal back as it was; waits for that, but not for ever.
    pub fn restore_terminal(&self) {
        let mut state = self.0.lock_state();
        state.next = Some(ScreenContent::Usual);
        self.0.changed.notify_all();
        let is_busy = |state: &mut ScreenState| state.next.is_some() || state.is_writing;
        let waited = self.0.changed.wait_timeout_while(state, LEAVE_TIMEOUT, is_busy);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        drop(state);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.0.lock_state().is_closed = true;
        self.0.changed.notify_all();
    }
}
