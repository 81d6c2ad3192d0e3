//! Captured requests, in memory and bounded by bytes.
//!
//! The relay opens a [`Recording`] when the head of a request arrives and hands it the bytes that
//! pass; [`CaptureStore`] keeps the records, newest last, and lets the oldest go when there are too many
//! bytes (agent sheet, section 5).

mod body;
mod record;
mod recording;
mod store;
mod stream;
mod timing;

pub use crate::http1::Body;

pub use body::CapturedBody;
pub use record::{CaptureRecord, CaptureSource, CapturedExchange, CapturedMessage, Via};
pub use recording::Recording;
pub use store::{CaptureChange, CaptureLimit, CaptureStore, NewCapture, Usage};
pub use stream::{BodyMarks, SocketLog, SocketMessage, StreamKind, StreamSide};
pub use timing::ExchangeTiming;
