//! What becomes of errors that nobody returns.

/// The value of a result; where there is an error, it is told at debug with what could not be done.
///
/// ```ignore
/// or_debug!(socket.shutdown().await, "cannot close the connection");
/// ```
#[macro_export]
macro_rules! or_debug {
    ($result:expr, $($event:tt)+) => {
        match $result {
            Ok(value) => Some(value),
            Err(err) => {
                $crate::tracing::debug!(err = %err, $($event)+);
                None
            }
        }
    };
}

pub use or_debug;

/// Drops the outcome of something that may fail, for a reason that whoever reads the code may judge.
pub fn ignore<T>(_outcome: T, _reason: &'static str) {}
