//! Settings of the database.

use std::path::PathBuf;

use ginnel_settings::settings;
use ginnel_store::{MissingLog, PostgresOptions};

settings! {
    /// The database: a file, PostgreSQL, or, without either, memory that ends with the service.
    #[derive(Debug, Clone)]
    pub struct StoreSettings {
    }

    /// The settings of its place.
    location {
        path: Option<PathBuf> = None,
            "path", "FILE",
            "The SQLite database; without it, all data is lost when the process ends",
            listed_in_help(), with_keyword();
        server: Option<PostgresOptions> = None,
            "store", "URL",
            "The database on PostgreSQL, postgres://USER@HOST/NAME, for several nodes; without a password",
            listed_in_help(), with_keyword();
    }

    /// The setting of its clock.
    clock {
        trust_clock: bool = false,
            "trust_clock", "BOOL",
            "Trust the clock at the start, even after a leap, and delete data by its age";
    }

    /// The setting of its recovery.
    recovery {
        force_open: bool = false,
            "force_open", "BOOL",
            "Open a database that was not closed and has lost its log, without its last changes";
    }
}

impl StoreSettings {
    /// The treatment of a database that was not closed and has lost its log.
    pub(super) fn missing_log(&self) -> MissingLog {
        match self.force_open {
            true => MissingLog::Accept,
            false => MissingLog::Refuse,
        }
    }
}
