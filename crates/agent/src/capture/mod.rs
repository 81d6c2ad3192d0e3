//! Captured requests, in memory and bounded by bytes; and in a file where somebody asks for one.
//!
//! The relay opens a [`Recording`] when the head of a request arrives and hands it the bytes that
//! pass; [`CaptureStore`] keeps the records, newest last, and lets the oldest go when there are too many
//! bytes (agent sheet, section 5).

mod body;
mod file;
mod reading;
mod record;
mod recording;
mod store;
mod stream;
mod timing;

pub use ginnel_http1::Body;

pub use body::CapturedBody;
pub(crate) use file::{FileLimits, InspectFile};
pub use record::{CaptureRecord, CaptureSource, CapturedExchange, CapturedMessage, Via};
pub use recording::Recording;
pub(crate) use store::ImportedCapture;
pub use store::{
    CaptureChange, CaptureLimit, CaptureLimits, CaptureSnapshot, CaptureStore, NewCapture,
    PinError, Usage,
};
pub use stream::{BodyMarks, SocketLog, SocketMessage, StreamKind, StreamSide};
pub use timing::{ExchangeMarks, ExchangeTiming};
