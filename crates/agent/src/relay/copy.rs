//! Copying bytes both ways, each direction to its own end.

use std::io;

use tokio::io::{AsyncRead, join};

use ginnel_net::copy_both;

use super::{Activity, BoxWriter, LocalReset};

/// How much is copied at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Copies in both directions until both have ended; says how many bytes went each way.
///
/// The end of one direction is passed on, and the other goes on. If one side breaks, the other one is reset: the
/// visitor by its `activity`, and the local service by `reset`.
///
/// # Errors
/// When one side fails; the other is dropped then.
pub async fn copy_bidirectional(
    visitor: (&mut (impl AsyncRead + Unpin), &mut BoxWriter),
    activity: &Activity<'_>,
    local: (&mut (impl AsyncRead + Unpin), &mut BoxWriter),
    reset: &LocalReset,
) -> io::Result<(u64, u64)> {
    let (mut visitor, mut local) = (join(visitor.0, visitor.1), join(local.0, local.1));
    let copied = copy_both(&mut visitor, &mut local, CHUNK_BYTES).await;
    copied.map_err(|broken| {
        if broken.is_first_cut_off {
            activity.reset_stream();
        }
        if broken.is_second_cut_off {
            reset.request();
        }
        broken.error
    })
}
