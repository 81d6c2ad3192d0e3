//! The fast path of a request: to an upstream and back, as the bytes that it came in.
//!
//! Most requests only want to be carried: no module acts on them, and they ask for nothing special.
//! Everything goes on as it was written. All else is left to `http1_server`, with the head as it was read,
//! so that nothing is decided in two places: whatever is not plainly fine is not for here.

mod connection;
mod request;
mod request_body;
mod response;
mod response_timeout;
mod routing;
mod spare_buffers;

pub use connection::{Closing, ExchangeEnd, FastPathConnection, poll_write_all};
pub use request::FastPathRequest;
pub use routing::{FastPathTarget, NodeFailure, RequestRouting};
