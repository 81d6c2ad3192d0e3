//! How events are delivered.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ginnel_api::mask;
use ginnel_net::Reach;
use ginnel_settings::ByteSize;
use ginnel_store::WaitingTotals;

use crate::Error;

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
    /// How long such events may be together, in bytes.
    pub max_waiting_size: ByteSize,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// Whether destinations may have URLs that lead to other than public addresses, as they may by default.
    pub private_receivers: bool,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self {
            folder: None,
            retry_after: Duration::from_secs(1),
            max_age: Duration::from_secs(24 * 3600),
            max_waiting: 100_000,
            max_waiting_size: ByteSize(64 << 20),
            timeout: Duration::from_secs(10),
            private_receivers: true,
        }
    }
}

impl EventOptions {
    /// Where URLs of destinations may lead.
    pub(crate) fn reach(&self) -> Reach {
        if self.private_receivers { Reach::Any } else { Reach::Public }
    }

    /// How much may wait for one destination.
    pub(super) fn limits(&self) -> WaitingTotals {
        let (count, bytes) = (self.max_waiting as u64, self.max_waiting_size.0 as u64);
        WaitingTotals { count, bytes }
    }

    /// Finds what is wrong before anything is started: the folder, in which callers of the API name files,
    /// must be there and must hold none of these files of the service.
    pub(crate) fn check<'a>(
        &self,
        own_files: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), Error> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let wrong = |problem| Err(Error::setting("event_delivery.folder", problem));
        if !folder.is_dir() {
            return wrong(format!("{} is not a folder", mask::path(folder)));
        }
        let same = std::fs::canonicalize(folder).ok();
        let own = own_files.into_iter().find(|file| {
            let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            std::fs::canonicalize(parent.unwrap_or(Path::new("."))).ok() == same
        });
        match own {
            Some(file) => wrong(format!(
                "{} holds {}, a file of the service; name a folder of its own",
                folder.display(),
                file.display()
            )),
            None => Ok(()),
        }
    }
}
