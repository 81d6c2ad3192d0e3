//! Connections to targets: dialed or from a pool, with HTTP/1.1 or HTTP/2 spoken on them.

pub mod budget;
pub mod connection;
pub mod forward;
pub mod http1;
pub mod http2;
pub mod io;
pub mod pool;
pub mod static_target;
pub mod target;
mod upgraded;
