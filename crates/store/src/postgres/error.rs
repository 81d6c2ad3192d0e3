//! What the server says, or that it says nothing.

use tokio_postgres::error::SqlState;

use crate::{StorageFault, StoreError};

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServerError {
    /// The server says why, or the connection is gone.
    #[error("{}", describe_error(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// There was no response in time.
    #[error("the database server does not respond")]
    Unanswered,
    /// The server cannot be resolved, or must not be connected to.
    #[error("cannot connect to the database server: {0}")]
    Unreachable(#[from] std::io::Error),
}

fn describe_error(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => error.message().to_owned(),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

impl ServerError {
    fn sql_state(&self) -> Option<&SqlState> {
        match self {
            Self::Postgres(error) => error.code(),
            Self::Unanswered | Self::Unreachable(_) => None,
        }
    }

    /// True when the server has refused the statement, and so has ended its transaction without a
    /// change. Otherwise nobody knows what became of it.
    pub(super) fn is_refusal(&self) -> bool {
        // Of these, the connection ends with the statement, perhaps after it was done.
        let unknown = |code: &str| {
            code.starts_with("08") || code.starts_with("57P") || code == "40003" || code == "XX000"
        };
        self.sql_state().is_some_and(|code| !unknown(code.code()))
    }

    /// True when the server refuses what was to be stored or looked for, or what it would come to.
    pub(super) fn is_of_values(&self) -> bool {
        let code = self.sql_state().map(SqlState::code).unwrap_or_default();
        ["22", "23", "54"].iter().any(|class| code.starts_with(class))
    }

    /// True when the same may succeed when it is done again.
    pub(super) fn is_transient(&self) -> bool {
        match self.sql_state().map(SqlState::code) {
            None => self.is_connection_lost(),
            Some(code) => ["08", "40", "53300", "55P03", "57P", "25P03", "25P04"]
                .iter()
                .any(|class| code.starts_with(class)),
        }
    }

    fn is_connection_lost(&self) -> bool {
        match self {
            // Of an address that is wrong, say, there is no better one.
            Self::Postgres(error) => error.is_closed() || has_io_error(error),
            Self::Unanswered | Self::Unreachable(_) => true,
        }
    }

    fn fault(&self) -> Option<StorageFault> {
        match self.sql_state().map(SqlState::code) {
            None => self.is_connection_lost().then_some(StorageFault::Unreachable),
            Some(code) => fault_of(code),
        }
    }
}

fn has_io_error(error: &tokio_postgres::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.is::<std::io::Error>() {
            return true;
        }
        source = error.source();
    }
    false
}

fn fault_of(code: &str) -> Option<StorageFault> {
    match code {
        "57014" => Some(StorageFault::Timeout),
        "53100" => Some(StorageFault::Full),
        "25006" => Some(StorageFault::ReadOnly),
        "55P03" => Some(StorageFault::Locked),
        "XX001" | "XX002" => Some(StorageFault::Damaged),
        _ => match code.get(..2) {
            Some("08" | "25" | "28" | "40" | "53" | "57") => Some(StorageFault::Unreachable),
            Some("58") => Some(StorageFault::Io),
            // The others are mistakes of ours.
            _ => None,
        },
    }
}

impl From<ServerError> for StoreError {
    fn from(error: ServerError) -> Self {
        Self::Server { fault: error.fault(), problem: error.to_string() }
    }
}
