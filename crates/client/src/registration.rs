//! The registration of a socket with the reactor that watches it.

use std::os::fd::AsRawFd;
use std::sync::Weak;

use mio::Registry;
use mio::unix::SourceFd;

use ginnel_base::logging::ignore;

/// That a reactor is told when something arrives on a socket.
#[derive(Debug)]
pub(super) struct ReactorRegistration {
    pub reactor: u64,
    pub registry: Weak<Registry>,
}

impl ReactorRegistration {
    pub fn deregister_socket(self, socket: &socket2::Socket) {
        if let Some(registry) = self.registry.upgrade() {
            let ended = registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
            ignore(ended, "a reactor that is told once more ignores it");
        }
    }
}
