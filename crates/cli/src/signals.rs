//! The signals that ask the process to end, or to leave its terminal to the shell.

#[cfg(unix)]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(unix)]
use rustix::process::getpgrp;
#[cfg(unix)]
use rustix::termios::tcgetpgrp;

#[cfg(unix)]
use super::error::Exit;
use super::error::{CliError, CommandResult};
#[cfg(not(unix))]
use super::output::eprint_line;

/// What is said at SIGHUP where there is nothing to read again.
pub(super) const NOTHING_TO_READ: &str = "SIGHUP: there is nothing to reload";

/// The signals that ask the process to end.
pub(super) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Listens from now on.
    pub fn new() -> CommandResult<Self> {
        use tokio::signal::unix::SignalKind;
        let terminate = listen_signal(SignalKind::terminate())?;
        if !is_ignored(libc::SIGHUP) {
            // It ends nothing from now on, also before there is something to do at it.
            drop(listen_signal(SignalKind::hangup())?);
        }
        Ok(Self { terminate, interrupt: listen_signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Does something at each SIGHUP from now on, which ends nothing; unless whoever started the
/// process said that the signal shall not matter.
#[cfg(unix)]
pub(super) fn on_hangup(mut act: impl FnMut() + Send + 'static) -> CommandResult<()> {
    if is_ignored(libc::SIGHUP) {
        return Ok(());
    }
    let mut hangup = listen_signal(tokio::signal::unix::SignalKind::hangup())?;
    ginnel_base::tasks::spawn(async move {
        while hangup.recv().await.is_some() {
            act();
        }
    });
    Ok(())
}

/// There is no such signal here.
#[cfg(not(unix))]
pub(super) fn on_hangup(_: impl FnMut() + Send + 'static) -> CommandResult<()> {
    Ok(())
}

/// Whether the terminal on the standard output is gone: closed, or its connection lost.
#[cfg(unix)]
pub(super) fn is_terminal_gone() -> bool {
    let output = std::io::stdout();
    let mut terminal = [PollFd::new(&output, PollFlags::empty())];
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut terminal, Some(&Timespec::default())).is_ok()
        && terminal[0].revents().intersects(gone)
}

/// Nobody says.
#[cfg(not(unix))]
pub(super) fn is_terminal_gone() -> bool {
    false
}

/// Whether the process is to outlive its terminal, as `nohup` says.
#[cfg(unix)]
pub(super) fn outlives_terminal() -> bool {
    is_ignored(libc::SIGHUP)
}

/// Nobody says.
#[cfg(not(unix))]
pub(super) fn outlives_terminal() -> bool {
    true
}

#[cfg(unix)]
fn listen_signal(
    kind: tokio::signal::unix::SignalKind,
) -> CommandResult<tokio::signal::unix::Signal> {
    let listening = tokio::signal::unix::signal(kind);
    listening
        .map_err(|error| CliError::new(Exit::Failed, format!("cannot handle signals: {error}")))
}

/// Waits for a signal; for ever where it is not listened to.
#[cfg(unix)]
async fn wait_for_signal(signal: Option<&mut tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether the process was started with this signal ignored, as `nohup` does.
#[cfg(unix)]
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: the structure is plain data; without a new action the call only fills it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// What the shell wants of a process on its terminal.
#[cfg_attr(not(unix), expect(dead_code, reason = "only Unix has jobs"))]
pub(super) enum JobSignal {
    /// To stop, so that the shell can go on.
    Stop,
    /// To go on.
    Continue,
}

/// The signals by which a shell stops and continues its jobs.
pub(super) struct JobControl {
    #[cfg(unix)]
    stop: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    proceed: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl JobControl {
    /// Listens from now on; who cannot listen is stopped without knowing.
    pub fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |number| signal(SignalKind::from_raw(number)).ok();
        let stop = if is_ignored(libc::SIGTSTP) { None } else { listen(libc::SIGTSTP) };
        Self { stop, proceed: listen(libc::SIGCONT) }
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> JobSignal {
        tokio::select! {
            () = wait_for_signal(self.stop.as_mut()) => JobSignal::Stop,
            () = wait_for_signal(self.proceed.as_mut()) => JobSignal::Continue,
        }
    }

    /// Stops the process until the shell lets it go on; not where no shell could.
    pub fn stop_process() {
        // SAFETY: both structures are plain data, and the second is filled before it is used. The
        // signal comes to this thread, before `raise` returns: it stops the process, unless nobody
        // could let it go on, which only the kernel knows.
        unsafe {
            let mut usual: libc::sigaction = std::mem::zeroed();
            let mut own: libc::sigaction = std::mem::zeroed();
            usual.sa_sigaction = libc::SIG_DFL;
            if libc::sigaction(libc::SIGTSTP, &raw const usual, &raw mut own) == 0 {
                libc::raise(libc::SIGTSTP);
                libc::sigaction(libc::SIGTSTP, &raw const own, std::ptr::null_mut());
            }
        }
    }

    /// Whether the terminal is ours to write on; another job may have it.
    pub fn has_terminal() -> bool {
        tcgetpgrp(std::io::stdout()).map_or(true, |group| group == getpgrp())
    }
}

#[cfg(not(unix))]
impl JobControl {
    /// There are no jobs here.
    pub fn new() -> Self {
        Self {}
    }

    /// Waits for ever.
    pub async fn next(&mut self) -> JobSignal {
        std::future::pending().await
    }

    /// Does nothing.
    pub fn stop_process() {}

    /// Nobody else has it.
    pub fn has_terminal() -> bool {
        true
    }
}

#[cfg(not(unix))]
impl Signals {
    /// Listens from now on.
    pub fn new() -> CommandResult<Self> {
        Ok(Self {})
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            complain(&error.to_string());
        }
    }
}
