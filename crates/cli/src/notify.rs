//! Tells systemd how far the service is (`sd_notify(3)`); does nothing where nobody asked for it.

use std::time::Duration;

#[cfg(unix)]
use std::os::unix::net::UnixDatagram;

/// The service takes requests.
pub(super) const READY: &str = "READY=1";
/// The service is about to end.
pub(super) const STOPPING: &str = "STOPPING=1";
/// The service reads its configuration again, until it is ready the next time.
const RELOADING: &str = "RELOADING=1";
/// The service still runs.
const ALIVE: &str = "WATCHDOG=1";

/// Where systemd listens, if it does.
pub(super) struct SystemdNotifier {
    #[cfg(unix)]
    socket: Option<UnixDatagram>,
    /// How often systemd is told that the service still runs.
    watchdog: Option<Duration>,
}

impl SystemdNotifier {
    /// Reads from the environment who wants to know.
    pub fn from_environment() -> Self {
        Self {
            #[cfg(unix)]
            socket: open_socket(),
            watchdog: watchdog_interval(),
        }
    }

    /// Tells a state; whoever listened may be gone.
    #[cfg(unix)]
    pub fn send_state(&self, state: &str) {
        if let Some(socket) = &self.socket {
            ginnel_base::logging::or_debug!(
                socket.send(state.as_bytes()),
                "systemd does not listen"
            );
        }
    }

    /// There is no systemd here.
    #[cfg(not(unix))]
    pub fn send_state(&self, _: &str) {}

    /// Tells that the configuration is read again, and after `work` that the service is ready: systemd waits
    /// for that where the unit is of `Type=notify-reload`.
    pub async fn notify_reload<T>(&self, work: impl Future<Output = T>) -> T {
        self.send_state(&reloading_state());
        let done = work.await;
        self.send_state(READY);
        done
    }

    /// Tells from time to time that the service still runs; never ends.
    pub async fn keep_alive(&self) {
        let Some(pause) = self.watchdog else { return std::future::pending().await };
        loop {
            self.send_state(ALIVE);
            tokio::time::sleep(pause).await;
        }
    }
}

/// A reload that begins now: systemd compares the time with that of its signal.
#[cfg(target_os = "linux")]
fn reloading_state() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    format!("{RELOADING}\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000)
}

#[cfg(not(target_os = "linux"))]
fn reloading_state() -> String {
    RELOADING.to_owned()
}

/// Half of the time after which systemd takes the service for dead.
fn watchdog_interval() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_ours =
        number("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
    let limit = number("WATCHDOG_USEC").filter(|limit| is_ours && *limit > 1)?;
    Some(Duration::from_micros(limit / 2))
}

#[cfg(unix)]
fn open_socket() -> Option<UnixDatagram> {
    let name = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
    let connected = UnixDatagram::unbound().and_then(|socket| {
        connect_socket(&socket, &name)?;
        Ok(socket)
    });
    ginnel_base::logging::or_debug!(connected, "systemd cannot be told anything")
}

/// Connects to a path, or to an abstract name, which begins with `@`.
#[cfg(unix)]
fn connect_socket(socket: &UnixDatagram, name: &std::ffi::OsStr) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        if let Some(name) = name.as_bytes().strip_prefix(b"@") {
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            return socket.connect_addr(&address);
        }
    }
    socket.connect(name)
}
