//! Messages of HTTP/1.1, as both ends of a tunnel follow them; no I/O.

mod body;

pub use body::Body;
