//! What is worth a line for whoever looks for the cause of something: events and spans of `tracing`.
//!
//! Code says what happens with the macros of `tracing`, and fields of these names, as far as they are
//! known: `request_id`, `op_id`, `session`, `tunnel`, `edge`, `status`, `dur_ms`, `err`. Never a value of
//! a header, a body or a secret. While nobody has asked for a level, all of that is a look at one number.
//!
//! If a level is set, `LogSubscriber` makes a [`LogRecord`] of each event, with the fields of the spans
//! around it, and puts it into a bounded queue ([`take_records`]). Whoever reads that, a thread of Python or of
//! the command, may be slow: nobody who has something to say waits for it. Records that find no place are
//! counted, and the count is a record later.
//!
//! An error that nobody returns is told at debug with its cause, by [`or_debug`]; one that says nothing to
//! anybody is passed to [`ignore`], with the reason. `tests/rust/swallowed_errors.rs` holds the code to
//! that.

mod format;
mod level;
mod outcome;
mod queue;
mod record;
mod span;
mod subscriber;

pub use format::LogFormat;
pub use level::TARGETS;
pub use level::{LogLevel, LogLevels};
pub use outcome::{ignore, or_debug};
pub use queue::has_records;
pub use queue::{
    count_dropped, count_dropped_access, dropped_access_lines, dropped_records, take_records,
    wake_readers,
};
pub use record::{LogRecord, LogValue};
pub use subscriber::set_levels;
