//! Why a command failed, and what the shell is told.

use crate::service::Error;

/// The exit codes of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All went well.
    Clean = 0,
    /// Something failed while it ran.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The address is in use or cannot be listened on.
    Address = 3,
    /// The database is damaged, locked, read-only, newer, or otherwise of no use.
    Store = 4,
}

/// Why a command failed, in one line.
#[derive(Debug)]
pub(super) struct Failure {
    pub exit: Exit,
    pub message: String,
}

impl Failure {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::AddressInUse(_) | Error::Bind { .. } => Exit::Address,
            Error::Store(_) => Exit::Store,
            Error::Certificate(_) => Exit::Failed,
            Error::MalformedAdminKey
            | Error::UnknownAdminKey
            | Error::AdminKeyFile { .. }
            | Error::PublicUrl(_)
            | Error::RateLimit => Exit::Usage,
        };
        Self::new(exit, error.to_string())
    }
}
