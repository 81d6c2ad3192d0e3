//! How events are delivered.

use std::path::PathBuf;
use std::time::Duration;

use crate::service::Error;

/// How events are delivered.
#[derive(Debug, Clone)]
pub struct EventOptions {
    /// The folder in which destinations may name files; none, the default, allows no file.
    pub folder: Option<PathBuf>,
    /// How long after a failure a delivery is tried again; it doubles with each, up to five minutes.
    pub retry_after: Duration,
    /// How old an event may become before it is given up.
    pub max_age: Duration,
    /// How many events may wait for one destination; the oldest of more are given up.
    pub max_waiting: usize,
    /// How long one attempt may take.
    pub timeout: Duration,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self {
            folder: None,
            retry_after: Duration::from_secs(1),
            max_age: Duration::from_secs(24 * 3600),
            max_waiting: 10_000,
            timeout: Duration::from_secs(10),
        }
    }
}

impl EventOptions {
    /// Finds what is wrong before anything is started.
    pub(in crate::service) fn check(&self) -> Result<(), Error> {
        match self.folder.as_ref().filter(|folder| !folder.is_dir()) {
            Some(folder) => {
                let problem = format!("{} is not a folder", folder.display());
                Err(Error::setting("event_delivery.folder", problem))
            }
            None => Ok(()),
        }
    }
}
