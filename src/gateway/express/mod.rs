//! The short way of a request: to an agent and back, as the bytes that it came in.
//!
//! Most requests only want to be carried: no module acts on them, they have no body and ask for
//! nothing special. Their heads are read once, and everything goes on as it was written. All else is
//! left to `serve`, with what was read of it, so that nothing is decided in two places: whatever is
//! not plainly fine is not for here.

mod answer;
mod lane;
mod patience;
mod raw_link;
mod request;

pub(crate) use lane::{Lane, Left};
pub(crate) use raw_link::RawLink;
