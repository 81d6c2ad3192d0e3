//! Connections to targets: dialed or from a pool, with HTTP/1.1 or HTTP/2 spoken on them.

pub(crate) mod budget;
pub(crate) mod connection;
pub(crate) mod forward;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod io;
pub(crate) mod pool;
pub(crate) mod static_target;
