//! Why actions fail while rules run.

/// The result of a step of an action.
pub type ActionResult<T> = Result<T, ActionError>;

/// Why an action failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ActionError {
    /// The number of the error.
    pub code: u16,
    /// Recent errors.
    pub message: String,
    /// Whether the request fails with it, as far as there is a request.
    pub fatal: bool,
}

/// Numbers of failures while rules run.
pub mod failure {
    /// A value that an expression gave cannot be used where it stands.
    pub const VALUE: u16 = 2238;
    /// A body is too long to be looked at.
    pub const BODY: u16 = 2249;
    /// A body cannot be read, so that it cannot be changed either.
    pub const UNREADABLE: u16 = 3904;
    /// A variable grows beyond what is sensible.
    pub const VARIABLE: u16 = 2253;
    /// An expression in a template failed.
    pub const EXPRESSION: u16 = 3900;
    /// A regular expression that was put together is none.
    pub const PATTERN: u16 = 3901;
}

impl ActionError {
    /// A failure that the request fails with.
    pub(super) fn fatal(code: u16, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), fatal: true }
    }

    /// A failure after which the request goes on as if the action were not there.
    pub(super) fn non_fatal(code: u16, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), fatal: false }
    }
}
