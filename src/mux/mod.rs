//! How bytes travel between agent and service: many streams over one connection.
//!
//! A [`MuxSession`] is one connection, usually TLS. What goes over it is cut into frames (`frame`),
//! which belong to streams; `stream_state` knows what a stream may do. Both are free of I/O. `driver`
//! is the one task that reads and writes the connection: it hands what it read to the streams' cells
//! and takes what they queued from `send_queue`, in as few writes as `batching` allows. The
//! [`heartbeat`] tells when the other side is gone. What streams are for is `protocol`'s to say.

mod backlog;
mod batching;
mod code;
mod driver;
mod error;
pub mod frame;
mod group;
pub mod heartbeat;
mod limits;
mod presence;
mod read_buffers;
mod send_queue;
mod session;
mod stream;
mod stream_cell;
pub mod stream_state;
mod stream_table;

pub use backlog::{DEFAULT_BACKLOG_BYTES, UnreadAccount, UnreadBacklog};
pub use code::Code;
pub use error::{LoginLimitError, Reset, SessionEnd};
pub use group::Group;
pub use limits::{LoginLimits, SessionLimits, Side};
pub use session::{Incoming, MuxSession};
pub use stream::{ReadHalf, Stream, StreamWatch, WriteHalf};
