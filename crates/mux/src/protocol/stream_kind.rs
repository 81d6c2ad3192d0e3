//! What a stream is for: its first four bytes.

pub use crate::heartbeat::HEARTBEAT;
use std::io;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::Stream;

/// The agent says who it is.
pub const AUTH: u32 = 0;
/// The agent registers an endpoint.
pub const BIND: u32 = 1;
/// The agent takes an endpoint or labelled tunnel back.
pub const UNBIND: u32 = 2;
/// The service hands over a connection.
pub const PROXY: u32 = 3;
/// The service asks the agent to start anew.
pub const RESTART: u32 = 4;
/// The service asks the agent to end.
pub const STOP: u32 = 5;
/// The service asks the agent to replace itself.
pub const UPDATE: u32 = 6;
/// The agent registers a labelled tunnel.
pub const BIND_LABELED: u32 = 7;
/// The agent asks where the service is.
pub const SRV_INFO: u32 = 8;
/// The service ended one tunnel.
pub const STOP_TUNNEL: u32 = 9;
/// The agent changes what an endpoint says about itself.
pub const PATCH_TUNNEL_STATE: u32 = 10;

/// How long the first bytes of a stream may take.
pub const FIRST_BYTES: Duration = Duration::from_secs(5);

/// Reads what a stream is for.
///
/// # Errors
/// When the stream ends or the session is over before, or after five seconds.
pub async fn read_kind(stream: &mut Stream) -> io::Result<u32> {
    timeout(FIRST_BYTES, stream.read_u32()).await?
}
