//! Stopping what runs in this process, which a signal's handler may cut short.

use std::time::Duration;

use pyo3::prelude::*;
use tokio::time::sleep;

use super::error;

/// The longest time that requests in flight may take at the end, in seconds.
const MAX_GRACE_SECONDS: f64 = 3600.0;
/// How long a signal waits at most until its handler runs.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Reads `grace`, a number of seconds.
pub(super) fn read_grace(seconds: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let number: f64 = seconds.extract()?;
    if !(0.0..=MAX_GRACE_SECONDS).contains(&number) {
        let problem = format!(
            "grace={}: must be a number of seconds from 0 to {MAX_GRACE_SECONDS}",
            seconds.repr()?
        );
        return Err(error::new_exception(seconds.py(), "ConfigError", &problem));
    }
    Ok(Duration::from_secs_f64(number))
}

/// Waits until the handler of a signal raises an exception; to be awaited on the thread that Python
/// called.
pub(super) async fn wait_for_interrupt(exception: &mut Option<PyErr>) {
    while exception.is_none() {
        sleep(SIGNAL_CHECK_INTERVAL).await;
        // None when the interpreter ends: then no handler runs any more.
        *exception = Python::try_attach(|py| py.check_signals().err()).flatten();
    }
}
