//! How events are delivered.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ginnel_api::mask;
use ginnel_net::Reach;
use ginnel_settings::{ByteSize, settings};
use ginnel_store::WaitingTotals;

use crate::Error;

settings! {
    /// How events are delivered.
    #[derive(Debug, Clone)]
    pub struct EventOptions {
    }

    /// The settings under `event_delivery`.
    rows {
        folder: Option<PathBuf> = None,
            "event_delivery.folder", "DIR",
            "The folder in which event destinations may name files",
            when_unset("no files");
        retry_after: Duration = Duration::from_secs(1),
            "event_delivery.retry_after", "DURATION",
            "Pause after a failure before an event is sent again; doubles up to five minutes",
            with_bounds(10, 300_000);
        max_age: Duration = Duration::from_secs(24 * 3600),
            "event_delivery.max_age", "DURATION",
            "Maximum age of an event that is not delivered",
            with_bounds(1000, 30 * 86_400_000);
        max_waiting: usize = 100_000,
            "event_delivery.max_waiting", "N",
            "Maximum number of events that wait for one destination; the oldest are dropped first",
            with_bounds(1, 1_000_000);
        max_waiting_size: ByteSize = ByteSize(64 << 20),
            "event_delivery.max_waiting_size", "SIZE",
            "Maximum size of these events together; the oldest are dropped first",
            with_bounds(64 << 10, 1 << 40);
        timeout: Duration = Duration::from_secs(10),
            "event_delivery.timeout", "DURATION",
            "Maximum duration of one attempt to deliver an event",
            with_bounds(100, 60_000);
        private_receivers: bool = true,
            "event_delivery.private_receivers", "BOOL",
            "Let event destinations have URLs that lead to private addresses";
    }
}

impl EventOptions {
    /// Where URLs of destinations may lead.
    pub(crate) fn reach(&self) -> Reach {
        if self.private_receivers { Reach::Any } else { Reach::Public }
    }

    /// How much may wait for one destination.
    pub(super) fn waiting_limits(&self) -> WaitingTotals {
        let (count, bytes) = (self.max_waiting as u64, self.max_waiting_size.0 as u64);
        WaitingTotals { count, bytes }
    }

    /// Finds what is wrong before anything is started: the folder, in which callers of the API name files,
    /// must be there and must hold none of these files of the service.
    pub(crate) fn check_folder<'a>(
        &self,
        own_files: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), Error> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let wrong = |problem| Err(Error::invalid_setting("event_delivery.folder", problem));
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
