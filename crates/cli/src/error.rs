//! Why a command failed, and what the shell is told.

use ginnel_api::Malformed;
use ginnel_client::ConfigError;
use ginnel_service::Error;
use ginnel_store::StoreError;

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
    /// The database, or a file beside it, is damaged, in use, read-only, newer, or otherwise unusable.
    Store = 4,
    /// The key or authtoken was refused, or does not permit this: 401 or 403.
    Denied = 5,
    /// No such resource: 404.
    NotFound = 6,
    /// The API found fault with the request: any other 4xx.
    Refused = 7,
    /// The server failed: 5xx, or a response that makes no sense.
    Server = 8,
    /// No complete response arrived.
    Unreachable = 9,
}

/// The result of a command.
pub(super) type CommandResult<T> = Result<T, CliError>;

/// Why a command failed, in one line.
#[derive(Debug)]
pub(super) struct CliError {
    pub exit: Exit,
    pub message: String,
}

impl CliError {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// A second signal ended the process before its work was done.
    pub(super) fn second_signal() -> Self {
        Self::new(Exit::Failed, "stopped by a second signal")
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::AddressInUse(_)
            | Error::Bind { .. }
            | Error::AdminAddress { .. }
            | Error::PeerAddress { .. } => Exit::Address,
            Error::Store(StoreError::SpecialName(_)) => Exit::Usage,
            Error::Store(_) | Error::Authority(_) | Error::TokenFile { .. } => Exit::Store,
            Error::Certificate(_) => Exit::Failed,
            Error::MalformedAdminKey
            | Error::UnknownAdminKey
            | Error::SecretFile { .. }
            | Error::MalformedAuthtoken
            | Error::UnknownAuthtoken
            | Error::BackupFolder(_)
            | Error::ConnectionLimit(_)
            | Error::TwoStores
            | Error::NodeNameTaken { .. }
            | Error::RateLimit
            | Error::Acme(_)
            | Error::Setting { .. } => Exit::Usage,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<Malformed> for CliError {
    fn from(error: Malformed) -> Self {
        Self::usage(error.to_string())
    }
}
