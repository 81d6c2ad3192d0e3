//! The session between agent and service: many streams over one connection, and the messages in these streams.
//!
//! # One stream
//!
//! A [`MuxSession`] is one connection, usually with TLS. `driver` is the one task that reads and writes it: it cuts the
//! bytes into frames (`frame`), hands their content to the cells of the streams, and takes the
//! queued bytes of the streams from `send_queue`, in as few writes as `batching` allows. `stream_state` knows the states of a stream. The
//! [`heartbeat`] detects a lost peer. [`protocol`] has the messages that streams carry.
//!
//! Own code of 2,100 lines without the messages, because `muxado` 0.5.4, which speaks the same frames, brings 16 packages
//! and limits only the window of a stream, the accept queue and the number of streams. It does not limit the data that
//! all streams of an agent leave unread (`backlog`), and a full accept queue blocks all streams of the session.
//!
//! # Invariants
//!
//! - Frames and stream states do no I/O; only `driver` does.
//! - This crate does not know which connections an agent or a service forwards.

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
pub mod protocol;
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
