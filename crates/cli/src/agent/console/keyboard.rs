//! The keys that somebody presses while the view is on the terminal.
//!
//! Keys come one by one and unseen, but Ctrl-C and Ctrl-Z stay the signals that they are: so only two
//! flags of the terminal are changed, where the "raw mode" of libraries changes all.

#[cfg(unix)]
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
#[cfg(unix)]
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use tokio::sync::mpsc;

use ginnel_base::logging::or_debug;

use crate::signals::{JobControl, is_terminal_gone};

/// How often the thread looks whether it is still needed, and whether the terminal is still ours.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How many keys wait at most; whoever types faster than the view is drawn loses the rest.
const MAX_QUEUED_KEYS: usize = 256;

/// Reads keys until it is dropped.
pub(super) struct Keyboard {
    keys: mpsc::Receiver<KeyCode>,
    is_closed: Arc<AtomicBool>,
    mode: TerminalMode,
}

/// The mode of the terminal before, and while the view is shown.
struct TerminalMode {
    #[cfg(unix)]
    before: Termios,
    #[cfg(unix)]
    during: Termios,
}

impl Keyboard {
    /// The keyboard of the terminal on the standard input; none where that is something else.
    pub fn open() -> Option<Self> {
        let mode = TerminalMode::of_input()?;
        let (sender, keys) = mpsc::channel(MAX_QUEUED_KEYS);
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = is_closed.clone();
        let thread = std::thread::Builder::new().name("ginnel-keys".to_owned());
        if let Err(error) = thread.spawn(move || read_keys(&sender, &closed)) {
            tracing::warn!(%error, "there is no thread to read keys");
            return None;
        }
        Some(Self { keys, is_closed, mode })
    }

    /// Waits for the next key; for ever where none can come.
    pub async fn next(&mut self) -> KeyCode {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }

    /// Keys come one by one from now on, and are not shown.
    pub fn capture_keys(&self) {
        self.mode.enter();
    }

    /// Gives the terminal back as it was.
    pub fn restore_terminal(&self) {
        self.mode.leave();
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.restore_terminal();
    }
}

#[cfg(unix)]
impl TerminalMode {
    fn of_input() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut during = before.clone();
        during.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        during.special_codes[SpecialCodeIndex::VMIN] = 1;
        during.special_codes[SpecialCodeIndex::VTIME] = 0;
        Some(Self { before, during })
    }

    fn enter(&self) {
        Self::apply_termios(&self.during);
    }

    fn leave(&self) {
        Self::apply_termios(&self.before);
    }

    fn apply_termios(mode: &Termios) {
        if !JobControl::has_terminal() {
            return;
        }
        // Not after what is still to be written: a terminal that is held takes nothing.
        if let Err(error) = tcsetattr(io::stdin(), OptionalActions::Now, mode) {
            tracing::debug!(%error, "the terminal keeps its mode");
        }
    }
}

/// Elsewhere there are no such modes, and no keys are read.
#[cfg(not(unix))]
impl TerminalMode {
    fn of_input() -> Option<Self> {
        None
    }

    fn enter(&self) {}

    fn leave(&self) {}
}

fn read_keys(keys: &mpsc::Sender<KeyCode>, is_closed: &AtomicBool) {
    while !is_closed.load(Ordering::Relaxed) && !is_terminal_gone() {
        if !JobControl::has_terminal() {
            // Who reads from behind the shell is stopped.
            std::thread::sleep(POLL_INTERVAL);
            continue;
        }
        let event = match event::poll(POLL_INTERVAL) {
            Ok(true) => event::read(),
            Ok(false) => continue,
            Err(error) => Err(error),
        };
        match event {
            Ok(Event::Key(key)) if key.is_press() => {
                if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
                    or_debug!(keys.try_send(key.code), "a key is left out");
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "keys cannot be read");
                return;
            }
        }
    }
}
