//! How bytes travel between agent and service.
//!
//! A [`Session`] is one connection, usually TLS. What goes over it is cut into frames (`frame`),
//! which belong to streams; `state` knows what a stream may do. Both are free of I/O. `driver` is
//! the one task that reads and writes the connection: it hands what it read to the streams' cells
//! and takes what they queued from `outgoing`, in as few writes as `batching` allows.
//!
//! The first four bytes of a stream say what it is ([`kind`]): a call with its answer ([`rpc`],
//! made of [`message`]s), a proxied connection ([`proxy`]), or the [`heartbeat`].

mod account;
mod batching;
mod cell;
mod code;
mod driver;
mod error;
pub mod frame;
pub mod heartbeat;
pub mod kind;
pub mod message;
pub mod object;
mod outgoing;
pub mod proxy;
pub mod rpc;
mod session;
pub mod state;
mod stream;
mod table;

pub use account::{Account, Backlog};
pub use code::Code;
pub use error::{Ended, LoginExcess, Reset};
pub use kind::read_kind;
pub use session::{Group, Incoming, Limits, LoginLimits, Session, Side};
pub use stream::{ReadHalf, Stream, StreamWatch, WriteHalf};
