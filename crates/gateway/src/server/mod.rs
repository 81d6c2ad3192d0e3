//! Visitors' connections, from the first byte to the last response.
//!
//! `listen` opens ports. `http_server` has HTTP/1.1 spoken with a visitor by `http1_server`, or HTTP/2 by hyper;
//! `connection` brings each request into one form, selects its host and route, and responds. A request that
//! is only to be carried takes the fast path through `fast_path`. `tcp` carries connections that are not
//! HTTP, and `relayed` serves the visitors of other nodes. No other folder uses this one.

pub mod accept;
mod bind;
pub mod connection;
pub mod delivery_mark;
pub mod fast_path;
pub mod flood_guard;
pub mod gateway;
pub mod http1_server;
pub mod http_server;
mod listen;
pub mod relayed;
pub mod response_writer;
pub mod stream_executor;
pub mod tcp;
