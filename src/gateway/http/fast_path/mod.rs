//! The fast path of a request: to an agent and back, as the bytes that it came in.
//!
//! Most requests only want to be carried: no module acts on them, they have no body and ask for
//! nothing special. Their heads are read once, and everything goes on as it was written. All else is
//! left to `connection`, with what was read of it, so that nothing is decided in two places: whatever is
//! not plainly fine is not for here.

mod connection;
mod request;
mod response;
mod response_timeout;
mod upstream_connection;

pub(crate) use connection::{FastPathConnection, FastPathExit};
pub(crate) use upstream_connection::RawConnection;
