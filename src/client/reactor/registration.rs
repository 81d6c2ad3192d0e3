//! Sockets that a reactor watches.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::client::connection::ApiConnection;
use crate::client::socket::ClientSocket;

/// That a reactor is told when something arrives on a socket.
#[derive(Debug)]
pub(in crate::client) struct ReactorRegistration {
    reactor: u64,
    registry: Weak<Registry>,
}

impl ReactorRegistration {
    pub fn end(self, socket: &socket2::Socket) {
        if let Some(registry) = self.registry.upgrade() {
            // A reactor that is told once more ignores it.
            let _ = registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
    }
}

/// Has a reactor told when something arrives on a connection.
pub(super) fn watch(
    reactor: u64,
    registry: &Arc<Registry>,
    connection: &mut ApiConnection<ClientSocket>,
) -> io::Result<()> {
    let socket = &mut connection.socket;
    if socket.registration.as_ref().is_some_and(|it| it.reactor == reactor) {
        return Ok(());
    }
    socket.leave_reactor();
    let fd = socket.as_raw_fd();
    registry.register(&mut SourceFd(&fd), token(connection.number), Interest::READABLE)?;
    socket.registration = Some(ReactorRegistration { reactor, registry: Arc::downgrade(registry) });
    Ok(())
}

pub(super) fn token(connection: u64) -> Token {
    // Connections are numbered from 1, and there are never so many.
    Token(connection as usize)
}
